"""Headers of arrays, which threads read while garbage is collected."""

from __future__ import annotations

import gc
import io
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from dataeff.arrays import mapped_array, shape_ahead

NUM_THREADS = 4


@pytest.fixture
def collecting() -> Iterator[None]:
    """Garbage is collected all the time, and other threads run meanwhile, as Dask's own callback lets them."""
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()

    def let_others_run(phase: str, info: dict[str, int]) -> None:
        time.sleep(0)

    gc.callbacks.append(let_others_run)
    gc.set_threshold(7)
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*thresholds)
    gc.callbacks.remove(let_others_run)


@pytest.mark.usefixtures("collecting")
def test_threads_read_headers_while_garbage_is_collected(tmp_path: Path) -> None:
    wanted = np.arange(6, dtype=np.uint64).reshape(2, 3)
    path = tmp_path / "some.npy"
    np.save(path, wanted)
    content = path.read_bytes()

    def read(_: int) -> None:
        for _ in range(100):
            np.testing.assert_equal(mapped_array(path)[1], wanted[1])
            assert shape_ahead(io.BytesIO(content)) == (2, 3)

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        list(pool.map(read, range(NUM_THREADS)))


def test_an_array_is_mapped_and_read_only(tmp_path: Path) -> None:
    np.save(tmp_path / "some.npy", np.zeros((2, 0), np.uint64))
    found = mapped_array(tmp_path / "some.npy")
    assert found.shape == (2, 0)
    assert not found.flags.writeable
    (tmp_path / "cut.npy").write_bytes((tmp_path / "some.npy").read_bytes()[:20])
    with pytest.raises(ValueError, match="EOF"):
        mapped_array(tmp_path / "cut.npy")
