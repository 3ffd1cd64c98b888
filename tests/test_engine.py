from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dataeff.engine import Engine
from dataeff.errors import InputError, PlanError


def square(value: int) -> int:
    return value * value


def fails_on_seven(value: int) -> int:
    if value == 7:
        raise InputError("seven is bad")
    return value


def dies_once(marker: Path) -> int:
    """Kill the worker process the first time it is called with a marker."""
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def test_every_item_comes_back_once_with_its_index():
    with Engine(threads=2) as engine:
        assert sorted(engine.map(square, range(100))) == [(index, index * index) for index in range(100)]
        assert list(engine.map(square, [])) == []


def test_the_first_failure_is_raised_as_it_was_and_the_engine_goes_on():
    with Engine(threads=2) as engine:
        with pytest.raises(InputError, match="seven is bad"):
            list(engine.map(fails_on_seven, range(50)))
        assert len(list(engine.map(square, range(10)))) == 10


def test_a_task_whose_worker_was_killed_is_run_again(tmp_path: Path):
    with Engine(workers=1, threads=1) as engine:
        results = dict(engine.map(dies_once, [tmp_path / "a", tmp_path / "b"]))
    assert set(results) == {0, 1}
    assert os.getpid() not in results.values()


def test_an_address_where_nobody_listens_is_a_clear_error():
    with pytest.raises(PlanError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        Engine("tcp://127.0.0.1:9", timeout_s=1)


TWO_ENGINES = """
import sys
from dataeff.engine import Engine
with Engine(threads=1) as one, Engine(threads=1) as other:
    assert dict(one.map(abs, [-1])) == dict(other.map(abs, [1]))
assert "distributed.dashboard.scheduler" not in sys.modules
"""


def test_engines_beside_each_other_say_nothing_and_load_no_dashboard():
    done = subprocess.run([sys.executable, "-W", "always:Port", "-c", TWO_ENGINES], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


RUN = "import sys; sys.argv[1:] = ['run', 'absent.py', '--out', 'absent']; from dataeff.__main__ import main; main()"
LATER = "10000"
PURGE = "MIMALLOC_PURGE_DELAY"


@pytest.mark.parametrize(
    ("code", "chosen", "expected"),
    [
        ("from dataeff import Pipeline", {}, LATER),
        (RUN, {}, LATER),
        ("from dataeff import Pipeline", {PURGE: "77"}, "77"),
        ("from dataeff.profile import Profiler", {}, "1000"),
    ],
    ids=["library", "command", "chosen", "profiler"],
)
def test_arrow_keeps_freed_memory_where_corpora_are_made_and_nowhere_else(
    code: str, chosen: dict[str, str], expected: str
) -> None:
    others = {name: value for name, value in os.environ.items() if name != PURGE}
    environment = {**others, "MIMALLOC_VERBOSE": "1", **chosen}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert re.findall(r"option 'purge_delay': (\d+)", done.stderr) == [expected]
