"""Raw columns of many files brought to one schema, and the rows that do not fit it found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataeff.arrow import I64
from dataeff.errors import InputError
from dataeff.inputs import Reject, Rows

Check = Callable[[int, int], bool]
"""Whether the rows from the first number to before the second are all good."""


def unify(schemas: Mapping[str, pa.Schema]) -> pa.Schema:
    """One schema for all files: columns in order of first appearance, types widened where they differ.

    Integers widen to doubles, null to anything, structs field by field. All text is large_string; dictionary, view,
    run-end and extension types become the plain type underneath.

    Args:
        schemas: Columns by file.

    Raises:
        InputError: Two files have types for a column that nothing holds both of, or one has a column twice.
    """
    found: dict[str, pa.Field] = {}
    first_file: dict[str, str] = {}
    for url, schema in schemas.items():
        _no_twins(url, schema)
        for column in schema:
            mine = pa.field(column.name, plain(column.type))
            known = found.setdefault(column.name, mine)
            if known.type != mine.type:
                try:
                    both = pa.unify_schemas([pa.schema([known]), pa.schema([mine])], promote_options="permissive")
                except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
                    raise InputError(
                        f"the column {column.name!r} is {known.type} in {first_file[column.name]} and {mine.type} in "
                        f"{url}; it must be of one type: convert one of them, rename it, or read them apart"
                    ) from error
                found[column.name] = both.field(0)
            if pa.types.is_null(known.type) or column.name not in first_file:
                first_file[column.name] = url
    return pa.schema(list(found.values()))


def _no_twins(url: str, schema: pa.Schema) -> None:
    twins = [name for name, count in Counter(schema.names).items() if count > 1]
    if twins:
        raise InputError(f"{url} has the column {twins[0]!r} more than once; names must differ: rename one of them")


def plain(kind: pa.DataType) -> pa.DataType:
    """The type underneath dictionaries, views, run ends and extensions, at any depth; all fields nullable."""
    if isinstance(kind, pa.BaseExtensionType):
        return plain(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain(kind.value_type)
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_list_view(kind):
        return pa.list_(plain(kind.value_type))
    if pa.types.is_large_list_view(kind):
        return pa.large_list(plain(kind.value_type))
    return _rebuilt(kind, plain)


def _rebuilt(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A nested type with its children changed and made nullable; another type as it is."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(child.name, change(child.type)) for child in kind])
    if pa.types.is_map(kind):
        return pa.map_(change(kind.key_type), change(kind.item_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("item", change(kind.value_type)), kind.list_size)
    if pa.types.is_large_list(kind):
        return pa.large_list(pa.field("item", change(kind.value_type)))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("item", change(kind.value_type)))
    return kind


def fit(batch: pa.RecordBatch, positions: I64, url: str, schema: pa.Schema, *, trusted: bool = False) -> Rows:
    """Bring a batch to `schema`; rows that do not fit, or hold text that is not UTF-8, become rejects.

    Args:
        batch: Columns as the file has them; of one name, the first counts.
        positions: Place of each row in the file, shape (rows,).
        url: The file, for rejects.
        schema: Columns wanted; those that the batch lacks are null.
        trusted: The batch is of our own making, its buffers and its text known to be sound.
    """
    num_rows = batch.num_rows
    first = {name: index for index, name in reversed(list(enumerate(batch.schema.names)))}
    problems: dict[int, tuple[str, str]] = {}
    columns: list[pa.Array] = []
    for field in schema:
        if field.name not in first or pa.types.is_null(field.type):
            columns.append(pa.nulls(num_rows, field.type))
            continue
        column, found = _fitted(batch.column(first[field.name]), field, trusted)
        columns.append(column)
        problems = found | problems
    made = pa.RecordBatch.from_arrays(columns, schema=schema) if columns else batch.select([])
    rejects = [
        Reject(url=url, position=int(positions[row]), reason=reason, detail=detail)
        for row, (reason, detail) in sorted(problems.items())
    ]
    if problems:
        good = np.ones(num_rows, bool)
        good[list(problems)] = False
        made, positions = made.filter(pa.array(good)), positions[good]
    return Rows(batch=made, positions=positions, rejects=tuple(rejects))


def _fitted(column: pa.Array, field: pa.Field, trusted: bool) -> tuple[pa.Array, dict[int, tuple[str, str]]]:
    """The column as `field` wants it, null in rows with a problem, and the problems by row: reason and detail."""
    not_text = ("invalid_utf8", f"column {field.name!r} holds bytes that are not UTF-8")
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    broken: list[int] = []
    if not trusted:
        damage = _structural_damage(column)
        if damage:
            problem = ("damaged_batch", f"column {field.name!r}: {damage}")
            return pa.nulls(len(column), field.type), dict.fromkeys(range(len(column)), problem)
        column, broken = _only_valid_text(column)
    made, misfits = _cast(column, field.type)
    wrong = ("wrong_type", f"column {field.name!r} is {column.type} here, and this row cannot be {field.type}")
    problem = not_text if _is_bytes(column.type) and not _is_bytes(field.type) else wrong
    return made, dict.fromkeys(misfits, problem) | dict.fromkeys(broken, not_text)


def batched(steps: Iterable[pa.RecordBatch], batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Join small batches, and cut big ones, to about `batch_bytes` of content each; order and rows stay.

    Args:
        steps: Batches of one schema.
        batch_bytes: Most content of a batch that has more than one row.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    for step in steps:
        ends = np.cumsum(row_bytes(step))
        start = 0
        while start < step.num_rows:
            before = int(ends[start - 1]) if start else 0
            stop = int(np.searchsorted(ends, before + batch_bytes - size, "right"))
            if stop <= start and not held:
                stop = start + 1
            if stop > start:
                held.append(step.slice(start, stop - start))
                size += int(ends[stop - 1]) - before
            if stop < step.num_rows:
                yield _joined(held)
                held, size = [], 0
            start = max(start, stop)
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def nothing(schema: pa.Schema, *rejects: Reject) -> Rows:
    """No rows, and what could not be read."""
    batch = pa.RecordBatch.from_pylist([], schema)
    return Rows(batch=batch, positions=np.zeros(0, np.int64), rejects=rejects)


def cut(rows: Rows, batch_bytes: int) -> Iterator[Rows]:
    """The rows in batches of at most `batch_bytes` where there is more than one row; rejects go with the first."""
    place, rejects = 0, rows.rejects
    for batch in batched([rows.batch], batch_bytes):
        yield Rows(batch=batch, positions=rows.positions[place : place + batch.num_rows], rejects=rejects)
        place, rejects = place + batch.num_rows, ()
    if rejects:
        yield Rows(batch=rows.batch, positions=rows.positions, rejects=rejects)


def row_bytes(batch: pa.RecordBatch) -> I64:
    """About how many bytes of content each row has, shape (rows,); a nested column counts by its average."""
    total = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        total += _value_bytes(column)
    return total


def _value_bytes(column: pa.Array) -> Any:
    """Bytes of each value, or one number for all."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        values = _value_bytes(column.dictionary)
        null = len(column.dictionary)
        indices = column.indices.cast(pa.int64()).fill_null(null).to_numpy()  # eight bits may not hold `null`
        return np.append(np.broadcast_to(values, null), 0)[indices]
    if kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        lengths = pc.binary_length(column)
        return (lengths.fill_null(0) if lengths.null_count else lengths).to_numpy()
    return -(-column.nbytes // max(1, len(column)))


def _structural_damage(column: pa.Array) -> str:
    """What is wrong with a column's buffers, text apart; empty where nothing is."""
    try:
        column.view(_as_bytes(column.type)).validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
        return str(error)
    except pa.ArrowNotImplementedError:
        return ""
    return ""


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    """The type with bytes where it has text."""
    swapped = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _as_bytes(kind.value_type), kind.ordered)
    if pa.types.is_list_view(kind):
        return pa.list_view(_as_bytes(kind.value_type))
    if pa.types.is_large_list_view(kind):
        return pa.large_list_view(_as_bytes(kind.value_type))
    return _rebuilt(swapped.get(kind, kind), _as_bytes)


