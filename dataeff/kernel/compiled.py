"""How kernels are compiled: without the interpreter's lock, and kept on disk.

A compiled function that makes no array counts no references either. Numba would count them whenever an array is given
to another function or takes another name, with instructions that lock memory, several at each call: in a loop over
characters that took five times as long as the work itself. Who calls a kernel holds its arrays.
"""

from __future__ import annotations

from typing import Any

from numba import njit

compiled: Any = njit(nogil=True, cache=True, _nrt=False)
"""A kernel that makes no array, nor calls one that does."""
inlined: Any = njit(nogil=True, cache=True, inline="always", _nrt=False)
"""The same, made a part of whoever calls it."""
allocating: Any = njit(nogil=True, cache=True)
"""A kernel that makes arrays."""
