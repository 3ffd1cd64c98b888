"""Parquet, by row groups. A position is the row's number in the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataeff.columns import batched, fit, nothing
from dataeff.errors import InputError
from dataeff.inputs import InputFile, Reject, Rows, Slice
from dataeff.streams import is_local, open_raw

_STEP_ROWS = 128
"""Rows decoded at a time. Sizes in the footer are of encoded data, and a dictionary may unfold to far more."""
_NEAR_READ_BYTES = 1 << 20
_FAR_READ_BYTES = 1 << 23


@dataclass(frozen=True, slots=True, kw_only=True)
class Parquet:
    """Parquet, split by row groups; only the wanted columns are read.

    A row group that is damaged gives its rows before the damage and one reject; the next ones are read.
    """

    storage_options: Mapping[str, Any] = field(default_factory=dict, compare=False)

    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".pq")

    def split(self, file: InputFile, target_bytes: int) -> list[Slice]:
        """See `Reader.split`; a slice is a run of row groups."""
        with open_raw(file, self.storage_options) as raw:
            footer = _opened(file, raw).metadata
            sizes = [footer.row_group(number).total_byte_size for number in range(footer.num_row_groups)]
        slices: list[Slice] = []
        start = size = 0
        for number, group_bytes in enumerate(sizes):
            if number > start and size + group_bytes > target_bytes:
                slices.append(Slice(file=file, start=start, stop=number, num_bytes=size))
                start, size = number, 0
            size += group_bytes
        if sizes and footer.num_rows:
            slices.append(Slice(file=file, start=start, stop=len(sizes), num_bytes=size))
        return slices

    def schema(self, file: InputFile) -> pa.Schema:
        """See `Reader.schema`."""
        with open_raw(file, self.storage_options) as raw:
            return _opened(file, raw).schema_arrow.remove_metadata()

    def read(self, piece: Slice, schema: pa.Schema, batch_bytes: int) -> Iterator[Rows]:
        """See `Reader.read`."""
        with open_raw(piece.file, self.storage_options) as raw:
            parquet = _opened(piece.file, raw)
            first = sum(parquet.metadata.row_group(number).num_rows for number in range(piece.start))
            for number in range(piece.start, piece.stop):
                num_rows = parquet.metadata.row_group(number).num_rows
                yield from _group(parquet, number, piece.file.url, first, schema, batch_bytes)
                first += num_rows


def _opened(file: InputFile, raw: Any) -> Any:
    """The file with its footer read."""
    import pyarrow.parquet

    try:
        return pyarrow.parquet.ParquetFile(
            raw,
            pre_buffer=False,
            buffer_size=_NEAR_READ_BYTES if is_local(file.url) else _FAR_READ_BYTES,
            page_checksum_verification=True,
        )
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InputError(
            f"{file.url} is not a whole Parquet file ({error}); it must end in a footer: copy it again, or leave it out"
        ) from error


def _group(parquet: Any, number: int, url: str, first: int, schema: pa.Schema, batch_bytes: int) -> Iterator[Rows]:
    """Rows of one row group, whose first row has the number `first`."""
    num_rows = parquet.metadata.row_group(number).num_rows
    done = 0
    problem = ""

    def steps() -> Iterator[pa.RecordBatch]:
        nonlocal done, problem
        wanted = [name for name in parquet.schema_arrow.names if name in schema.names]
        try:
            for batch in parquet.iter_batches(_STEP_ROWS, [number], wanted, use_threads=False):
                yield batch
                done += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            problem = str(error)

    place = first
    for batch in batched(steps(), batch_bytes):
        positions = np.arange(place, place + batch.num_rows, dtype=np.int64)
        place += batch.num_rows
        yield fit(batch, positions, url, schema)
    if done < num_rows:
        problem = problem or "it ends early"
        detail = f"row group {number}, {num_rows - done} of {num_rows} rows lost: {problem}"
        yield nothing(schema, Reject(url=url, position=first + done, reason="damaged_row_group", detail=detail))
