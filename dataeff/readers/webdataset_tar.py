"""WebDataset tar files. A position is the sample's number in the file.

Members are grouped as the `webdataset` package does it: a sample is a run of regular members whose names agree up to
the first dot of the last part, and what follows the dot, in lower case, says what the member is. Names like
`__meta__` at the top are no samples.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataeff.columns import cut, fit, nothing
from dataeff.errors import InputError
from dataeff.inputs import MAX_ROW_BYTES, InputFile, Reject, Rows, Slice
from dataeff.json_rows import Unfit, infer, json_schema, parse, to_batch
from dataeff.streams import Damage, Source, is_compressed, opened

_SAMPLE_BYTES = 1 << 20
_UNPACKED_RATIO = 4
_NAME = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)")
_META = re.compile(r"__[^/]*__($|/)")
_TEXT = ("txt", "text")
_WANTED = (*_TEXT, "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebdatasetTar:
    """WebDataset tar: a sample's `.txt` is its text, its `.json` gives columns, its name is `key`.

    `.text` stands for `.txt`, and is second to it; where there is neither, a field `text` of the `.json` is the text.
    All other members are ignored, and counted nowhere.
    """

    storage_options: Mapping[str, Any] = field(default_factory=dict, compare=False)

    suffixes: ClassVar[tuple[str, ...]] = (".tar", ".tar.gz", ".tgz", ".tar.zst")

    def split(self, file: InputFile, target_bytes: int) -> list[Slice]:
        """See `Reader.split`; a tar has no index, so a slice is the file."""
        self.schema(file)
        ratio = _UNPACKED_RATIO if is_compressed(file.url) else 1
        return [Slice(file=file, start=0, stop=file.num_bytes, num_bytes=file.num_bytes * ratio)]

    def schema(self, file: InputFile) -> pa.Schema:
        """See `Reader.schema`; columns of the first megabyte of samples, one sample at least."""
        objects: list[dict[str, Any]] = []
        size = 0
        with opened(file, self.storage_options) as source:
            try:
                for sample in _samples(source):
                    size += sample.num_bytes
                    if isinstance(row := _row(sample), dict):
                        objects.append(row)
                    if size > _SAMPLE_BYTES:
                        break
            except Damage as damage:
                if not size:
                    raise InputError(
                        f"{file.url} is not a tar file of samples ({damage.detail}); copy it again, or leave it out"
                    ) from damage
        return infer(objects)

    def read(self, piece: Slice, schema: pa.Schema, batch_bytes: int) -> Iterator[Rows]:
        """See `Reader.read`."""
        url = piece.file.url
        group = _Group(url, schema)
        number = -1
        with opened(piece.file, self.storage_options) as source:
            try:
                for number, sample in enumerate(_samples(source)):
                    if group.num_bytes and group.num_bytes + sample.num_bytes > batch_bytes:
                        yield from cut(group.rows(), batch_bytes)
                        group = _Group(url, schema)
                    group.add(number, sample)
                damage = None
            except Damage as found:
                damage = found
        yield from cut(group.rows(), batch_bytes)
        if damage:
            yield nothing(schema, Reject(url=url, position=number + 1, reason=damage.reason, detail=damage.detail))


@dataclass(slots=True)
class _Sample:
    """Members of one sample that are wanted, by ending."""

    key: str
    members: dict[str, bytes] = field(default_factory=dict)
    endings: set[str] = field(default_factory=set)
    num_bytes: int = 0
    problem: Unfit | None = None


@dataclass(slots=True)
class _Group:
    """Samples on their way to a batch."""

    url: str
    schema: pa.Schema
    objects: list[dict[str, Any]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    bad: list[tuple[int, Unfit]] = field(default_factory=list)
    num_bytes: int = 0

    def add(self, number: int, sample: _Sample) -> None:
        """Take a sample in."""
        self.num_bytes += sample.num_bytes
        row = _row(sample)
        if isinstance(row, Unfit):
            self.bad.append((number, row))
        else:
            self.objects.append(row)
            self.places.append(number)

    def rows(self) -> Rows:
        """All samples taken in."""
        batch, misfits = to_batch(self.objects, json_schema(self.schema))
        unfit = {index for index, _ in misfits}
        places = np.array([place for index, place in enumerate(self.places) if index not in unfit], np.int64)
        rows = fit(batch, places, self.url, self.schema, trusted=True)
        bad = sorted([*self.bad, *((self.places[index], why) for index, why in misfits)], key=lambda entry: entry[0])
        rejects = [Reject(url=self.url, position=place, reason=why.reason, detail=why.detail) for place, why in bad]
        return Rows(batch=rows.batch, positions=rows.positions, rejects=(*rejects, *rows.rejects))


def _row(sample: _Sample) -> dict[str, Any] | Unfit:
    """Columns of a sample, or why it has none."""
    if sample.problem:
        return sample.problem
    try:
        row: dict[str, Any] = {"key": sample.key, "text": None}
        if "json" in sample.members:
            row |= parse(sample.members["json"]) | {"key": sample.key}
        text = next((sample.members[ending] for ending in _TEXT if ending in sample.members), None)
        if text is not None:
            row["text"] = text.decode()
    except Unfit as unfit:
        return Unfit(unfit.reason, f"{sample.key}.json: {unfit.detail}")
    except UnicodeDecodeError as error:
        return Unfit("invalid_utf8", f"{sample.key}: byte {error.start} of the text is not UTF-8 ({error.reason})")
    return row


def _samples(source: Source) -> Iterator[_Sample]:
    """Samples in order.

    Raises:
        Damage: The tar ends early; all samples known to be whole have been given.
    """
    sample: _Sample | None = None
    for member in _members(source):
        name = _NAME.fullmatch(member.name)
        if not member.isreg() or _META.match(member.name) or not name:
            continue
        key, ending = name[1], name[2].lower()
        if sample is None or sample.key != key:
            if sample:
                yield sample
            sample = _Sample(key=key, num_bytes=len(key))
        if ending in sample.endings:
            sample.problem = Unfit("duplicate_member", f"the sample {key} has two members {ending!r}")
        sample.endings.add(ending)
        if ending in _WANTED:
            if member.size > MAX_ROW_BYTES:
                sample.problem = Unfit("too_long", f"{member.name} has more than {MAX_ROW_BYTES} bytes")
            elif member.issparse():
                sample.problem = Unfit("sparse_member", f"{member.name} is stored with holes; pack it without")
            else:
                sample.members[ending] = source.read(member.size)
                sample.num_bytes += member.size
                if len(sample.members[ending]) < member.size:
                    raise Damage("truncated_file", f"the tar ends inside {member.name}")
    if sample:
        yield sample


def _members(source: Source) -> Iterator[tarfile.TarInfo]:
    """Members in order, the source before the data of each; `TarFile` itself takes damage for the end."""
    try:
        tar = tarfile.TarFile(fileobj=source, mode="r")  # type: ignore[arg-type]
    except (tarfile.TarError, ValueError, RecursionError) as error:
        raise Damage("damaged_file", f"not a tar: {error}") from error
    member = tar.firstmember  # type: ignore[attr-defined]
    while member is not None:
        after = tar.offset
        if member.size < 0 or after < source.tell():
            raise Damage("damaged_file", f"a header near byte {after} of the tar is not sound")
        yield member
        try:
            source.seek(after)
            member = tarfile.TarInfo.fromtarfile(tar)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            return
        except (tarfile.EmptyHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]
            raise Damage("truncated_file", "the tar ends without its end mark") from error
        except (tarfile.TarError, ValueError, RecursionError) as error:
            raise Damage("damaged_file", f"byte {after} of the tar: {error}") from error
