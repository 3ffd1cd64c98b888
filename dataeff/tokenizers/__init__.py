"""Tokenizers: text to token ids. One family a module, found through the registry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from dataeff.arrow import I64, U32
from dataeff.errors import PlanError


class Encoder(Protocol):
    """A ready tokenizer; made anew in each process, safe to use from several threads."""

    vocab_size: int
    """Ids are in [0, vocab_size), the end-of-document token included."""
    end_of_document: int
    """Id appended after every document; never produced by text."""

    def encode(self, text: pa.Array) -> tuple[U32, I64]:
        """Ids of every row of a large_string array, end-of-document token included.

        Returns:
            `(ids, offsets)`: ids of all rows, and row boundaries into them, shape (rows + 1,).
        """


class Tokenizer(Protocol):
    """What a module in this folder provides, as a frozen keyword-only dataclass named after its file."""

    def prepare(self, sample: Iterable[str]) -> bytes:
        """Everything that `load` needs, as bytes to keep beside the corpus: a tokenizer file, or nothing.

        Args:
            sample: A seeded sample of the corpus, for tokenizers that are trained; others do not touch it.

        Raises:
            PlanError: The file or name is not there; the message says where it was looked for.
        """

    def load(self, prepared: bytes) -> Encoder:
        """The encoder made from what `prepare` returned; the same bytes give the same ids everywhere."""


def token_dtype(vocab_size: int) -> np.dtype[np.uint16] | np.dtype[np.uint32]:
    """The narrowest type that holds ids in [0, vocab_size): uint16 up to 65536 of them, uint32 above.

    Raises:
        PlanError: `vocab_size` is below 1 or above 2**32.
    """
    if not 1 <= vocab_size <= 1 << 32:
        raise PlanError(f"the vocabulary has {vocab_size} tokens; it must have 1 to 2**32")
    return np.dtype(np.uint16) if vocab_size <= 1 << 16 else np.dtype(np.uint32)


def __getattr__(name: str) -> Any:
    from dataeff.registry import by_class_name

    found = by_class_name("tokenizers", name) if name[:1].isupper() else None
    if found is None:
        raise AttributeError(f"module 'dataeff.tokenizers' has no attribute {name!r}")
    return found
