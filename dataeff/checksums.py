"""CRC-32C (Castagnoli) of buffers and files: whole, one a block, and of bytes that hold their own checksum.

A block is 1 MiB: large enough that checking runs at the speed of memory, small enough that damage is found on
first touch of the rows near it, and only they are lost.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c
import numpy as np

from dataeff.arrow import U32
from dataeff.errors import PlanError

BLOCK_BYTES = 1 << 20
SEAL_PREFIX = b"dataeff-seal-crc32c:"
BLANK_SEAL = SEAL_PREFIX + b"00000000"
"""Stands where a seal will be, with as many bytes."""

REMEDY = "restore the shard from a copy, or remove it and run the recipe again (finished shards are not redone)"

_READ_BYTES = 1 << 22


def crc32c(data: Any, before: int = 0) -> int:
    """CRC-32C of a contiguous bytes-like object, in [0, 2**32).

    Args:
        data: Anything with a buffer: bytes, memoryview, numpy array, Arrow buffer. Not copied.
        before: CRC-32C of the bytes that stand before `data`, to go on from.
    """
    return int(google_crc32c.extend(before, np.frombuffer(data, np.uint8)))


def crc32c_of_file(path: Path) -> int:
    """CRC-32C of a whole file, read a few megabytes at a time."""
    crc = 0
    with path.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            crc = crc32c(piece, crc)
    return crc


def block_checksums(data: Any, block_bytes: int = BLOCK_BYTES) -> U32:
    """CRC-32C of every block of a contiguous bytes-like object, shape (blocks,); the last block may be short."""
    view = np.frombuffer(data, np.uint8)
    crcs = [crc32c(view[start : start + block_bytes]) for start in range(0, len(view), block_bytes)]
    return np.array(crcs, np.uint32)


def file_block_checksums(path: Path, num_bytes: int, block_bytes: int = BLOCK_BYTES) -> U32:
    """CRC-32C of every block of the first `num_bytes` of a file, shape (blocks,), fewer where the file is shorter."""
    with path.open("rb") as file:
        return np.array([crc32c(block) for block in _blocks(file, num_bytes, block_bytes)], np.uint32)


def damaged_blocks(path: Path, num_bytes: int, wanted: U32) -> list[str]:
    """A sentence for each block of the first `num_bytes` of a file that has not the checksum in `wanted`."""
    found = file_block_checksums(path, num_bytes)
    return [
        f"block {block} of {len(wanted)} (from byte {block * BLOCK_BYTES}) has the CRC-32C {found[block]:08x}, "
        f"but {wanted[block]:08x} was written: it was damaged since; {REMEDY}"
        for block in np.flatnonzero(found != wanted)
    ]


def to_hex(crcs: U32) -> str:
    """Checksums as text, eight hexadecimal digits each, without separators."""
    return crcs.astype(">u4").tobytes().hex()


def from_hex(text: str) -> U32:
    """What `to_hex` wrote.

    Raises:
        ValueError: Not eight hexadecimal digits a checksum.
    """
    return np.frombuffer(bytes.fromhex(text), ">u4").astype(np.uint32)


def seal(data: bytes) -> bytes:
    """`data` with its one `BLANK_SEAL` filled in: the CRC-32C of `data` itself, blank seal included.

    Raises:
        PlanError: `data` holds no seal, or several.
    """
    if data.count(BLANK_SEAL) != 1 or data.count(SEAL_PREFIX) != 1:
        raise PlanError(
            f"a file must hold the text {SEAL_PREFIX.decode()!r} once, where its seal goes, but holds it "
            f"{data.count(SEAL_PREFIX)} times: rename the source or column whose name contains it"
        )
    return data.replace(BLANK_SEAL, _seal_text(crc32c(data)))


def seal_holds(data: bytes, found: bytes) -> bool:
    """Whether the seal `found`, which stands in `data`, is the one that `seal` put there; false after any bit flip."""
    if not found.startswith(SEAL_PREFIX) or data.count(found) != 1:
        return False
    return _seal_text(crc32c(data.replace(found, BLANK_SEAL))) == found


class BlockWriter(io.RawIOBase):
    """A sink that passes bytes on one block at a time, and takes the CRC-32C of each block.

    It counts from its first byte, keeps less than one block back until `finish`, and never closes what it writes to.
    """

    def __init__(self, sink: BinaryIO, block_bytes: int = BLOCK_BYTES) -> None:
        self._sink = sink
        self._block_bytes = block_bytes
        self._waiting = bytearray()
        self._crcs: list[int] = []
        self.num_bytes = 0
        """Bytes taken so far."""

    def writable(self) -> bool:
        """True: this is a sink."""
        return True

    def write(self, data: Any) -> int:
        """Take all of a bytes-like object; returns its size."""
        view = memoryview(data).cast("B")
        self.num_bytes += len(view)
        taken = min(len(view), self._block_bytes - len(self._waiting)) if self._waiting else 0
        self._waiting += view[:taken]
        if len(self._waiting) == self._block_bytes:
            self._pass_on(self._waiting)
            self._waiting = bytearray()
        whole = (len(view) - taken) // self._block_bytes * self._block_bytes
        self._pass_on(view[taken : taken + whole])
        self._waiting += view[taken + whole :]
        return len(view)

    def finish(self) -> U32:
        """Pass on what is left; returns the checksums of all blocks, shape (blocks,)."""
        self._pass_on(self._waiting)
        self._waiting = bytearray()
        return np.array(self._crcs, np.uint32)

    def _pass_on(self, ready: bytearray | memoryview) -> None:
        if ready:
            self._crcs += block_checksums(ready, self._block_bytes).tolist()
            self._sink.write(ready)


def _seal_text(crc: int) -> bytes:
    return SEAL_PREFIX + b"%08x" % crc


def _blocks(file: BinaryIO, num_bytes: int, block_bytes: int) -> Iterator[bytes]:
    left = num_bytes
    while left > 0 and (block := file.read(min(left, block_bytes))):
        left -= len(block)
        yield block
