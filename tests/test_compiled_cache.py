"""Compiled code that was cached from other sources is never used."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from dataeff.kernel import forget_stale_code

INNER = "from numba import njit\n\n@njit(cache=True)\ndef inner(x):\n    return x + {step}\n"
OUTER = (
    "from numba import njit\nfrom kernels.inner import inner\n\n"
    "@njit(cache=True)\ndef outer(x):\n    return inner(x) * 10\n"
)


def test_cached_code_of_the_same_sources_stays_and_of_others_goes(tmp_path: Path):
    sources, cache = tmp_path / "kernels", tmp_path / "kernels/__pycache__"
    sources.mkdir()
    (sources / "one.py").write_text("a = 1")
    assert forget_stale_code(sources, cache)
    (cache / "one.f.nbi").write_bytes(b"index")
    (cache / "one.f.1.nbc").write_bytes(b"code")
    (cache / "one.cpython.pyc").write_bytes(b"bytecode")
    assert not forget_stale_code(sources, cache)
    assert len(list(cache.glob("*.nb[ci]"))) == 2
    (sources / "other.py").write_text("b = 2")
    assert forget_stale_code(sources, cache)
    assert [path.name for path in cache.glob("one*")] == ["one.cpython.pyc"]
    assert not forget_stale_code(sources, cache)


def test_a_changed_kernel_reaches_those_that_have_it_compiled_into_them(tmp_path: Path):
    package = tmp_path / "kernels"
    package.mkdir()
    shutil.copy(Path(forget_stale_code.__code__.co_filename), package / "__init__.py")
    (package / "outer.py").write_text(OUTER)
    results = []
    for step in (1, 2):
        (package / "inner.py").write_text(INNER.format(step=step))
        command = [sys.executable, "-c", "from kernels.outer import outer; print(outer(1))"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        results.append(done.stdout.strip())
    assert results == ["20", "30"]
