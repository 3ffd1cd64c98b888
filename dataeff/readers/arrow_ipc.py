"""Arrow IPC, both formats, by record batches. A position is the row's number in the file.

A file whose footer is lost is read as the stream that it began as.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataeff.columns import cut, fit, nothing
from dataeff.errors import InputError
from dataeff.inputs import InputFile, Reject, Rows, Slice
from dataeff.streams import input_errors, is_local, open_raw

_MAGIC = b"ARROW1\0\0"
_OLD_MAGIC = b"FEA1"
_ERRORS = (pa.ArrowException, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowIpc:
    """Arrow IPC files and streams, memory-mapped where local, split by record batches.

    A stream is whole where it is remote or has dictionaries. A record batch whose body is damaged is one reject.
    """

    storage_options: Mapping[str, Any] = field(default_factory=dict, compare=False)

    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".arrows", ".feather", ".ipc")

    def split(self, file: InputFile, target_bytes: int) -> list[Slice]:
        """See `Reader.split`; a slice is a run of record batches, up to the end where it stops at -1."""
        with self._opened(file) as source:
            schema = _schema(file, source)
            whole = [Slice(file=file, start=0, stop=-1, num_bytes=file.num_bytes)]
            footer = _footer(source)
            if not is_local(file.url) or (footer is None and _has_dictionary(schema)):
                return whole
            sizes = [size for _, size in _scan(source)]
            if not sizes or (footer and footer.num_record_batches != len(sizes)):
                return whole
        slices: list[Slice] = []
        start = size = 0
        for number, batch_size in enumerate(sizes):
            if number > start and size + batch_size > target_bytes:
                slices.append(Slice(file=file, start=start, stop=number, num_bytes=size))
                start, size = number, 0
            size += batch_size
        return [*slices, Slice(file=file, start=start, stop=-1, num_bytes=size)]

    def schema(self, file: InputFile) -> pa.Schema:
        """See `Reader.schema`."""
        with self._opened(file) as source:
            return _schema(file, source).remove_metadata()

    def read(self, piece: Slice, schema: pa.Schema, batch_bytes: int) -> Iterator[Rows]:
        """See `Reader.read`."""
        url = piece.file.url
        with self._opened(piece.file) as source:
            own = _schema(piece.file, source)
            footer = _footer(source)
            if footer is not None:
                batches = _by_footer(footer, source, piece)
            elif _has_dictionary(own):
                batches = _by_stream(source)
            else:
                batches = _by_message(source, own, piece)
            place = 0
            for batch in batches:
                if isinstance(batch, int):
                    place += batch
                elif isinstance(batch, _Damage):
                    yield nothing(schema, Reject(url=url, position=place, reason=batch.reason, detail=batch.detail))
                    place += batch.num_rows
                else:
                    positions = np.arange(place, place + batch.num_rows, dtype=np.int64)
                    place += batch.num_rows
                    yield from cut(fit(batch, positions, url, schema), batch_bytes)

    @contextlib.contextmanager
    def _opened(self, file: InputFile) -> Iterator[Any]:
        if file.num_bytes == 0:
            raise InputError(f"{file.url} is empty; it must be an Arrow IPC file or stream: leave it out")
        if is_local(file.url):
            with input_errors(file.url), contextlib.closing(pa.memory_map(file.url)) as source:
                yield source
        else:
            with open_raw(file, self.storage_options) as raw:
                yield pa.PythonFile(raw, mode="r")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Damage:
    """What stands where a record batch should."""

    reason: str
    detail: str
    num_rows: int = 0


_Found = Iterator[pa.RecordBatch | _Damage | int]
"""Record batches, damage in place of one, or the number of rows that are passed over."""


def _schema(file: InputFile, source: Any) -> pa.Schema:
    """The schema message.

    Raises:
        InputError: There is none.
    """
    source.seek(0)
    start = source.read(len(_MAGIC))
    if start.startswith(_OLD_MAGIC):
        raise InputError(
            f"{file.url} is Feather version 1; it must be version 2 (Arrow IPC): write it anew with pyarrow"
        )
    try:
        _to_first_message(source)
        return pa.ipc.read_schema(pa.ipc.read_message(source))
    except (*_ERRORS, EOFError) as error:
        raise InputError(
            f"{file.url} is not Arrow IPC ({error}); it must begin with a schema: copy it again, or leave it out"
        ) from error


def _to_first_message(source: Any) -> None:
    source.seek(0)
    if source.read(len(_MAGIC)) != _MAGIC:
        source.seek(0)


def _footer(source: Any) -> Any | None:
    """A reader by the footer, where there is a sound one."""
    source.seek(0)
    try:
        return pa.ipc.open_file(source) if source.read(len(_MAGIC)) == _MAGIC else None
    except _ERRORS:
        return None


def _has_dictionary(schema: pa.Schema) -> bool:
    return "dictionary<" in schema.to_string(show_field_metadata=False, show_schema_metadata=False)


def _scan(source: Any) -> Iterator[tuple[int, int]]:
    """Rows and body bytes of each record batch of a local file; bodies are not touched."""
    _to_first_message(source)
    messages = pa.ipc.MessageReader.open_stream(source)
    with contextlib.suppress(StopIteration, *_ERRORS):
        while True:
            message = messages.read_next_message()
            if message.type == "record batch":
                yield _num_rows(message), message.body.size


def _num_rows(message: Any) -> int:
    """Rows of a record batch, from its header (a flatbuffer: Message.header is field 2, RecordBatch.length field 0)."""
    data = message.metadata.to_pybytes()

    def field_at(table: int, number: int) -> int:
        layout = table - struct.unpack_from("<i", data, table)[0]
        entry = 4 + 2 * number
        known = entry < struct.unpack_from("<H", data, layout)[0]
        offset = struct.unpack_from("<H", data, layout + entry)[0] if known else 0
        return table + offset if offset else 0

    header = field_at(struct.unpack_from("<I", data, 0)[0], 2)
    length = field_at(header + struct.unpack_from("<I", data, header)[0], 0)
    return int(struct.unpack_from("<q", data, length)[0]) if length else 0


def _by_footer(footer: Any, source: Any, piece: Slice) -> _Found:
    known = [num_rows for num_rows, _ in _scan(source)] if is_local(piece.file.url) else []
    yield sum(known[: piece.start])
    for number in range(piece.start, footer.num_record_batches if piece.stop < 0 else piece.stop):
        try:
            batch = footer.get_batch(number)
        except _ERRORS as error:
            num_rows = known[number] if number < len(known) else 0
            yield _Damage(reason="damaged_batch", detail=f"record batch {number}: {error}", num_rows=num_rows)
        else:
            yield batch


def _by_message(source: Any, schema: pa.Schema, piece: Slice) -> _Found:
    _to_first_message(source)
    in_file = source.tell() > 0
    messages = pa.ipc.MessageReader.open_stream(source)
    number = -1
    while piece.stop < 0 or number + 1 < piece.stop:
        try:
            message = messages.read_next_message()
        except StopIteration:
            if in_file:
                yield _Damage(reason="truncated_file", detail="the footer is missing")
            return
        except _ERRORS as error:
            yield _Damage(reason="truncated_file", detail=f"after record batch {number}: {error}")
            return
        if message.type != "record batch":
            continue
        number += 1
        if number < piece.start:
            yield _num_rows(message)
            continue
        try:
            batch = pa.ipc.read_record_batch(message, schema)
        except _ERRORS as error:
            detail = f"record batch {number}: {error}"
            yield _Damage(reason="damaged_batch", detail=detail, num_rows=_num_rows(message))
        else:
            yield batch


def _by_stream(source: Any) -> _Found:
    _to_first_message(source)
    in_file = source.tell() > 0
    try:
        yield from pa.ipc.open_stream(source)
    except _ERRORS as error:
        yield _Damage(reason="truncated_file", detail=str(error))
        return
    if in_file:
        yield _Damage(reason="truncated_file", detail="the footer is missing")
