"""Text as Parquet for other tools: documents in corpus order, one row each, every bit under a checksum.

Columns are `id`, `text`, `source`, `doc`, then the input's others. Dictionaries are written out as plain values, so
that the bytes depend on the documents alone; rows are cut into row groups by their own bytes for the same reason.

Zstandard at level 1 keeps text at about 2.6 to 1 and above 250 MB/s a core; level 3 gains an eighth in size for half
the speed. Text gets neither a dictionary nor statistics, both of which cost more than they give on long values.

Pages carry Parquet's own CRC-32, which any reader can check. Beyond that the footer holds, under the key `dataeff`,
the counts and the CRC-32C of every 1 MiB block of what stands before the footer, and, under `dataeff-seal`, the
CRC-32C of the footer itself with the seal's own digits taken as zeros: each bit of the file is covered once.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataeff.arrow import CORE, I64
from dataeff.checksums import BLANK_SEAL, REMEDY, BlockWriter, damaged_blocks, from_hex, seal, seal_holds, to_hex
from dataeff.errors import PlanError
from dataeff.formats import ShardContext, ShardSummary

VERSION = 1
COMPRESSIONS = ("zstd", "gzip", "brotli", "lz4", "snappy", "none")

_FIRST = ("id", "text", "source", "doc")
_KEY, _SEAL_KEY = b"dataeff", b"dataeff-seal"
_PAGE_BYTES = 1 << 18
_PAGE_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TextParquet:
    """Documents in Parquet, in corpus order, for other tools: id, text, source, then every other column."""

    compression: str = "zstd"
    level: int | None = 1
    """Compression level; None for the codec's own default."""
    row_group_bytes: int = 32 << 20
    """Uncompressed bytes of a row group, about; memory while writing is a small multiple of it."""

    suffix: ClassVar[str] = ".parquet"
    grouping: ClassVar[Literal["source", "mixed", "part"]] = "part"
    content: ClassVar[Literal["tokens", "text", "either"]] = "text"

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSIONS:
            raise PlanError.out_of_range(self, "compression", f"one of {', '.join(COMPRESSIONS)}")
        if self.level is not None:
            if self.compression not in ("zstd", "gzip", "brotli"):
                raise PlanError.out_of_range(self, "level", f"None, for {self.compression} has no levels")
            codec = pa.Codec
            low, high = (
                codec.minimum_compression_level(self.compression),
                codec.maximum_compression_level(self.compression),
            )
            if not low <= self.level <= high:
                raise PlanError.out_of_range(self, "level", f"in [{low}, {high}] for {self.compression}")
        if not 1 <= self.row_group_bytes <= 1 << 30:
            raise PlanError.out_of_range(self, "row_group_bytes", f"in [1, {1 << 30}]")

    def num_shards(self, supply: int) -> int:
        """One: shards of this format follow the parts of the corpus."""
        return 1

    def write(self, sink: BinaryIO, batches: Iterable[pa.RecordBatch], context: ShardContext) -> ShardSummary:
        """Write one shard; see `Format.write` for the contract.

        Raises:
            PlanError: A column has a type that Parquet cannot hold; the message names it.
        """
        blocks, footer = BlockWriter(sink), io.BytesIO()
        switch = _Switch(blocks)
        groups = _row_groups(batches, self.row_group_bytes)
        group = next(groups)
        writer = self._writer(switch, group.schema)
        documents = text_bytes = 0
        try:
            while group is not None:
                writer.write_table(group, row_group_size=max(1, group.num_rows))
                documents += group.num_rows
                text_bytes += int(pc.sum(pc.binary_length(group.column("text"))).as_py() or 0)
                group = next(groups, None)
            crcs = blocks.finish()
        finally:
            switch.target = footer
        facts = {
            "format": "text_parquet",
            "version": VERSION,
            "shard": context.name,
            "fingerprint": context.fingerprint,
            "documents": documents,
            "text_bytes": text_bytes,
            "data_bytes": blocks.num_bytes,
            "block_crc32c": to_hex(crcs),
        }
        writer.add_key_value_metadata({_KEY: json.dumps(facts), _SEAL_KEY: BLANK_SEAL})
        writer.close()
        sink.write(seal(footer.getvalue()))
        return ShardSummary(rows=documents, documents=documents, tokens=0, padding_tokens=0)

    def _writer(self, sink: Any, schema: pa.Schema) -> pq.ParquetWriter:
        options = {
            "compression": self.compression,
            "compression_level": self.level,
            "use_dictionary": [field.name for field in schema if field.name not in ("id", "text", "doc")],
            "write_statistics": [field.name for field in schema if not _is_bytes(field.type)],
            "write_page_checksum": True,
            "data_page_size": _PAGE_BYTES,
            "write_batch_size": _PAGE_ROWS,
        }
        try:
            return pq.ParquetWriter(sink, schema, **options)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise PlanError(
                f"Parquet cannot hold these columns ({error}): {', '.join(map(str, schema))}; "
                "leave the column out when reading, or write webdataset_tar"
            ) from error

    def verify(self, path: Path) -> list[str]:
        """What is wrong with a shard, one sentence each: damage by block, then counts against the rows themselves."""
        try:
            metadata = pq.read_metadata(path).metadata or {}
            facts, sealed = json.loads(metadata[_KEY]), metadata[_SEAL_KEY]
            version, data_bytes = facts["version"], facts["data_bytes"]
            with path.open("rb") as file:
                file.seek(data_bytes)
                footer = file.read()
        except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, OverflowError) as error:
            return [f"it is damaged, cut short, or not written by dataeff ({error}); {REMEDY}"]
        if version != VERSION:
            return [f"it is version {version} of the format; this dataeff checks {VERSION}: use the one that wrote it"]
        if not seal_holds(footer, sealed):
            return [f"its footer is damaged: the seal is broken; {REMEDY}"]
        damaged = damaged_blocks(path, data_bytes, from_hex(facts["block_crc32c"]))
        return damaged or _miscounts(path, facts)


