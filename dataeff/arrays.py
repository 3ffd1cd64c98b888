"""Arrays in `.npy` files.

Threads read headers one after another: NumPy parses them with Python's `ast`, which in Python 3.11 counts its depth for
all threads together and raises SystemError where two are at it, as happens when a collection of garbage falls into one.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

_ONE_AT_A_TIME = threading.Lock()


def mapped_array(path: Path) -> npt.NDArray[Any]:
    """An array, memory-mapped, read-only.

    Raises:
        OSError: It cannot be read.
        ValueError, EOFError: It is no array, or cut short.
    """
    with _ONE_AT_A_TIME:
        found: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return found


def shape_ahead(file: BinaryIO) -> tuple[int, ...]:
    """The shape of the array whose `.npy` content begins where a file stands, which moves behind the header."""
    with _ONE_AT_A_TIME:
        np.lib.format.read_magic(file)
        shape: tuple[int, ...] = np.lib.format.read_array_header_1_0(file)[0]
    return shape