def _only_valid_text(column: pa.Array) -> tuple[pa.Array, list[int]]:
    """The column with null for rows that hold text which is not UTF-8, and their numbers."""
    if _valid(column):
        return column, []
    flat = column.type in (pa.string(), pa.large_string(), pa.string_view())

    def check(start: int, stop: int) -> bool:
        part = column.slice(start, stop - start)
        return _valid(part if flat else part.take(pa.array(np.arange(len(part)))))

    return _without(column, broken := bad_rows(len(column), check)), broken


def _valid(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return False
    return True


def _without(column: pa.Array, rows: list[int]) -> pa.Array:
    """The column with null for some rows."""
    mask = np.zeros(len(column), bool)
    mask[rows] = True
    return column.take(pa.array(np.arange(len(column)), mask=mask))


def _cast(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    """The column as `kind`, null for rows that are not, and their numbers."""
    if column.type == kind:
        return column, []
    made = _cast_or_none(column, kind)
    if made is not None:
        return made, []

    def check(start: int, stop: int) -> bool:
        return _cast_or_none(column.slice(start, stop - start), kind) is not None

    misfits = bad_rows(len(column), check)
    made = _cast_or_none(_without(column, misfits), kind)
    return (made, misfits) if made is not None else (pa.nulls(len(column), kind), list(range(len(column))))


def _cast_or_none(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    try:
        if "list_view" in str(column.type):
            return pa.array(column.to_pylist(), kind)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_run_end_encoded(column.type):
            column = pc.run_end_decode(column)
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return None


def _is_bytes(kind: pa.DataType) -> bool:
    return any(check(kind) for check in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view))


def bad_rows(num_rows: int, check: Check) -> list[int]:
    """Rows that fail, found by halving: about b log n calls for b bad rows of n."""
    bad: list[int] = []
    ranges = [(0, num_rows)]
    while ranges:
        start, stop = ranges.pop()
        if start == stop or check(start, stop):
            continue
        if stop - start == 1:
            bad.append(start)
            continue
        middle = (start + stop) // 2
        ranges += [(middle, stop), (start, middle)]
    return bad
