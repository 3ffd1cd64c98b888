"""WebDataset tar: documents interleaved by the mixture, for readers that stream.

A document is two members next to each other, under a key that is the shard's name and the document's position:

    KEY.txt          its text, UTF-8, or
    KEY.tokens.npy   its token ids, one dimension of uint16 or uint32, where the corpus was tokenized
    KEY.json         `id`, `source`, `doc`, then the input's other columns

The default decoders of `webdataset` decode all three. JSON is strict: times are text (RFC 3339, UTC where a zone was
given), decimals text, durations whole numbers in the column's unit, binary base64, maps lists of pairs, and floats
that JSON lacks the texts "NaN", "Infinity" and "-Infinity".

Headers are plain ustar with no time and no owner, so equal documents give equal bytes. The last member,
`__checksums__`, is one that `webdataset` and `datasets` skip: it holds the counts and the CRC-32C of every 1 MiB
block of what stands before it, and ends with a seal, the CRC-32C of that member itself with the seal's own digits
taken as zeros. Two blocks of zeros end the archive. Each bit of the file is covered once.
"""

from __future__ import annotations

import base64
import functools
import io
import itertools
import json
import math
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal

import numpy as np
import pyarrow as pa

from dataeff.arrays import shape_ahead
from dataeff.arrow import text_views
from dataeff.checksums import BLANK_SEAL, REMEDY, BlockWriter, damaged_blocks, from_hex, seal, seal_holds, to_hex
from dataeff.errors import FormatError, PlanError
from dataeff.formats import ShardContext, ShardSummary
from dataeff.tokenizers import token_dtype

VERSION = 1
CHECKSUMS = "__checksums__"

