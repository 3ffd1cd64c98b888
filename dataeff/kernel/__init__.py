"""Compiled code over arrays and Arrow buffers; numba lives here and nowhere else.

Compiled kernels are cached beside their sources, and numba takes a cached one for good as long as the file that
defines it is the same, even where another kernel that was compiled into it, or a constant, has changed. So what was
cached from other sources is removed here, before any kernel is loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

_STAMP = "sources.digest"


def forget_stale_code(sources: Path, cache: Path) -> bool:
    """Remove compiled code that was not made from these sources; returns whether the cache was of others.

    Safe with several processes at once: a file that another one has just made may go too, and is then made again.

    Args:
        sources: Folder of the kernels' Python files.
        cache: Folder in which numba keeps what it compiled from them (`*.nbi`, `*.nbc`).
    """
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(sources.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    stamp = cache / _STAMP
    with contextlib.suppress(OSError):
        if stamp.read_text() == digest.hexdigest():
            return False
    # Where the folder cannot be written numba does not keep its cache there either.
    with contextlib.suppress(OSError):
        cache.mkdir(exist_ok=True)
        for path in cache.glob("*.nb[ci]"):
            path.unlink(missing_ok=True)
        temporary = stamp.with_name(f".{_STAMP}.{os.getpid()}")
        temporary.write_text(digest.hexdigest())
        temporary.replace(stamp)
    return True


forget_stale_code(Path(__file__).parent, Path(__file__).parent / "__pycache__")
