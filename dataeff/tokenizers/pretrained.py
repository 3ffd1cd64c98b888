"""A tokenizer that someone else trained, in the format of the `tokenizers` library."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import tokenizers

from dataeff.errors import PlanError
from dataeff.tokenizer_json import JsonEncoder, encoder

_encoder = functools.lru_cache(maxsize=1)(encoder)
"""To make one takes a second, and whoever prepares a tokenizer loads it next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretrained:
    """A tokenizer.json file, the folder that holds one, or a name on the Hugging Face hub.

    Special tokens in a document are text, and no token is added but the one that ends each document. The file is
    kept beside the corpus, so a later run does not need the hub.

    A document above 256 KiB is cut where that is proved to keep its ids, which is so for byte-level BPE that splits as
    GPT-2, GPT-4, GPT-4o, Llama 3 or Qwen 2 do. Other kinds take each document whole: with `tokenizers` that
    needs about 140 bytes of memory for each byte of the largest one.
    """

    source: str
    """Path, or hub name such as `openai-community/gpt2`; a path is tried first."""
    revision: str = "main"
    """Branch, tag or commit on the hub."""
    end_of_document: str = "<|endoftext|>"
    """Token that ends a document; one that the vocabulary lacks gets a new id at its end."""

    def __post_init__(self) -> None:
        if not self.source:
            raise PlanError.out_of_range(self, "source", "a path to a tokenizer.json, or a hub name")
        if not self.end_of_document:
            raise PlanError.out_of_range(self, "end_of_document", "a token, such as '<|endoftext|>'")

    def prepare(self, sample: Iterable[str]) -> bytes:
        """The tokenizer file.

        Raises:
            PlanError: There is no such file, and the hub does not have it or cannot be reached; or the file is not a
                tokenizer.
        """
        path = Path(self.source)
        path = path / "tokenizer.json" if path.is_dir() else path
        prepared = path.read_bytes() if path.is_file() else self._from_hub(path)
        _encoder(prepared, self.end_of_document)
        return prepared

    def load(self, prepared: bytes) -> JsonEncoder:
        """The encoder made from the tokenizer file.

        Raises:
            PlanError: It is not one.
        """
        return _encoder(prepared, self.end_of_document)

    def _from_hub(self, path: Path) -> bytes:
        looked = f"there is no file {path.absolute()}"
        if path.suffix or path.is_absolute() or len(path.parts) > 2:
            raise PlanError(f"{looked}: give the path of a tokenizer.json, or a hub name such as owner/name")
        try:
            text: str = tokenizers.Tokenizer.from_pretrained(self.source, revision=self.revision).to_str()
        except Exception as error:  # the library raises whatever the hub client does
            raise PlanError(
                f"{looked}, and the hub did not give a tokenizer called {self.source!r} at {self.revision!r} "
                f"({type(error).__name__}: {str(error)[:200]}): check the name and the network, or download its "
                "tokenizer.json and give that path"
            ) from error
        return text.encode()
