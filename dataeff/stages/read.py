"""Read: which files a corpus is made of, and how their rows become documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataeff import files
from dataeff.arrow import CORE_NAMES, PART_SHIFT
from dataeff.columns import unify
from dataeff.errors import InputError, PlanError
from dataeff.inputs import InputFile, Reject, Rows, Slice


@dataclass(frozen=True, slots=True, init=False)
class Read:
    """Read documents from files.

    Args:
        inputs: Files, folders, globs or fsspec URLs; several may be given.
        text_column: Column that holds the text.
        id_column: Column that holds the document's id; where it is absent the id is `file:position`.
        source_column: Column that holds the source; where it is absent the source is the file's name up to its
            first dot.
        source: One source for all documents, whatever the files say.
        reader: Name of the reader (`dataeff list readers`); None picks by file ending.
        storage_options: Options for fsspec, such as credentials; they do not enter the fingerprint.
        max_bad_share: Share of rows, and of files, that may be bad before the run stops, in [0, 1].
        part_bytes: Bytes of content a part; a part is what one task does and what a restart repeats.
        batch_bytes: Bytes of content in memory at once, a thread.
    """

    inputs: tuple[str, ...]
    text_column: str
    id_column: str
    source_column: str
    source: str | None
    reader: str | None
    storage_options: Mapping[str, Any] = field(compare=False)
    max_bad_share: float
    part_bytes: int
    batch_bytes: int

    def __init__(
        self,
        *inputs: str,
        text_column: str = "text",
        id_column: str = "id",
        source_column: str = "source",
        source: str | None = None,
        reader: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        max_bad_share: float = 0.01,
        part_bytes: int = 32 << 20,
        batch_bytes: int = 4 << 20,
    ) -> None:
        values = {**locals()}
        del values["self"]
        values["inputs"] = tuple(str(entry) for entry in inputs)
        values["storage_options"] = dict(storage_options or {})
        for name in Read.__slots__:
            object.__setattr__(self, name, values[name])
        if not inputs:
            raise PlanError("Read needs at least one file, folder, glob or URL")
        if not 0 <= max_bad_share <= 1:
            raise PlanError.out_of_range(self, "max_bad_share", "in [0, 1]")
        if not 1 <= batch_bytes <= part_bytes:
            raise PlanError.out_of_range(self, "batch_bytes", f"in [1, part_bytes = {part_bytes}]")

    def definition(self) -> dict[str, Any]:
        """What determines the documents made from given slices."""
        names = ("text_column", "id_column", "source_column", "source", "reader", "batch_bytes")
        return {name: getattr(self, name) for name in names}


def part_name(number: int) -> str:
    """Prefix of the files of a part."""
    return f"part-{number:06d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The slices that one task reads."""

    number: int
    root: str
    """What all input files' names begin with; the rest of a name stands in a made id."""
    pieces: tuple[Slice, ...]

    @property
    def name(self) -> str:
        """Prefix of the part's files."""
        return part_name(self.number)

    @property
    def num_bytes(self) -> int:
        """Estimated bytes of content."""
        return sum(piece.num_bytes for piece in self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a `Read` found: its parts, the columns that documents carry, the files that cannot be opened."""

    parts: tuple[Part, ...]
    schema: pa.Schema
    unreadable: tuple[Reject, ...]
    num_files: int


def find_inputs(read: Read, first_part: int) -> Inputs:
    """List the files, look at their columns, and cut them into parts by bytes, in order of their names.

    Raises:
        InputError: Nothing is found, a column that was asked for is in no file, or too many files cannot be opened.
    """
    found = files.find(read.inputs, read.storage_options)
    slices: list[Slice] = []
    schemas: dict[str, pa.Schema] = {}
    unreadable: list[Reject] = []
    for file in found:
        reader = files.reader_for(file, read.reader, read.storage_options)
        try:
            schemas[file.url] = reader.schema(file)
            slices.extend(reader.split(file, read.part_bytes))
        except InputError as error:
            unreadable.append(Reject(url=file.url, position=-1, reason="unreadable_file", detail=str(error)))
    if len(unreadable) > read.max_bad_share * len(found):
        raise InputError(
            f"{len(unreadable)} of {len(found)} input files cannot be read, the first: {unreadable[0].detail}; mend or "
            "leave them out, or raise `max_bad_share`"
        )
    schema = unify(schemas)
    if read.text_column not in schema.names and slices:
        raise InputError(
            f"no input file has the text column {read.text_column!r}; they have {', '.join(schema.names)}: "
            "name one of them with `Read(text_column=...)`"
        )
    root = _common_folder([file.url for file in found])
    schema = pa.schema([_as_text(column) if column.name == read.text_column else column for column in schema])
    parts = tuple(
        Part(number=first_part + index, root=root, pieces=tuple(pieces))
        for index, pieces in enumerate(_group(slices, read.part_bytes))
    )
    return Inputs(parts=parts, schema=schema, unreadable=tuple(unreadable), num_files=len(found))


def extra_fields(read: Read, schema: pa.Schema) -> list[pa.Field]:
    """Columns that documents carry beside the core ones.

    Raises:
        InputError: The input uses one of our own names for something else.
    """
    used = {read.text_column, read.id_column} | ({read.source_column} if read.source is None else set())
    extras = [column for column in schema if column.name not in used]
    clash = sorted(column.name for column in extras if column.name in CORE_NAMES)
    if clash:
        raise InputError(
            f"the input's column {clash[0]!r} would hide our own of that name; say what it is with "
            f"`Read({clash[0] if clash[0] != 'doc' else 'id'}_column=...)`, or rename it"
        )
    return extras


def documents(
    read: Read, part: Part, schema: pa.Schema, extras: pa.Schema
) -> Iterator[tuple[pa.RecordBatch, tuple[Reject, ...]]]:
    """Document batches of a part, without the edits, and what could not be read.

    Args:
        read: How to read.
        part: What to read.
        schema: Columns of the input files, unified.
        extras: Extra columns of the whole corpus; those that these files lack are null.
    """
    row = 0
    for piece in part.pieces:
        reader = files.reader_for(piece.file, read.reader, read.storage_options)
        for rows in reader.read(piece, schema, read.batch_bytes):
            batch, rejects = _as_documents(
                read,
                piece.file,
                piece.file.url.removeprefix(part.root),
                rows,
                extras,
                (part.number << PART_SHIFT) + row,
            )
            row += batch.num_rows
            yield batch, rejects


def _as_documents(
    read: Read, file: InputFile, name: str, rows: Rows, extras: pa.Schema, first_doc: int
) -> tuple[pa.RecordBatch, tuple[Reject, ...]]:
    batch = rows.batch
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    missing = np.asarray(pc.is_null(columns[read.text_column]))
    rejects = rows.rejects
    positions = rows.positions
    if missing.any():
        rejects += tuple(
            Reject(url=file.url, position=int(at), reason="missing_text", detail=f"{read.text_column} is null")
            for at in positions[missing]
        )
        keep = pa.array(~missing)
        columns = {name: column.filter(keep) for name, column in columns.items()}
        positions = positions[~missing]
    num_rows = len(positions)
    made_id = pc.binary_join_element_wise(pa.scalar(name), pa.array(positions).cast(pa.string()), ":")
    stem = name.rpartition("/")[2].partition(".")[0]
    made_source = pa.array([stem or "unnamed"] * num_rows, pa.string())
    if read.source is not None:
        source = pa.array([read.source] * num_rows, pa.string())
    else:
        source = _filled(columns.get(read.source_column), made_source)
    arrays = [
        pa.array(np.arange(first_doc, first_doc + num_rows, dtype=np.uint64)),
        _filled(columns.get(read.id_column), made_id),
        source,
        columns[read.text_column].cast(pa.large_string()),
    ]
    arrays += [
        columns[name] if name in columns else pa.nulls(num_rows, extras.field(name).type) for name in extras.names
    ]
    names = ["doc", "id", "source", "text", *extras.names]
    return pa.RecordBatch.from_arrays(arrays, names=names), rejects


def _as_text(column: pa.Field) -> pa.Field:
    """Text stored as bytes is text all the same; the reader rejects rows that are not UTF-8."""
    is_bytes = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    return column.with_type(pa.large_string()) if is_bytes else column


def _common_folder(urls: list[str]) -> str:
    low, high = min(urls, default=""), max(urls, default="")
    length = next((at for at, pair in enumerate(zip(low, high, strict=False)) if len(set(pair)) > 1), len(low))
    return low[: low.rfind("/", 0, length) + 1]


def _filled(column: pa.Array | None, otherwise: pa.Array) -> pa.Array:
    if column is None:
        return otherwise
    text = column.cast(pa.string())
    return text if text.null_count == 0 else pc.coalesce(text, otherwise)


def _group(slices: list[Slice], part_bytes: int) -> Iterator[list[Slice]]:
    group: list[Slice] = []
    size = 0
    for piece in slices:
        if group and size + piece.num_bytes > part_bytes:
            yield group
            group, size = [], 0
        group.append(piece)
        size += piece.num_bytes
    if group:
        yield group
