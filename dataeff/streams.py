"""Files as streams of bytes: local or remote, plain, gzip or Zstandard, with damage kept apart from the end."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from dataeff.errors import InputError
from dataeff.inputs import MAX_ROW_BYTES, InputFile

_GZIP = (".gz", ".tgz")
_ZSTD = (".zst",)
_READ_BYTES = 1 << 18
_ZSTD_STEP_BYTES = 1 << 12
"""A Zstandard block of 4 bytes may hold 128 KiB, so a step is small to bound what one can unfold to."""
_ZSTD_WINDOW_BYTES = 1 << 31


class Damage(Exception):  # noqa: N818
    """The content of a file ends here, and not as it should; all before has been handed out."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Source(Protocol):
    """Bytes in order. `read` gives fewer than asked for only at the end."""

    def read(self, size: int, /) -> bytes:
        """The next `size` bytes, fewer at the end, none after it.

        Raises:
            Damage: There is no more, but there should be.
        """

    def seek(self, position: int, /) -> int:
        """Go forward to `position`, counted in content."""

    def tell(self) -> int:
        """Bytes of content before the next."""

    def close(self) -> None:
        """Close the file underneath."""


def is_local(url: str) -> bool:
    """Whether the URL is a plain local path."""
    return "://" not in url and "::" not in url


def is_compressed(url: str) -> bool:
    """Whether the file's ending says that its content is packed."""
    return url.lower().endswith((*_GZIP, *_ZSTD))


@contextlib.contextmanager
def input_errors(url: str) -> Iterator[None]:
    """Turn what keeps a file from being read into InputError."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{url} is not there; it must exist for as long as the run lasts: check the path") from error
    except PermissionError as error:
        raise InputError(f"{url} may not be read by this user; give the permission, or leave the file out") from error
    except IsADirectoryError as error:
        raise InputError(f"{url} is a folder; it must be a file: rename it, or leave it out") from error
    except (OSError, ImportError) as error:
        raise InputError(f"{url} cannot be read: {error}; check the storage, then run again") from error


@contextlib.contextmanager
def open_raw(file: InputFile, storage_options: Mapping[str, Any]) -> Iterator[Any]:
    """The file as it lies there, seekable, opened natively where it is local.

    Raises:
        InputError: It cannot be opened or read.
    """
    with input_errors(file.url):
        if is_local(file.url):
            with Path(file.url).open("rb") as raw:
                yield raw
        else:
            import fsspec

            system, path = fsspec.core.url_to_fs(file.url, **storage_options)  # lives as long as the file is in use
            with contextlib.closing(system.open(path, "rb")) as raw:
                yield raw


@contextlib.contextmanager
def opened(file: InputFile, storage_options: Mapping[str, Any]) -> Iterator[Source]:
    """The file's content, unpacked as its ending says.

    Raises:
        InputError: It cannot be opened or read.
    """
    with open_raw(file, storage_options) as raw:
        yield Unpacked(raw, file.url) if is_compressed(file.url) else cast(Source, raw)


class Unpacked:
    """The content of a gzip or Zstandard file of any number of members or frames.

    Args:
        raw: The packed file.
        url: Its name, whose ending says how it is packed.
    """

    def __init__(self, raw: Any, url: str) -> None:
        self._pieces = _gunzip(raw) if url.lower().endswith(_GZIP) else _unzstd(raw)
        self._left = b""
        self._position = 0
        self._damage: Damage | None = None

    def read(self, size: int, /) -> bytes:
        """See `Source.read`."""
        found = [self._left[:size]]
        missing = size - len(found[0])
        self._left = self._left[size:]
        while missing and self._damage is None:
            try:
                piece = next(self._pieces, b"")
            except Damage as damage:
                self._damage = damage
                break
            if not piece:
                break
            found.append(piece[:missing])
            self._left = piece[missing:]
            missing -= len(found[-1])
        content = b"".join(found)
        if not content and size and self._damage is not None:
            raise self._damage
        self._position += len(content)
        return content

    def seek(self, position: int, /) -> int:
        """Go forward to `position`."""
        while self._position < position and self.read(min(_READ_BYTES, position - self._position)):
            pass
        return self._position

    def tell(self) -> int:
        """Bytes of content handed out."""
        return self._position

    def close(self) -> None:
        """Nothing: the packed file is the opener's."""


