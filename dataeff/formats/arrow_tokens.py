"""Arrow token shards: rows of a fixed number of tokens, memory-mapped, with every bit under a checksum.

A shard is one Arrow IPC file, uncompressed, with one record batch, that plain pyarrow reads. A row is
`sequence_length` tokens; documents are laid end to end and cut where a row is full, and the last row is filled with
the end-of-document token. Three columns, none with nulls:

    tokens     fixed_size_list<uint16 or uint32>   what to train on
    documents  list<struct<start, doc>>            documents of the row in order: where in the row each starts, which
    continued  uint32                              tokens of the row's first document that stand in earlier rows

With `start` a mask or position ids are made without looking for end-of-document tokens (position of token t = t -
start, plus `continued` for the row's first document), and `doc` leads back to the document store. A document
without tokens is counted but stands in no row.

For speed, the tokens of all rows are one buffer that begins at a multiple of 4096 bytes in the file, so that a
gather is one numpy `take`, and a row of 2048 uint16 is one page of the disk cache.

For safety, the schema's metadata (key `dataeff`, JSON) holds the CRC-32C of every 1 MiB block of that buffer. All
other bytes of the file (headers, boundaries, padding, footer) are under one seal in the record batch's metadata: the
CRC-32C of them all in order, the seal's own eight digits taken as zeros. Together they cover each bit of the file
once, and opening a shard checks the seal, so only blocks of tokens are left to be checked on first touch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataeff.arrow import I64, U32, U64
from dataeff.checksums import (
    BLANK_SEAL,
    BLOCK_BYTES,
    REMEDY,
    block_checksums,
    crc32c,
    from_hex,
    seal,
    seal_holds,
    to_hex,
)
from dataeff.errors import FormatError, PlanError
from dataeff.formats import ShardContext, ShardSummary
from dataeff.tokenizers import token_dtype

VERSION = 1
ALIGNMENT_BYTES = 4096
METADATA_KEY = b"dataeff"
MAX_SHARD_TOKENS = 1 << 30

Tokens: TypeAlias = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
_SEAL_KEY, _PADDING_KEY = b"seal", b"padding"
_PIECE = pa.struct([pa.field("start", pa.uint32(), nullable=False), pa.field("doc", pa.uint64(), nullable=False)])
# Whatever pyarrow, numpy or json make of a damaged header, before the seal was checked.
_UNREADABLE = (pa.ArrowException, OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowTokens:
    """Token rows in uncompressed Arrow IPC, one source a shard, memory-mappable, every bit under a checksum."""

    sequence_length: int = 2048
    shard_tokens: int = 1 << 25
    """Tokens that a shard holds, about; a shard is in memory once while it is written."""

    suffix: ClassVar[str] = ".arrow"
    grouping: ClassVar[Literal["source", "mixed", "part"]] = "source"
    content: ClassVar[Literal["tokens", "text", "either"]] = "tokens"

    def __post_init__(self) -> None:
        if not 1 <= self.sequence_length <= MAX_SHARD_TOKENS:
            raise PlanError.out_of_range(self, "sequence_length", f"in [1, {MAX_SHARD_TOKENS}]")
        if not self.sequence_length <= self.shard_tokens <= MAX_SHARD_TOKENS:
            raise PlanError.out_of_range(self, "shard_tokens", f"in [{self.sequence_length}, {MAX_SHARD_TOKENS}]")

    def num_shards(self, supply: int) -> int:
        """How many shards, 1 or more, hold `supply` tokens."""
        return max(1, -(-supply // self.shard_tokens))

    def write(self, sink: BinaryIO, batches: Iterable[pa.RecordBatch], context: ShardContext) -> ShardSummary:
        """Write one shard; see the module for its layout and `Format.write` for the contract.

        Raises:
            PlanError: Documents of several sources, without tokens, or too many of them for one shard.
            FormatError: A token is not in the vocabulary.
        """
        documents = _gather(batches, context, self.shard_tokens)
        num_tokens = documents.num_tokens
        padding = np.full(-num_tokens % self.sequence_length, context.end_of_document, documents.buffer.dtype)
        documents.append(padding)
        batch = _rows(documents, self.sequence_length)
        summary = ShardSummary(
            rows=batch.num_rows,
            documents=documents.num_documents,
            tokens=num_tokens,
            padding_tokens=len(padding),
        )
        token_data = documents.buffer[: documents.num_tokens]
        metadata = {
            "format": "arrow_tokens",
            "version": VERSION,
            "shard": context.name,
            "source": documents.source,
            "fingerprint": context.fingerprint,
            "sequence_length": self.sequence_length,
            "vocab_size": context.vocab_size,
            "end_of_document": context.end_of_document,
            "rows": summary.rows,
            "documents": summary.documents,
            "tokens": summary.tokens,
            "padding_tokens": summary.padding_tokens,
            "block_bytes": BLOCK_BYTES,
            "block_crc32c": to_hex(block_checksums(token_data)),
        }
        _emit(sink, batch.replace_schema_metadata({METADATA_KEY: json.dumps(metadata)}), token_data)
        return summary

    def verify(self, path: Path) -> list[str]:
        """What is wrong with a shard, one sentence each: damage by block, or counts that do not add up."""
        try:
            shard = open_shard(path)
        except FormatError as error:
            return [str(error).removeprefix(f"{path}: ")]
        return [*filter(None, map(shard.block_damage, range(shard.num_blocks))), *_miscounts(shard)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of one document in one row."""

    doc: int
    """The document: part << 32 | row in the document store."""
    start: int
    """First position in the row."""
    stop: int
    """One past the last position in the row."""
    skipped: int
    """Tokens of the document that stand in earlier rows: the position id at `start`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenShard:
    """A shard opened for reading. Arrays are read-only views of the mapped file, which stays mapped while any lives."""

    path: str
    tokens: Tokens
    """Shape (rows, sequence_length). Not checked until `check_block` or `check_all` was called."""
    row_offsets: npt.NDArray[np.int32]
    """Where the documents of each row begin in `starts` and `docs`, shape (rows + 1,)."""
    starts: U32
    """Position in its row at which each document, or its continuation, starts. Shape (pieces,)."""
    docs: U64
    """Which document: part << 32 | row in the document store. Shape (pieces,)."""
    continued: U32
    """Tokens of the row's first document that stand in earlier rows, shape (rows,)."""
    name: str
    source: str | None
    """The only source in it; None where it holds no document."""
    fingerprint: str
    """Of the run that made the tokens."""
    vocab_size: int
    end_of_document: int
    summary: ShardSummary
    block_bytes: int
    block_crc32c: U32
    """CRC-32C of every block of the token data as it was written, shape (blocks,)."""

    @property
    def num_blocks(self) -> int:
        """Blocks of token data; block i is bytes [i * block_bytes, (i + 1) * block_bytes) of `tokens`."""
        return len(self.block_crc32c)

    def block_damage(self, block: int) -> str | None:
        """What is wrong with a block of token data, or None."""
        start = block * self.block_bytes
        data = self.tokens.reshape(-1).view(np.uint8)[start : start + self.block_bytes]
        found, wanted = crc32c(data), int(self.block_crc32c[block])
        if found == wanted:
            return None
        row_bytes = self.tokens.shape[1] * self.tokens.itemsize
        rows = f"rows {start // row_bytes} to {(start + len(data) - 1) // row_bytes}"
        return (
            f"block {block} of {self.num_blocks} ({rows}) has the CRC-32C {found:08x}, but {wanted:08x} was written: "
            f"it was damaged since; {REMEDY}"
        )

    def check_block(self, block: int) -> None:
        """Check one block of token data.

        Raises:
            FormatError: It is not what was written; the message names shard, block, rows and remedy.
        """
        damage = self.block_damage(block)
        if damage:
            raise FormatError(f"{self.path}: {damage}")

    def check_all(self) -> None:
        """Check every block of token data.

        Raises:
            FormatError: The first that is not what was written.
        """
        for block in range(self.num_blocks):
            self.check_block(block)

    def spans(self, row: int) -> list[Span]:
        """The documents of a row, in order; padding at the end of the last row belongs to none."""
        low, high = int(self.row_offsets[row]), int(self.row_offsets[row + 1])
        last = row == len(self.tokens) - 1
        end = self.tokens.shape[1] - (self.summary.padding_tokens if last else 0)
        starts = self.starts[low:high].tolist()
        return [
            Span(doc=doc, start=start, stop=stop, skipped=0 if number else int(self.continued[row]))
            for number, (doc, start, stop) in enumerate(
                zip(self.docs[low:high].tolist(), starts, [*starts[1:], end], strict=True)
            )
        ]


