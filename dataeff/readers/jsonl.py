"""JSON Lines: one JSON object a line.

Blocks of whole lines go to Arrow's parser with the schema given; where it refuses a block, the block is cut until few
lines are left around the ones at fault, and those are judged one by one. A position is the byte offset at which the
line begins, in the unpacked content.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataeff.arrow import I64, U8
from dataeff.columns import cut, fit, nothing
from dataeff.errors import InputError
from dataeff.inputs import MAX_ROW_BYTES, InputFile, Reject, Rows, Slice
from dataeff.json_rows import Unfit, infer, json_schema, parse, to_batch
from dataeff.streams import Damage, Source, is_compressed, line_blocks, opened

_SAMPLE_BYTES = 1 << 20
_MARK = b"\xef\xbb\xbf"
_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"
_FEW_LINES = 64
"""Refused lines so few are judged one by one: a call of Arrow's parser costs as much as about 20 lines that way."""
_CUTS = 16
"""Pieces that a refused block is cut into."""
_UNPACKED_RATIO = 4
"""Text packs to about a quarter; parts are cut by this guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jsonl:
    """JSON Lines, plain, gzip or Zstandard: one object a line.

    Plain files are split by bytes, packed ones are streamed whole. Columns and their types come from the first
    megabyte, and of a plain file also from its middle and end; a field that shows up only elsewhere is ignored, as
    is one that was null throughout.
    """

    storage_options: Mapping[str, Any] = field(default_factory=dict, compare=False)

    suffixes: ClassVar[tuple[str, ...]] = tuple(
        name + packed for name in (".jsonl", ".json", ".ndjson") for packed in ("", ".gz", ".zst")
    )

    def split(self, file: InputFile, target_bytes: int) -> list[Slice]:
        """See `Reader.split`."""
        with opened(file, self.storage_options):
            pass
        if file.num_bytes == 0:
            return []
        if is_compressed(file.url):
            return [Slice(file=file, start=0, stop=file.num_bytes, num_bytes=file.num_bytes * _UNPACKED_RATIO)]
        num_slices = -(-file.num_bytes // target_bytes)
        edges = [file.num_bytes * number // num_slices for number in range(num_slices + 1)]
        return [
            Slice(file=file, start=start, stop=stop, num_bytes=stop - start)
            for start, stop in itertools.pairwise(edges)
        ]

    def schema(self, file: InputFile) -> pa.Schema:
        """See `Reader.schema`."""
        objects: list[dict[str, Any]] = []
        first_problem: Unfit | None = None
        with opened(file, self.storage_options) as source:
            for line in _sample(source, file):
                try:
                    objects.append(parse(line))
                except Unfit as unfit:
                    first_problem = first_problem or unfit
        if first_problem and not objects:
            raise InputError(
                f"{file.url} has no line with a JSON object in its first megabyte ({first_problem.detail}); it must "
                "hold one object a line: convert it, or name another reader with `Read(reader=...)`"
            )
        return infer(objects)

    def read(self, piece: Slice, schema: pa.Schema, batch_bytes: int) -> Iterator[Rows]:
        """See `Reader.read`."""
        url = piece.file.url
        wanted = json_schema(schema)
        stop = None if is_compressed(url) else piece.stop
        with opened(piece.file, self.storage_options) as source:
            try:
                for offset, block in line_blocks(source, piece.start, stop, batch_bytes):
                    if block is None:
                        detail = f"the line has more than {MAX_ROW_BYTES} bytes"
                        yield nothing(schema, Reject(url=url, position=offset, reason="too_long", detail=detail))
                        continue
                    batch, positions, rejects = rows_of(block, offset, url, wanted)
                    rows = fit(batch, positions, url, schema, trusted=True)
                    every = tuple(sorted((*rejects, *rows.rejects), key=lambda reject: reject.position))
                    yield from cut(Rows(batch=rows.batch, positions=rows.positions, rejects=every), batch_bytes)
            except Damage as damage:
                reject = Reject(url=url, position=source.tell(), reason=damage.reason, detail=damage.detail)
                yield nothing(schema, reject)


def rows_of(block: bytes, offset: int, url: str, schema: pa.Schema) -> tuple[pa.RecordBatch, I64, list[Reject]]:
    """Rows of a block of whole lines.

    Args:
        block: Lines, each with its newline but perhaps the last.
        offset: Place of the block in the content.
        url: The file, for rejects.
        schema: Columns wanted, of JSON types only.

    Returns:
        Rows, the offset of each, and what could not be read.
    """
    data = np.frombuffer(block, np.uint8)
    begin = len(_MARK) if offset == 0 and block.startswith(_MARK) else 0
    starts, stops = _lines(data, begin)
    batches: list[pa.RecordBatch] = []
    good: list[I64] = []
    rejects: list[Reject] = []
    ranges = [(0, len(starts))]
    while ranges:
        first, last = ranges.pop()
        if first == last:
            continue
        batch = _parsed_at_once(block, data, starts[first:last], stops[first:last], schema)
        if batch is not None:
            batches.append(batch)
            good.append(starts[first:last])
        elif last - first > _FEW_LINES:
            edges = [first + (last - first) * number // _CUTS for number in range(_CUTS + 1)]
            ranges += reversed(list(itertools.pairwise(edges)))
        else:
            batch, kept, bad = _one_by_one(block, starts[first:last], stops[first:last], schema)
            batches.append(batch)
            good.append(kept)
            rejects += [
                Reject(url=url, position=offset + at, reason=unfit.reason, detail=unfit.detail) for at, unfit in bad
            ]
    if len(batches) != 1:
        whole = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
        batches = whole or [pa.RecordBatch.from_pylist([], schema)]
    return batches[0], np.concatenate([np.zeros(0, np.int64), *good]) + offset, rejects


def _lines(data: U8, begin: int) -> tuple[I64, I64]:
    """First byte and end of each line that is not blank, newlines and a carriage return before them left out."""
    ends = np.flatnonzero(data == _NEWLINE).astype(np.int64)
    if len(data) and data[-1] != _NEWLINE:
        ends = np.append(ends, len(data))
    starts = np.concatenate([np.full(min(1, len(ends)), begin, np.int64), ends[:-1] + 1])
    ends -= (ends > starts) & (data[np.maximum(ends, 1) - 1] == _RETURN)
    filled = ends > starts
    starts, ends = starts[filled], ends[filled]
    odd = np.flatnonzero(data[starts] != _OPEN)
    blank = [number for number in odd if not data[starts[number] : ends[number]].tobytes().strip(b" \t\r")]
    return np.delete(starts, blank), np.delete(ends, blank)


def _one_by_one(
    block: bytes, starts: I64, stops: I64, schema: pa.Schema
) -> tuple[pa.RecordBatch, I64, list[tuple[int, Unfit]]]:
    """Rows of some lines, where each starts, and what is wrong with the lines that are none."""
    objects: list[dict[str, Any]] = []
    places: list[int] = []
    bad: list[tuple[int, Unfit]] = []
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        try:
            objects.append(parse(block[start:stop]))
            places.append(start)
        except Unfit as unfit:
            bad.append((start, unfit))
    batch, unfit_objects = to_batch(objects, schema)
    misfits = {number for number, _ in unfit_objects}
    bad += [(places[number], unfit) for number, unfit in unfit_objects]
    kept = np.array([place for number, place in enumerate(places) if number not in misfits], np.int64)
    return batch, kept, sorted(bad, key=lambda entry: entry[0])


def _parsed_at_once(block: bytes, data: U8, starts: I64, stops: I64, schema: pa.Schema) -> pa.RecordBatch | None:
    """Rows of some lines in a row, or None where Arrow's parser does not take exactly one object from each.

    The parser takes a stream of values and does not mind how they lie on lines. But where every line begins with a
    brace and ends with one, a newline can only stand between two objects, so that equal counts prove one a line.
    """
    import pyarrow.json

    if (data[starts] != _OPEN).any() or (data[stops - 1] != _CLOSE).any():
        return None
    lines = pa.py_buffer(block).slice(int(starts[0]), int(stops[-1] - starts[0]))
    try:
        pa.Array.from_buffers(
            pa.large_string(), 1, [None, pa.py_buffer(np.array([0, lines.size], np.int64)), lines]
        ).validate(full=True)
        table = pyarrow.json.read_json(
            pa.BufferReader(lines),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=lines.size + 1),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
        return None
    batches = table.select(schema.names).to_batches()
    if len(batches) != 1 or batches[0].num_rows != len(starts):
        return None
    batch: pa.RecordBatch = batches[0]
    return batch


def _sample(source: Source, file: InputFile) -> Iterator[bytes]:
    """Lines of the first megabyte, one at least, and of a big plain file also from the middle and the end."""
    ranges: list[tuple[int, int | None]] = [(0, _SAMPLE_BYTES)]
    if not is_compressed(file.url) and file.num_bytes > 2 * _SAMPLE_BYTES:
        ranges += [(at, at + _SAMPLE_BYTES // 4) for at in (file.num_bytes // 2, file.num_bytes - _SAMPLE_BYTES // 4)]
    for start, stop in ranges:
        if start:
            source.seek(0)
        try:
            for offset, block in line_blocks(source, start, stop, _SAMPLE_BYTES // 4):
                if block is not None:
                    data = np.frombuffer(block, np.uint8)
                    begin = len(_MARK) if offset == 0 and block.startswith(_MARK) else 0
                    for first, last in zip(*_lines(data, begin), strict=True):
                        yield block[first:last]
        except Damage as damage:
            if source.tell() == 0:
                raise InputError(
                    f"{file.url} cannot be unpacked: {damage.detail}; it must be what its ending says: mend it, "
                    "rename it, or leave it out"
                ) from damage