def read_all(source: Source) -> bytes | None:
    """All that is left, or None where that is more than a row may have."""
    pieces: list[bytes] = []
    size = 0
    while piece := source.read(_READ_BYTES):
        size += len(piece)
        if size > MAX_ROW_BYTES:
            return None
        pieces.append(piece)
    return b"".join(pieces)


def _gunzip(raw: Any) -> Iterator[bytes]:
    """Unpack members one after the other; zero bytes after the last are padding."""
    unpacker, inside, members = zlib.decompressobj(31), False, 0
    while packed := raw.read(_READ_BYTES):
        while packed:
            if members and not inside:
                packed = packed.lstrip(b"\0")
                if not packed:
                    break
            inside = True
            before = unpacker.copy()
            try:
                content = unpacker.decompress(packed, _READ_BYTES)
            except zlib.error as error:
                yield from _salvaged(before, packed)
                raise Damage("damaged_file", f"not sound gzip: {error}") from error
            if content:
                yield content
            packed = unpacker.unconsumed_tail
            if unpacker.eof:
                packed = unpacker.unused_data
                unpacker, inside, members = zlib.decompressobj(31), False, members + 1
    if inside:
        if content := unpacker.flush():
            yield content
        raise Damage("truncated_file", "the gzip data ends inside a member")


def _salvaged(unpacker: Any, packed: bytes) -> Iterator[bytes]:
    """What can be unpacked before the byte at which the unpacker fails."""
    with contextlib.suppress(zlib.error):
        for at in range(len(packed)):
            if content := unpacker.decompress(packed[at : at + 1]):
                yield content


def _unzstd(raw: Any) -> Iterator[bytes]:
    """Unpack frames one after the other."""
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    unpacker, inside = decompressor.decompressobj(), False
    while packed := raw.read(_READ_BYTES):
        view = memoryview(packed)
        for start in range(0, len(view), _ZSTD_STEP_BYTES):
            step = bytes(view[start : start + _ZSTD_STEP_BYTES])
            while step:
                inside = True
                try:
                    content = unpacker.decompress(step)
                except zstandard.ZstdError as error:
                    raise Damage("damaged_file", f"not sound Zstandard: {error}") from error
                if content:
                    yield content
                step = b""
                if unpacker.eof:
                    step = unpacker.unused_data
                    unpacker, inside = decompressor.decompressobj(), False
    if inside:
        raise Damage("truncated_file", "the Zstandard data ends inside a frame")


def line_blocks(source: Source, start: int, stop: int | None, block_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    """Cut content into blocks of whole lines.

    A line belongs to the range in which it begins. A line ends with its newline; the last may lack it.

    Args:
        source: Content, before its first byte.
        start: Offset of the range.
        stop: End of the range; None for the end of the content.
        block_bytes: Size of a block, where no single line is longer.

    Yields:
        Offset of a block, and the block; None in its place where a line is longer than `MAX_ROW_BYTES`.

    Raises:
        Damage: After the last whole line before the damage.
    """
    offset = _first_line(source, start)
    if offset is None:
        return
    pending: list[bytes] = []
    size = 0
    while stop is None or offset < stop:
        piece = source.read(block_bytes)
        if not piece:
            if size > MAX_ROW_BYTES:
                yield offset, None
            elif size:
                yield offset, b"".join(pending)
            return
        cut = piece.rfind(b"\n") + 1
        if stop is not None and cut and offset + size + cut >= stop:
            cut = piece.find(b"\n", max(0, stop - 1 - offset - size)) + 1
        if not cut:
            size += len(piece)
            pending = [*pending, piece] if size <= MAX_ROW_BYTES else []
            continue
        first = piece.find(b"\n") + 1
        if size + first > MAX_ROW_BYTES:
            yield offset, None
            offset, size, pending = offset + size + first, 0, []
            piece, cut = piece[first:], cut - first
        if cut:
            yield offset, b"".join([*pending, piece[:cut]])
        offset += size + cut
        rest = piece[cut:]
        pending, size = ([rest], len(rest)) if rest else ([], 0)


def _first_line(source: Source, start: int) -> int | None:
    """Go to the first line that begins at `start` or after it; None where there is none."""
    if start == 0:
        return 0
    source.seek(start - 1)
    offset = start - 1
    while piece := source.read(1 << 16):
        found = piece.find(b"\n")
        if found >= 0:
            source.seek(offset + found + 1)
            return offset + found + 1
        offset += len(piece)
    return None
