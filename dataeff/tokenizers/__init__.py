"""Tokenizers: text to token ids. One family a module, found through the registry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import pyarrow as pa

from dataeff.arrow import I64, U32


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


def __getattr__(name: str) -> Any:
    from dataeff.registry import by_class_name

    found = by_class_name("tokenizers", name) if name[:1].isupper() else None
    if found is None:
        raise AttributeError(f"module 'dataeff.tokenizers' has no attribute {name!r}")
    return found
