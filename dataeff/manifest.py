"""Commit output so that it is either whole or absent, and recognise what is already there.

A file is written under a temporary name, flushed to the device, and renamed. A step's task commits by writing
its own small manifest last, so a present manifest with the right fingerprint is the resume point.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import inspect
import io
import json
import math
import os
import uuid
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path, PurePath
from typing import Any, cast

from dataeff.checksums import crc32c, crc32c_of_file
from dataeff.errors import FormatError, PlanError, StorageError

_FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up"}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """What a manifest says of one file."""

    num_bytes: int
    crc32c: str
    """CRC-32C of the whole file, eight hexadecimal digits."""


class Sink(io.RawIOBase):
    """A binary file opened for writing that counts and checksums what passes through it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self._crc = 0
        self._position = 0

    def writable(self) -> bool:
        """True: this is a sink."""
        return True

    def write(self, data: Any) -> int:
        """Write all of a bytes-like object; returns its size."""
        view = memoryview(data).cast("B")
        for start in range(0, len(view), 1 << 24):
            piece = view[start : start + (1 << 24)]
            self._crc = crc32c(piece, self._crc)
            written = 0
            while written < len(piece):
                written += self._file.write(piece[written:])
        self._position += len(view)
        return len(view)

    def tell(self) -> int:
        """Bytes written so far."""
        return self._position

    def commit(self) -> FileRecord:
        """Flush to the device and close."""
        os.fsync(self._file.fileno())
        self.close()
        return FileRecord(num_bytes=self._position, crc32c=f"{self._crc:08x}")

    def close(self) -> None:
        """Close without a promise that anything reached the device."""
        self._file.close()
        super().close()


def record_of(path: Path) -> FileRecord:
    """Size and checksum of a file that is there."""
    return FileRecord(num_bytes=path.stat().st_size, crc32c=f"{crc32c_of_file(path):08x}")


@contextlib.contextmanager
def committed(path: Path, records: dict[str, FileRecord] | None = None) -> Iterator[Sink]:
    """Open `path` for writing; it appears under its name, whole, only when the block ends without an error.

    Args:
        path: Final name; its folder is made.
        records: Where to note the file's size and checksum, under its name.

    Raises:
        StorageError: The disk is full or refuses; the partial file is removed.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        sink = Sink(temporary)
        try:
            yield sink
            record = sink.commit()
            temporary.replace(path)
        except BaseException:
            sink.close()
            temporary.unlink(missing_ok=True)
            raise
    if records is not None:
        records[path.name] = record


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals to write below `path` into StorageError."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageError(
                f"{_FULL[error.errno]} while writing {path}; nothing half-written was kept: "
                "free some space and run the same command again, finished parts are not redone"
            ) from error
        if error.errno in _REFUSED:
            raise StorageError(
                f"cannot write {path}: {error.strerror}; choose another --out or change its permissions"
            ) from error
        raise


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Commit a manifest: JSON with sorted keys."""
    with committed(path) as sink:
        sink.write((json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n").encode())


def read(path: Path) -> dict[str, Any] | None:
    """A manifest's content, or None where there is none.

    Raises:
        FormatError: The file is there and is not JSON.
    """
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return cast("dict[str, Any]", json.loads(raw))
    except ValueError as error:
        raise FormatError(f"{path} is not a manifest ({error}); remove it and run again") from error


def fingerprint(*values: Any) -> str:
    """Thirty-two hexadecimal digits that stand for all of `values`, equal wherever they are equal.

    Raises:
        PlanError: Something in `values` has no canonical form.
    """
    text = json.dumps([canonical(value) for value in values], sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def canonical(value: Any) -> Any:
    """`value` as plain JSON that two equal values share, in any process on any machine.

    Dataclasses are their class and fields, less those that are left out of comparison; a plain function is its
    source text, for a change of it changes what it does. Whatever could hide state (a closure, a lambda without
    source, an open file) has no such form.

    Raises:
        PlanError: `value`, or something in it, has no canonical form.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, bytes):
        return {"bytes": hashlib.blake2b(value, digest_size=16).hexdigest()}
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Enum):
        return [type(value).__qualname__, value.name]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            field.name: canonical(getattr(value, field.name)) for field in dataclasses.fields(value) if field.compare
        }
        return {"class": type(value).__qualname__, **fields}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise PlanError(f"a mapping in a recipe must have text keys, not {list(value)!r}")
        return {key: canonical(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [canonical(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((canonical(item) for item in value), key=repr)
    if inspect.isfunction(value):
        return _canonical_function(value)
    raise PlanError(
        f"{value!r} ({type(value).__qualname__}) in a recipe has no canonical form, so a finished part could not "
        "be recognised: use text, numbers, tuples, frozen dataclasses or plain functions"
    )


def _canonical_function(function: Any) -> Any:
    if function.__closure__ is not None or function.__name__ == "<lambda>":
        raise PlanError(
            f"the function {function.__qualname__} in a recipe is a lambda or closes over values, so a change of "
            "it could not be noticed: use a module-level function"
        )
    try:
        source = inspect.getsource(function)
    except OSError as error:
        raise PlanError(f"no source is found for the function {function.__qualname__} in a recipe") from error
    return {"function": function.__qualname__, "source": source, "defaults": canonical(function.__defaults__)}
