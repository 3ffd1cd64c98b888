"""The document batch: the one shape in which text travels, and its buffers as arrays for the kernels.

A document batch is a `pyarrow.RecordBatch` with the columns `doc` (uint64: part << 32 | row, the identity
everywhere), `id` (string, the input's own), `source` (string), `text` (large_string), then every other input
column untouched.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

U8: TypeAlias = npt.NDArray[np.uint8]
U32: TypeAlias = npt.NDArray[np.uint32]
U64: TypeAlias = npt.NDArray[np.uint64]
I64: TypeAlias = npt.NDArray[np.int64]
F64: TypeAlias = npt.NDArray[np.float64]

CORE = pa.schema(
    [
        pa.field("doc", pa.uint64(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("text", pa.large_string(), nullable=False),
    ]
)
CORE_NAMES = frozenset(CORE.names)
PART_SHIFT = 32


def text_views(text: pa.Array) -> tuple[U8, I64]:
    """Zero-copy views of a large_string array without nulls.

    Returns:
        `(data, offsets)`: UTF-8 bytes, and row boundaries into them, shape (rows + 1,). Both are read-only;
        `offsets[0]` is not 0 where the array is a slice.
    """
    if text.type != pa.large_string():
        text = text.cast(pa.large_string())
    rows = len(text)
    if rows == 0:
        return _read_only(np.zeros(0, np.uint8)), _read_only(np.zeros(1, np.int64))
    _, offset_buffer, data_buffer = text.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64, count=rows + 1, offset=8 * text.offset)
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    return _read_only(data), _read_only(offsets)


def text_array(data: U8, offsets: I64) -> pa.Array:
    """A large_string array over UTF-8 `data` cut at `offsets` (shape (rows + 1,), starting at 0). No copy."""
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def with_text(batch: pa.RecordBatch, text: pa.Array) -> pa.RecordBatch:
    """The batch with its text replaced."""
    return batch.set_column(batch.schema.get_field_index("text"), CORE.field("text"), text)


def _read_only(view: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = view.view()
    view.flags.writeable = False
    return view
