"""The tokenizer that needs nothing: a byte is a token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataeff.arrow import I64, U32, text_views
from dataeff.errors import FormatError
from dataeff.pieces import close_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Utf8Bytes:
    """UTF-8 bytes are the ids 0 to 255, and 256 ends a document: 257 ids, nothing to train or fetch."""

    def prepare(self, sample: Iterable[str]) -> bytes:
        """Nothing: there is nothing to keep."""
        return b""

    def load(self, prepared: bytes) -> Utf8BytesEncoder:
        """The encoder.

        Raises:
            FormatError: `prepared` is not what `prepare` returned.
        """
        if prepared:
            raise FormatError(
                f"utf8_bytes needs no tokenizer file, and one of {len(prepared)} bytes is there: another tokenizer "
                "made it; use a new output directory"
            )
        return Utf8BytesEncoder()


class Utf8BytesEncoder:
    """Bytes as ids."""

    vocab_size = 257
    end_of_document = 256

    def encode(self, text: pa.Array) -> tuple[U32, I64]:
        """Bytes of every row of a large_string array, each row closed by 256.

        Returns:
            `(ids, offsets)`, the offsets of shape (rows + 1,).
        """
        data, offsets = text_views(text)
        ids = data[offsets[0] : offsets[-1]].astype(np.uint32)
        return close_rows(ids, offsets - offsets[0], self.end_of_document)
