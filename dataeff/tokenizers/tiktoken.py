"""The encodings that the `tiktoken` package knows by name."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib
import json
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dataeff.arrow import I64, U32
from dataeff.errors import FormatError, PlanError
from dataeff.pieces import encode_rows

PROVED = frozenset({"gpt2", "r50k_base", "p50k_base", "p50k_edit", "cl100k_base", "o200k_base", "o200k_harmony"})
"""Encodings whose expression is one for which cutting huge documents is proved to keep the ids."""
_patching = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiktoken:
    """A tiktoken encoding, such as cl100k_base, from data that is on this machine: nothing is downloaded.

    The `tiktoken` package must be installed. Its data is looked for where it keeps it: in the folder that
    TIKTOKEN_CACHE_DIR or DATA_GYM_CACHE_DIR names, or else `data-gym-cache` among the temporary files. What is found is
    kept beside the corpus, so other machines of the run need no data. Special tokens in a document are text.
    """

    encoding: str = "cl100k_base"
    """Name, one of `tiktoken.list_encoding_names()`, plugins included."""
    end_of_document: str = "<|endoftext|>"
    """Special token that ends a document; one that the encoding lacks gets a new id at its end."""

    def prepare(self, sample: Iterable[str]) -> bytes:
        """The encoding's ranks, splitting expression and special tokens, as JSON.

        Raises:
            PlanError: tiktoken is not installed, does not know the name, or has no data for it on this machine.
        """
        _imported("tiktoken")
        registry = _imported("tiktoken.registry")
        names = registry.list_encoding_names()
        if self.encoding not in names:
            raise PlanError(f"tiktoken knows no encoding {self.encoding!r}; it knows {', '.join(sorted(names))}")
        with _no_download(self.encoding):
            found = registry.ENCODING_CONSTRUCTORS[self.encoding]()
        ranks = sorted(found["mergeable_ranks"].items(), key=lambda item: item[1])
        kept = {
            "encoding": self.encoding,
            "pattern": found["pat_str"],
            "special_tokens": dict(sorted(found["special_tokens"].items())),
            "ranks": [[base64.b64encode(token).decode(), rank] for token, rank in ranks],
        }
        return json.dumps(kept, separators=(",", ":")).encode()

    def load(self, prepared: bytes) -> TiktokenEncoder:
        """The encoder.

        Raises:
            PlanError: tiktoken is not installed.
            FormatError: `prepared` is not what `prepare` returned.
        """
        try:
            kept = json.loads(prepared)
            ranks = {base64.b64decode(token): rank for token, rank in kept["ranks"]}
            name, pattern, special = kept["encoding"], kept["pattern"], kept["special_tokens"]
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"the kept tiktoken encoding is damaged ({error}); remove it and run again") from error
        encoding = _imported("tiktoken").Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
        return TiktokenEncoder(encoding, special.get(self.end_of_document, encoding.n_vocab))


class TiktokenEncoder:
    """A ready encoding; safe to use from several threads."""

    def __init__(self, encoding: Any, end_of_document: int) -> None:
        self.vocab_size: int = max(encoding.n_vocab, end_of_document + 1)
        self.end_of_document = end_of_document
        self._encoding = encoding

    def encode(self, text: pa.Array) -> tuple[U32, I64]:
        """Ids of every row of a large_string array, each row closed by `end_of_document`.

        Returns:
            `(ids, offsets)`, the offsets of shape (rows + 1,).

        Raises:
            InputError: A row is not UTF-8.
        """
        cut = self._encoding.name in PROVED
        return encode_rows(text, self._strings, end_of_document=self.end_of_document, cut=cut)

    def _strings(self, strings: list[str]) -> tuple[U32, I64]:
        found = [self._encoding.encode_to_numpy(string, disallowed_special=()) for string in strings]
        return np.concatenate(found), np.fromiter(map(len, found), np.int64, len(found))


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PlanError(
            "this tokenizer needs the package tiktoken, which is not installed: `pip install tiktoken`, or use "
            "trained_bpe or pretrained"
        ) from error


@contextlib.contextmanager
def _no_download(encoding: str) -> Iterator[None]:
    """Let tiktoken read its cache and local files, and neither fetch, nor remove a file that it would fetch anew."""
    load = _imported("tiktoken.load")
    with _patching:
        original = load.read_file_cached

        def local(blobpath: str, expected_hash: str | None = None) -> bytes:
            return _local(encoding, blobpath, expected_hash)

        load.read_file_cached = local
        try:
            yield
        finally:
            load.read_file_cached = original


def _local(encoding: str, address: str, expected_hash: str | None) -> bytes:
    path = Path(address) if "://" not in address else _cache() / hashlib.sha1(address.encode()).hexdigest()
    if not path.is_file():
        raise PlanError(
            f"tiktoken's data for {encoding} is not on this machine: {path} was looked for and nothing is downloaded. "
            f"Call `tiktoken.get_encoding({encoding!r})` once where there is a network, and set TIKTOKEN_CACHE_DIR to "
            "the folder that holds it then; or use trained_bpe or pretrained"
        )
    data = path.read_bytes()
    if expected_hash and hashlib.sha256(data).hexdigest() != expected_hash:
        raise PlanError(
            f"{path} is damaged: it should be tiktoken's data for {encoding}, and its SHA-256 is not {expected_hash}; "
            "remove it and fetch it anew"
        )
    return data


def _cache() -> Path:
    named = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    return Path(named) if named else Path(tempfile.gettempdir()) / "data-gym-cache"