_RECORD = tarfile.BLOCKSIZE
_END = bytes(2 * _RECORD)
_ROWS_AT_ONCE = 256
_FIRST = ("id", "source", "doc")
_CONTENT = ("text", "tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebdatasetTar:
    """Documents of all sources interleaved in tar files, as `webdataset` reads them: tokens, or else text."""

    shard_bytes: int = 256 << 20
    """Bytes of text or tokens that a shard holds, about; headers and JSON come on top."""

    suffix: ClassVar[str] = ".tar"
    grouping: ClassVar[Literal["source", "mixed", "part"]] = "mixed"
    content: ClassVar[Literal["tokens", "text", "either"]] = "either"

    def __post_init__(self) -> None:
        if not 1 <= self.shard_bytes <= 1 << 40:
            raise PlanError.out_of_range(self, "shard_bytes", f"in [1, {1 << 40}]")

    def num_shards(self, supply: int) -> int:
        """How many shards, 1 or more, hold `supply` bytes of content."""
        return max(1, -(-supply // self.shard_bytes))

    def write(self, sink: BinaryIO, batches: Iterable[pa.RecordBatch], context: ShardContext) -> ShardSummary:
        """Write one shard; see the module for its layout and `Format.write` for the contract.

        Raises:
            PlanError: A column has a type that JSON cannot hold; the message names it.
            FormatError: A token is not in the vocabulary.
        """
        blocks = BlockWriter(sink)
        prefix = re.sub(r"[^A-Za-z0-9_-]", "-", context.name)[-60:]
        documents = tokens = 0
        for batch in batches:
            for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                piece = batch.slice(start, _ROWS_AT_ONCE)
                for content, attributes in zip(_contents(piece, context), _attributes(piece), strict=True):
                    key = f"{prefix}-{documents:09d}"
                    if isinstance(content, np.ndarray):
                        _add(blocks, f"{key}.tokens.npy", _npy(content))
                        tokens += len(content)
                    else:
                        _add(blocks, f"{key}.txt", content)
                    _add(blocks, f"{key}.json", attributes)
                    documents += 1
        crcs = blocks.finish()
        facts = {
            "format": "webdataset_tar",
            "version": VERSION,
            "shard": context.name,
            "fingerprint": context.fingerprint,
            "vocab_size": context.vocab_size,
            "end_of_document": context.end_of_document,
            "documents": documents,
            "tokens": tokens,
            "data_bytes": blocks.num_bytes,
            "block_crc32c": to_hex(crcs),
        }
        sink.write(_checksum_member(facts))
        sink.write(_END)
        return ShardSummary(rows=documents, documents=documents, tokens=tokens, padding_tokens=0)

    def verify(self, path: Path) -> list[str]:
        """What is wrong with a shard, one sentence each: damage by block, then counts against the members."""
        try:
            last = _last_member(path)
            facts = json.loads(last[_RECORD:].splitlines()[0])
            version, data_bytes = facts["version"], facts["data_bytes"]
            whole = seal_holds(last, last.split()[-1]) and data_bytes + len(last) + len(_END) == path.stat().st_size
        except (OSError, ValueError, LookupError, TypeError) as error:
            return [f"it is damaged, cut short, or not written by dataeff ({error}); {REMEDY}"]
        if not whole:
            return [f"its member {CHECKSUMS} is damaged: the seal is broken; {REMEDY}"]
        if version != VERSION:
            return [f"it is version {version} of the format; this dataeff checks {VERSION}: use the one that wrote it"]
        damaged = damaged_blocks(path, data_bytes, from_hex(facts["block_crc32c"]))
        return damaged or _miscounts(path, facts)


def read_samples(path: str) -> Iterator[dict[str, Any]]:
    """A shard's documents in order, as `webdataset` decodes them: `__key__`, `json`, and `txt` or `tokens.npy`."""
    import webdataset

    yield from webdataset.WebDataset(path, shardshuffle=False, nodesplitter=None, workersplitter=None).decode()


def _contents(batch: pa.RecordBatch, context: ShardContext) -> Iterator[Any]:
    """Token ids of each document as an array, or its text as bytes."""
    if "tokens" in batch.schema.names:
        lists = batch.column("tokens")
        offsets, values = lists.offsets.to_numpy().tolist(), lists.values.to_numpy()
        dtype = token_dtype(context.vocab_size)
        used = values[offsets[0] : offsets[-1]]
        if len(used) and int(used.max()) >= context.vocab_size:
            raise FormatError(
                f"shard {context.name}: token {int(used.max())} is outside the vocabulary of {context.vocab_size}: "
                "another tokenizer made it; remove the folder `tokens` of the corpus and run the recipe again"
            )
        for start, stop in itertools.pairwise(offsets):
            yield values[start:stop].astype(dtype, copy=False)
    else:
        data, bounds = text_views(batch.column("text"))
        edges = bounds.tolist()
        for start, stop in itertools.pairwise(edges):
            yield data[start:stop].tobytes()


def _npy(ids: Any) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, ids, version=(1, 0), allow_pickle=False)
    return out.getvalue()


def _add(sink: BlockWriter, name: str, content: bytes) -> None:
    sink.write(_header(name, len(content)))
    sink.write(content)
    sink.write(bytes(-len(content) % _RECORD))


@functools.cache
def _blank_header() -> tuple[bytes, int]:
    """A ustar header of a regular file without name, size and checksum, and the sum of its other bytes."""
    info = tarfile.TarInfo()
    info.mode = 0o644
    header = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = bytes(12)
    header[148:156] = b" " * 8
    return bytes(header), sum(header)


def _header(name: str, num_bytes: int) -> bytes:
    """What `tarfile` writes for a short ASCII name, at a tenth of its cost."""
    blank, total = _blank_header()
    if num_bytes >= 1 << 33:
        raise PlanError(f"{name} has {num_bytes} bytes; a tar member holds under 2**33: use another format")
    name_field, size_field = name.encode("ascii"), b"%011o\0" % num_bytes
    checksum = b"%06o\0 " % (total + sum(name_field) + sum(size_field))
    return name_field.ljust(100, b"\0") + blank[100:124] + size_field + blank[136:148] + checksum + blank[156:]


def _checksum_member(facts: dict[str, Any]) -> bytes:
    """The last member: header, then a line of JSON, then the seal, padded so that it ends a record."""
    text = json.dumps(facts).encode() + b"\n"
    padding = b" " * (-(len(text) + len(BLANK_SEAL) + 1) % _RECORD)
    body = text + padding + BLANK_SEAL + b"\n"
    return seal(_header(CHECKSUMS, len(body)) + body)


def _last_member(path: Path) -> bytes:
    """The member of checksums, header included, found from the end of the file.

    Raises:
        ValueError: The file does not end in one.
    """
    with path.open("rb") as file:
        end = file.seek(0, io.SEEK_END) - len(_END)
        file.seek(max(0, end))
        if end < 0 or file.read() != _END:
            raise ValueError("it does not end as a tar does")
        wanted = _header(CHECKSUMS, 0)[:100]
        for start in range(end - 2 * _RECORD, -1, -_RECORD):
            file.seek(start)
            if file.read(len(wanted)) == wanted:
                file.seek(start)
                return file.read(end - start)
    raise ValueError(f"it has no member {CHECKSUMS}")


def _attributes(batch: pa.RecordBatch) -> Iterator[bytes]:
    """The JSON of each document."""
    names = [*_FIRST, *(name for name in batch.schema.names if name not in _FIRST + _CONTENT)]
    columns = [_json_values(batch.column(name), name) for name in names]
    for values in zip(*columns, strict=True):
        entry = dict(zip(names, values, strict=True))
        try:
            text = _dumps(entry)
        except ValueError:
            text = _dumps(_finite(entry))
        yield text.encode()


def _dumps(entry: Any) -> str:
    return json.dumps(entry, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_base64)


def _base64(value: Any) -> str:
    if not isinstance(value, bytes):
        raise PlanError(f"JSON cannot hold {value!r} ({type(value).__name__}): leave its column out when reading")
    return base64.b64encode(value).decode()


def _finite(value: Any) -> Any:
    """`value` with the floats that JSON lacks as texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value


def _json_values(column: pa.Array, name: str) -> list[Any]:
    """The column's values, with what Python's JSON lacks as text or whole numbers, at any depth; binary stays."""
    try:
        for leaf in (_utc, _json_leaf):
            column = column.cast(_mapped(column.type, leaf))
        return list(column.to_pylist())
    except (pa.ArrowException, ValueError) as error:
        raise PlanError(
            f"JSON cannot hold the column {name!r} of type {column.type} ({error}): leave it out when reading"
        ) from error


def _utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def _json_leaf(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pa.string()
    return pa.string() if pa.types.is_decimal(kind) else kind


def _mapped(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with `leaf` applied to each type in it that holds no other, and dictionaries as plain values."""
    types = pa.types
    if types.is_dictionary(kind):
        return _mapped(kind.value_type, leaf)
    if types.is_struct(kind):
        return pa.struct([field.with_type(_mapped(field.type, leaf)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_mapped(kind.key_type, leaf), _mapped(kind.item_type, leaf))
    if types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_mapped(kind.value_type, leaf)), kind.list_size)
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_mapped(kind.value_type, leaf)))
    if types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_mapped(kind.value_type, leaf)))
    return leaf(kind)


def _miscounts(path: Path, facts: dict[str, Any]) -> list[str]:
    """Counts of an undamaged shard against its members: a fault of whoever wrote it."""
    documents = tokens = 0
    with path.open("rb") as file:
        while file.tell() < facts["data_bytes"]:
            header = file.read(_RECORD)
            following = file.tell() + -(-int(header[124:135], 8) // _RECORD) * _RECORD
            extension = header[:100].rstrip(b"\0").partition(b".")[2]
            if extension == b"tokens.npy":
                tokens += math.prod(shape_ahead(file))
            documents += extension == b"json"
            file.seek(following)
    counted = {"documents": documents, "tokens": tokens}
    return [
        f"its member {CHECKSUMS} counts {facts[name]} {name}, but it holds {found}"
        for name, found in counted.items()
        if facts[name] != found
    ]
