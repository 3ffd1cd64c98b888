"""Plain text: one file, one document. A position is always 0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataeff.columns import fit, nothing
from dataeff.inputs import MAX_ROW_BYTES, InputFile, Reject, Rows, Slice
from dataeff.streams import Damage, opened, read_all

_SCHEMA = pa.schema([pa.field("text", pa.large_string()), pa.field("path", pa.large_string())])
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainText:
    """Plain text files in UTF-8, one document each, with columns `text` and `path`; `.txt` also packed.

    A byte order mark at the start is left out. A file that is not UTF-8, or whose packed data is damaged, is a
    reject.
    """

    storage_options: Mapping[str, Any] = field(default_factory=dict, compare=False)

    suffixes: ClassVar[tuple[str, ...]] = (
        *(".txt", ".text", ".md", ".markdown", ".rst", ".tex", ".py"),
        *(".txt.gz", ".txt.zst"),
    )

    def split(self, file: InputFile, target_bytes: int) -> list[Slice]:
        """See `Reader.split`; a slice is the file, an empty one too."""
        with opened(file, self.storage_options):
            return [Slice(file=file, start=0, stop=1, num_bytes=file.num_bytes)]

    def schema(self, file: InputFile) -> pa.Schema:
        """See `Reader.schema`."""
        return _SCHEMA

    def read(self, piece: Slice, schema: pa.Schema, batch_bytes: int) -> Iterator[Rows]:
        """See `Reader.read`."""
        url = piece.file.url
        with opened(piece.file, self.storage_options) as source:
            try:
                content = read_all(source)
            except Damage as damage:
                yield nothing(schema, Reject(url=url, position=0, reason=damage.reason, detail=damage.detail))
                return
        if content is None:
            detail = f"the file has more than {MAX_ROW_BYTES} bytes"
            yield nothing(schema, Reject(url=url, position=0, reason="too_long", detail=detail))
            return
        try:
            text = pa.array([content.removeprefix(_MARK)], pa.binary()).cast(pa.large_string())
        except pa.ArrowInvalid:
            detail = "the file holds bytes that are not UTF-8: convert it, for instance with `iconv -t UTF-8`"
            yield nothing(schema, Reject(url=url, position=0, reason="invalid_utf8", detail=detail))
            return
        batch = pa.RecordBatch.from_arrays([text, pa.array([url], pa.large_string())], schema=_SCHEMA)
        yield fit(batch, np.zeros(1, np.int64), url, schema, trusted=True)
