"""The run ledger: every nanosecond in exactly one bucket."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataeff.errors import FormatError
from dataeff.ledger import Ledger, Tags, read_ledger

BUCKETS = ["startup", "compile", "data_wait", "step", "evaluation", "checkpoint", "lost_to_restart", "idle"]
TAGS = Tags(run="run", attempt=0, team="core", project="proxies")


class Clock:
    def __init__(self) -> None:
        self.now = 12_345

    def __call__(self) -> int:
        return self.now


@given(actions=st.lists(st.tuples(st.sampled_from([*BUCKETS, "write", "during"]), st.integers(0, 10**12)), max_size=40))
def test_buckets_of_a_run_partition_its_time_to_the_nanosecond(tmp_path_factory, actions):
    clock, path = Clock(), tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    ledger = Ledger(path, TAGS, clock_ns=clock, unix_ns=10**18)
    open_bucket, spent = "startup", dict.fromkeys(BUCKETS, 0)
    for action, took in actions:
        if action == "during":
            with ledger.during("checkpoint"):
                clock.now += took
            spent["checkpoint"] += took
            continue
        clock.now += took
        spent[open_bucket] += took
        if action == "write":
            ledger.write()
        else:
            ledger.enter(action)
            open_bucket = action
    ledger.write("finished")
    windows, torn = read_ledger(path)
    assert torn == 0
    assert windows[0].start_ns == 10**18
    assert windows[-1].stop_ns - windows[0].start_ns == sum(spent.values())
    for one, two in itertools.pairwise(windows):
        assert one.stop_ns == two.start_ns
    for bucket, took in spent.items():
        assert sum(window.spent_ns.get(bucket, 0) for window in windows) == took
    assert [window.end for window in windows[:-1]] == [""] * (len(windows) - 1)
    assert windows[-1].end == "finished"
    assert windows[-1].tags == TAGS


def a_ledger(path):
    clock = Clock()
    ledger = Ledger(path, TAGS, clock_ns=clock, unix_ns=0)
    for step in range(3):
        clock.now += 100
        ledger.enter("step")
        ledger.step = step
        ledger.write()
    return path


def test_a_last_line_that_a_kill_cut_off_is_counted_and_the_rest_is_read(tmp_path):
    path = a_ledger(tmp_path / "ledger.jsonl")
    path.write_bytes(path.read_bytes()[:-20])
    windows, torn = read_ledger(path)
    assert ([window.step for window in windows], torn) == ([0, 1], 1)


def test_time_that_was_changed_by_hand_is_refused(tmp_path):
    path = a_ledger(tmp_path / "ledger.jsonl")
    path.write_text(path.read_text().replace('"step":100', '"step":90'))
    with pytest.raises(FormatError, match="line 2: its buckets sum to 90 ns, but it is 100 ns long"):
        read_ledger(path)


def test_a_line_of_something_else_is_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"event": "hello"}\n')
    with pytest.raises(FormatError, match="line 1 is no window of a ledger"):
        read_ledger(path)


def test_a_ledger_that_is_not_there_is_empty(tmp_path):
    assert read_ledger(tmp_path / "none") == ([], 0)