class _Switch(io.RawIOBase):
    """A sink whose target can be changed under the writer."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def writable(self) -> bool:
        """True: this is a sink."""
        return True

    def write(self, data: Any) -> int:
        """Pass all of a bytes-like object on."""
        return int(self.target.write(data))


def _row_groups(batches: Iterable[pa.RecordBatch], limit_bytes: int) -> Iterator[pa.Table]:
    """Documents in groups, each ended by the row that brings it to `limit_bytes`; an empty one where there are none."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = num_groups = 0
    schema = pa.schema([CORE.field(name) for name in _FIRST])
    for raw in batches:
        batch = _plain(raw)
        schema = batch.schema
        ends = np.cumsum(sum(map(_row_bytes, batch.columns), np.zeros(batch.num_rows, np.int64)))
        start, before = 0, 0
        while start < batch.num_rows:
            stop = int(np.searchsorted(ends, before + limit_bytes - waiting_bytes)) + 1
            waiting.append(batch.slice(start, stop - start))
            if stop > batch.num_rows:
                waiting_bytes += int(ends[-1]) - before
                break
            yield pa.Table.from_batches(waiting).combine_chunks()
            num_groups += 1
            start, before, waiting, waiting_bytes = stop, int(ends[stop - 1]), [], 0
    if waiting or not num_groups:
        yield pa.Table.from_batches(waiting, schema).combine_chunks()


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with columns in the order of the format, and no type whose layout depends on how batches were cut."""
    names = [*_FIRST, *(name for name in batch.schema.names if name not in _FIRST)]
    fields = [
        CORE.field(name) if name in _FIRST else pa.field(name, _plain_type(batch.schema.field(name).type))
        for name in names
    ]
    columns = [batch.column(field.name).cast(field.type) for field in fields]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The type with dictionaries replaced by their values, at any depth."""
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)), kind.list_size)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain_type(kind.value_type)))
    return kind


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)) or bool(
        pa.types.is_string(kind) or pa.types.is_binary(kind)
    )


def _row_bytes(array: pa.Array) -> I64:
    """Bytes of content of every row, shape (rows,), whatever buffers it is a slice of."""
    kind = array.type
    if _is_bytes(kind):
        lengths: I64 = pc.fill_null(pc.binary_length(array), 0).to_numpy().astype(np.int64)
        return lengths
    if pa.types.is_struct(kind):
        return sum(map(_row_bytes, array.flatten()), np.zeros(len(array), np.int64))
    if pa.types.is_fixed_size_list(kind):
        array = array.cast(pa.large_list(kind.value_type))
    if pa.types.is_map(kind):
        return _list_bytes(array, [array.keys, array.items])
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return _list_bytes(array, [array.values])
    try:
        width = -(-kind.bit_width // 8)
    except ValueError:
        width = 0
    return np.full(len(array), width, np.int64)


def _list_bytes(array: pa.Array, children: list[pa.Array]) -> I64:
    """Bytes of content of every list: a null one has none."""
    offsets = array.offsets.to_numpy()
    total = np.zeros(len(array), np.int64)
    for child in children:
        ends = np.append(0, np.cumsum(_row_bytes(child)))
        total += ends[offsets[1:]] - ends[offsets[:-1]]
    return np.where(array.is_valid().to_numpy(zero_copy_only=False), total, 0)


def _miscounts(path: Path, facts: dict[str, Any]) -> list[str]:
    """Counts of an undamaged shard against what reading it back gives, every page by its own checksum."""
    documents = text_bytes = 0
    try:
        for batch in pq.ParquetFile(path, page_checksum_verification=True).iter_batches(1024):
            documents += batch.num_rows
            text_bytes += int(_row_bytes(batch.column("text")).sum())
    except (pa.ArrowException, OSError, LookupError) as error:
        return [f"it cannot be read back ({error}); {REMEDY}"]
    return [
        f"its footer counts {facts[name]} {name}, but it holds {found}"
        for name, found in (("documents", documents), ("text_bytes", text_bytes))
        if facts[name] != found
    ]