def open_shard(path: Path | str) -> TokenShard:
    """Map a shard and check all of it but the token data.

    Raises:
        FormatError: It is damaged, cut short, of another version, or no token shard. The message says what to do.
    """
    try:
        with pa.memory_map(str(path)) as mapped:
            buffer = mapped.read_buffer()
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"{path}: it cannot be mapped ({error}); {REMEDY}") from error
    return read_shard(buffer, str(path))


def read_shard(buffer: pa.Buffer, path: str) -> TokenShard:
    """The shard in a buffer that holds a whole shard file. No copy of tokens or boundaries is made.

    Args:
        buffer: All bytes of the file.
        path: What to call it in errors.

    Raises:
        FormatError: As `open_shard`.
    """
    try:
        reader = pa.ipc.open_file(pa.BufferReader(buffer))
        metadata = json.loads(reader.schema.metadata[METADATA_KEY])
        version, is_ours = metadata["version"], metadata["format"] == "arrow_tokens"
    except _UNREADABLE as error:
        raise FormatError(f"{path}: it is damaged, cut short, or no token shard ({error}); {REMEDY}") from error
    if not is_ours or version != VERSION:
        raise FormatError(
            f"{path}: it is version {version} of the format {metadata['format']}; this dataeff reads version "
            f"{VERSION} of arrow_tokens: read it with the dataeff that wrote it, or run the recipe again"
        )
    try:
        batch, batch_metadata = reader.get_batch_with_custom_metadata(0)
        tokens = batch.column(0).buffers()[-1]
        start = tokens.address - buffer.address if tokens is not None and tokens.size else buffer.size
        stop = start + (tokens.size if tokens is not None else 0)
        others = buffer[:start].to_pybytes() + buffer[stop:].to_pybytes()
        whole = seal_holds(others, batch_metadata[_SEAL_KEY])
    except _UNREADABLE as error:
        raise FormatError(f"{path}: its header is damaged ({error}); {REMEDY}") from error
    if not whole:
        raise FormatError(
            f"{path}: its header, document boundaries or footer are damaged: the seal is broken; {REMEDY}"
        )
    return _shard(path, batch, metadata)


def _shard(path: str, batch: pa.RecordBatch, metadata: dict[str, Any]) -> TokenShard:
    """The shard whose batch and metadata are known to be what was written."""
    rows, length = metadata["rows"], metadata["sequence_length"]
    offsets, pieces = batch.column(1).buffers()[1], batch.column(1).flatten()
    return TokenShard(
        path=path,
        tokens=_view(batch.column(0).buffers()[-1], token_dtype(metadata["vocab_size"])).reshape(rows, length),
        row_offsets=_view(offsets, np.dtype(np.int32)) if rows else np.zeros(1, np.int32),
        starts=pieces.field(0).to_numpy(),
        docs=pieces.field(1).to_numpy(),
        continued=batch.column(2).to_numpy(),
        name=metadata["shard"],
        source=metadata["source"],
        fingerprint=metadata["fingerprint"],
        vocab_size=metadata["vocab_size"],
        end_of_document=metadata["end_of_document"],
        summary=ShardSummary(**{name: metadata[name] for name in ("rows", "documents", "tokens", "padding_tokens")}),
        block_bytes=metadata["block_bytes"],
        block_crc32c=from_hex(metadata["block_crc32c"]),
    )


def _view(buffer: pa.Buffer | None, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if buffer is None or buffer.size == 0:
        return np.zeros(0, dtype)
    return np.frombuffer(buffer, dtype)


@dataclass(slots=True, kw_only=True)
class _Documents:
    """Documents of a shard, laid end to end."""

    source: str | None
    buffer: Tokens
    """Tokens, the first `num_tokens` of them valid. Pages never written to cost no memory."""
    num_tokens: int
    num_documents: int
    lengths: list[I64]
    docs: list[U64]

    def append(self, tokens: Tokens) -> None:
        end = self.num_tokens + len(tokens)
        if end > len(self.buffer):
            grown = np.empty(min(end + end // 2, np.iinfo(np.int32).max), self.buffer.dtype)
            grown[: self.num_tokens] = self.buffer[: self.num_tokens]
            self.buffer = grown
        self.buffer[self.num_tokens : end] = tokens
        self.num_tokens = end


def _gather(batches: Iterable[pa.RecordBatch], context: ShardContext, expected_tokens: int) -> _Documents:
    dtype = token_dtype(context.vocab_size)
    gathered = _Documents(
        source=context.source,
        buffer=np.empty(expected_tokens + expected_tokens // 8 + 1024, dtype),
        num_tokens=0,
        num_documents=0,
        lengths=[],
        docs=[],
    )
    for batch in batches:
        if batch.num_rows == 0:
            continue
        gathered.source = _only_source(batch, gathered.source, context.name)
        lists = _token_lists(batch, context.name)
        offsets = lists.offsets.to_numpy()
        tokens = lists.values.to_numpy()[offsets[0] : offsets[-1]]
        if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < context.vocab_size:
            raise FormatError(
                f"shard {context.name}: token {int(tokens.max())} is outside the vocabulary of {context.vocab_size}: "
                "another tokenizer made it; remove the folder `tokens` of the corpus and run the recipe again"
            )
        if gathered.num_tokens + len(tokens) > 2 * MAX_SHARD_TOKENS - (1 << 20):
            raise PlanError(f"shard {context.name} holds over 2**31 tokens: make `shard_tokens` smaller")
        gathered.append(tokens)
        gathered.num_documents += batch.num_rows
        gathered.lengths.append(np.diff(offsets).astype(np.int64))
        gathered.docs.append(batch.column("doc").to_numpy())
    return gathered


def _only_source(batch: pa.RecordBatch, source: str | None, shard: str) -> str:
    found = pc.unique(batch.column("source")).to_pylist()
    if source is not None:
        found = [source, *(other for other in found if other != source)]
    if len(found) > 1:
        raise PlanError(
            f"shard {shard} got documents of {found[0]!r} and {found[1]!r}; arrow_tokens holds one source a shard: "
            "use webdataset_tar for interleaved sources"
        )
    return str(found[0])


def _token_lists(batch: pa.RecordBatch, shard: str) -> pa.Array:
    if "tokens" not in batch.schema.names:
        raise PlanError(f"shard {shard} got {batch.schema.names} without `tokens`: put a Tokenize stage before Shard")
    lists = batch.column("tokens")
    if lists.null_count or lists.values.null_count:
        raise PlanError(f"shard {shard} got a document whose tokens are null; they must be lists of ids")
    return lists


def _rows(documents: _Documents, length: int) -> pa.RecordBatch:
    """The record batch over the tokens of the documents, which fill whole rows of `length`."""
    rows = documents.num_tokens // length
    offsets, starts, docs, continued = _pieces(documents, rows, length)
    pieces = pa.StructArray.from_arrays([pa.array(starts), pa.array(docs)], fields=list(_PIECE))
    tokens = documents.buffer[: rows * length]
    values = pa.Array.from_buffers(pa.from_numpy_dtype(tokens.dtype), len(tokens), [None, pa.py_buffer(tokens)])
    row = pa.list_(pa.field("item", values.type, nullable=False), length)
    boundaries = pa.list_(pa.field("item", _PIECE, nullable=False))
    columns = {
        "tokens": pa.Array.from_buffers(row, rows, [None], children=[values]),
        "documents": pa.Array.from_buffers(boundaries, rows, [None, pa.py_buffer(offsets)], children=[pieces]),
        "continued": pa.array(continued),
    }
    schema = pa.schema([pa.field(name, column.type, nullable=False) for name, column in columns.items()])
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


def _pieces(documents: _Documents, rows: int, length: int) -> tuple[npt.NDArray[np.int32], U32, U64, U32]:
    """Documents cut at rows.

    Returns:
        `(offsets, starts, docs, continued)`: where the pieces of each row begin, shape (rows + 1,); where in its row
        each piece starts, and its document, shape (pieces,); tokens of each row's first document that stand in
        earlier rows, shape (rows,).
    """
    lengths = np.concatenate(documents.lengths or [np.zeros(0, np.int64)])
    docs = np.concatenate(documents.docs or [np.zeros(0, np.uint64)])[lengths > 0]
    lengths = lengths[lengths > 0]
    begins = np.cumsum(lengths) - lengths
    row_begins = np.arange(rows, dtype=np.int64) * length
    following = np.searchsorted(begins, row_begins)
    inside = np.append(begins, -1)[following] != row_begins
    cut = following[inside]
    starts = np.insert(begins, cut, row_begins[inside]) % length
    continued = np.zeros(rows, np.uint32)
    continued[inside] = row_begins[inside] - begins[cut - 1]
    offsets = np.append(following + np.cumsum(inside) - inside, len(starts)).astype(np.int32)
    return offsets, starts.astype(np.uint32), np.insert(docs, cut, docs[cut - 1]), continued


class _Around:
    """A sink that keeps what stands before and after one buffer, and only notes that buffer itself."""

    def __init__(self, token_data: Tokens) -> None:
        self._place = (token_data.ctypes.data, token_data.nbytes)
        self.found = False
        self.before = bytearray()
        self.after = bytearray()
        self.closed = False

    def write(self, data: Any) -> int:
        if isinstance(data, pa.Buffer) and (data.address, data.size) == self._place:
            self.found = True
        elif self.found:
            self.after += memoryview(data)
        else:
            self.before += memoryview(data)
        return len(memoryview(data))

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        self.closed = True


def _emit(sink: BinaryIO, batch: pa.RecordBatch, token_data: Tokens) -> None:
    """Write the batch as an IPC file with its token data aligned and all else sealed."""
    around = _around_tokens(batch, token_data, 0)
    if around.found:
        around = _around_tokens(batch, token_data, -len(around.before) % ALIGNMENT_BYTES)
    elif len(token_data):
        raise PlanError("this pyarrow copies buffers while it writes; token shards need pyarrow 19 or newer")
    sealed = seal(bytes(around.before + around.after))
    sink.write(sealed[: len(around.before)])
    if around.found:
        sink.write(cast("Any", token_data.view(np.uint8)))
        sink.write(sealed[len(around.before) :])


def _around_tokens(batch: pa.RecordBatch, token_data: Tokens, padding: int) -> _Around:
    """The bytes of the file before and after the token data, which is left out unless it is empty."""
    kept = _Around(token_data)
    metadata = {_SEAL_KEY: BLANK_SEAL, _PADDING_KEY: b" " * padding}
    with pa.ipc.new_file(kept, batch.schema) as writer:
        writer.write_batch(batch, custom_metadata=metadata)
    return kept


def _miscounts(shard: TokenShard) -> list[str]:
    """Counts of an undamaged shard that contradict each other: a fault of whoever wrote it."""
    summary, found = shard.summary, []
    rows, length = shard.tokens.shape
    if summary.tokens + summary.padding_tokens != rows * length:
        found.append(
            f"its metadata counts {summary.tokens} tokens and {summary.padding_tokens} of padding, "
            f"but {rows} rows of {length} are {rows * length}"
        )
    if rows and not 0 <= summary.padding_tokens < length:
        found.append(f"its metadata counts {summary.padding_tokens} padding tokens; a row has {length}")
    elif rows and (shard.tokens[-1, length - summary.padding_tokens :] != shard.end_of_document).any():
        found.append("the padding of its last row is not the end-of-document token")
    begun = len(shard.starts) - int(np.count_nonzero(shard.continued))
    if begun > summary.documents:
        found.append(f"its metadata counts {summary.documents} documents, but {begun} start in its rows")
    inside = np.delete(np.arange(len(shard.starts)), shard.row_offsets[:-1]) if rows else np.zeros(0, np.int64)
    if (shard.starts[shard.row_offsets[:-1]] != 0).any() or (shard.starts[inside] <= shard.starts[inside - 1]).any():
        found.append("the documents of a row do not start in rising order from position 0")
    return found
