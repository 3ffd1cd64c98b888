"""What ledgers and accounts add up to: whose time, what it went into, what is wrong with it, and what is printed."""

from __future__ import annotations

import csv
import itertools
import json
import os
from dataclasses import asdict, replace

import pyarrow.parquet as pq
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from dataeff.accounts import Allocation
from dataeff.commands.ledger import ledger
from dataeff.efficiency.goodput import HOUR_NS, LEVELS, spending
from dataeff.errors import InputError, PlanError
from dataeff.ledger import Tags, Window, counted_once, read_ledger, read_ledgers
from dataeff.prices import Price, stated
from tests.test_sacct import HEADER, row

S = 10**9
START = 1_790_000_000 * S
TAGS = Tags(run="run", attempt=0, team="core", project="proxies")


def windows(*spent: dict[str, float], tags: Tags = TAGS, start_ns: int = START, end: str = "", steps: int = 1):
    """One after the other, from buckets in seconds; each that has time for steps does some."""
    found, step = [], 0
    for number, buckets in enumerate(spent):
        spent_ns = {bucket: round(seconds * S) for bucket, seconds in buckets.items()}
        step += steps if "step" in buckets else 0
        stop_ns = start_ns + sum(spent_ns.values())
        last = end if number == len(spent) - 1 else ""
        found.append(Window(tags=tags, start_ns=start_ns, stop_ns=stop_ns, spent_ns=spent_ns, step=step, end=last))
        start_ns = stop_ns
    return found


def given_to(run="run", start_s=0.0, length_s=3600.0, devices=8, **more) -> Allocation:
    start_ns = START + round(start_s * S)
    what = {"job": "1", "attempt": 0, "team": "core", "project": "", "accelerator": "H100", **more}
    return Allocation(run=run, start_ns=start_ns, stop_ns=start_ns + round(length_s * S), devices=devices, **what)


def flat(accelerator: str) -> Price:
    return stated(2.0)


def written(directory, entries) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(asdict(entry)) + "\n" for entry in entries)
    (directory / "ledger.jsonl").write_text(lines)


def test_lines_of_before_there_were_candidates_and_devices_still_read(tmp_path):
    (window,) = windows({"step": 1})
    content = asdict(window)
    for tag in ("candidate", "devices", "accelerator"):
        del content["tags"][tag]
    path = tmp_path / "ledger.jsonl"
    path.write_text(json.dumps(content) + "\n")
    assert read_ledger(path) == ([window], 0)
    assert (window.tags.candidate, window.tags.devices, window.tags.accelerator) == ("", 1, "")


def test_a_run_that_waits_half_of_its_time_has_half_a_goodput():
    """ml-goodput 0.2.3 calls these 200 steps, a second of waiting and one of computing each, 99.75 % good."""
    spent = spending(windows(*[{"data_wait": 1, "step": 1}] * 200, end="finished"))
    assert spent.total.goodput == 0.5
    assert spent.total.ettr == 0.5
    assert spent.total.waste_ns == {"data_wait": 200 * S}


def test_one_slow_rank_holds_all_of_them():
    slow = windows(*[{"data_wait": 3, "step": 1}] * 5, tags=replace(TAGS, rank=0, world=4), end="finished")
    fast = [
        window
        for rank in (1, 2, 3)
        for window in windows(
            *[{"data_wait": 1, "step": 3}] * 5, tags=replace(TAGS, rank=rank, world=4), end="finished"
        )
    ]
    total = spending([*slow, *fast]).total
    assert total.held_ns == 3 * 5 * 2 * S
    assert total.goodput == 0.25
    assert total.waste_ns == {"data_wait": 30 * S, "held_by_slowest": 30 * S}


def test_ranks_are_compared_only_between_steps_that_all_of_them_wrote():
    often = windows(*[{"data_wait": 1, "step": 1}] * 4, tags=replace(TAGS, rank=0, world=2), end="finished")
    seldom = windows(*[{"data_wait": 3, "step": 1}] * 2, tags=replace(TAGS, rank=1, world=2), end="finished", steps=2)
    assert spending([*often, *seldom]).total.held_ns == 2 * S
    later = [replace(window, step=window.step + 100) for window in seldom]
    assert spending([*often, *later]).total.held_ns == 0


def test_steps_that_were_lost_are_no_goodput_and_a_break_between_attempts_is_not_allocated():
    first = windows({"startup": 10}, {"step": 90}, end="failed")
    second = windows(
        {"lost_to_restart": 40}, {"step": 60}, tags=replace(TAGS, attempt=1), start_ns=START + 200 * S, end="finished"
    )
    total = spending([*first, *second]).total
    assert total.allocated_ns == 200 * S
    assert total.goodput == 150 / 200
    assert total.ettr == 150 / 300
    assert total.num_failed == 0


def test_gaps_within_an_attempt_are_named_and_count_as_not_accounted_for():
    first, second = windows({"step": 10}), windows({"step": 10}, start_ns=START + 25 * S, end="finished")
    spent = spending([*first, *second])
    (gap,) = spent.faults
    assert (gap.kind, gap.key.run, gap.attempt, gap.rank) == ("gap", "run", 0, 0)
    assert (gap.start_ns, gap.stop_ns, gap.length_ns) == (START + 10 * S, START + 25 * S, 15 * S)
    assert spent.total.spent_ns == {"step": 20 * S, "unaccounted": 15 * S}


def test_what_was_told_twice_counts_once_and_is_named():
    first = windows({"step": 10})
    second = windows({"data_wait": 2, "step": 8}, start_ns=START + 6 * S, end="finished")
    kept, (overlap,) = counted_once([*first, *second])
    assert (overlap.kind, overlap.start_ns, overlap.stop_ns) == ("overlap", START + 6 * S, START + 10 * S)
    assert kept[1].start_ns == START + 10 * S
    assert kept[1].spent_ns == {"data_wait": 1.2 * S, "step": 4.8 * S}
    assert spending([*first, *second]).total.allocated_ns == 16 * S
    within = [*windows({"step": 10}), *windows({"step": 3}, start_ns=START + 2 * S)]
    assert spending(within).total.allocated_ns == 10 * S


def test_attempts_that_overlap_are_named_too():
    first = windows({"step": 10})
    second = windows({"step": 10}, tags=replace(TAGS, attempt=1), start_ns=START + 9 * S, end="finished")
    (overlap,) = spending([*first, *second]).faults
    assert (overlap.kind, overlap.attempt, overlap.length_ns) == ("overlap", 1, S)


def test_clocks_that_go_back_are_named():
    backwards = replace(windows({"step": 1})[0], stop_ns=START - 5 * S, spent_ns={"step": -5 * S})
    spent = spending([backwards])
    (fault,) = spent.faults
    assert (fault.kind, fault.length_ns) == ("clock", 5 * S)
    assert spent.total.allocated_ns == 0
    later, earlier = windows({"step": 1}), windows({"step": 1}, start_ns=START - 100 * S, end="finished")
    kinds = {fault.kind: fault.length_ns for fault in spending([*later, *earlier]).faults}
    assert kinds == {"clock": 100 * S, "gap": 99 * S}


def test_a_rank_that_fell_silent_holds_its_devices_until_the_others_stop():
    long = windows({"step": 100}, tags=replace(TAGS, rank=0, world=3), end="failed")
    short = windows({"step": 30}, tags=replace(TAGS, rank=1, world=3))
    spent = spending([*long, *short])
    assert [(fault.kind, fault.rank, fault.length_ns) for fault in spent.faults] == [
        ("gap", 1, 70 * S),
        ("missing_rank", 2, 100 * S),
    ]
    assert spent.total.spent_ns == {"step": 130 * S, "unaccounted": 170 * S}
    assert spent.total.allocated_ns == 300 * S
    assert spent.total.ettr == 130 / 300


def test_devices_of_a_rank_count_and_dollars_go_by_accelerator():
    some = windows({"step": 3600}, tags=replace(TAGS, devices=8, accelerator="H100"), end="finished")
    other = windows({"step": 3600}, tags=replace(TAGS, run="two", devices=4, accelerator="L4"), end="failed")
    rates = {"H100": 3.0, "L4": 0.5}
    spent = spending([*some, *other], by="run", price=lambda name: stated(rates[name]))
    assert [(group.names[2], group.device_hours, group.usd) for group in spent.groups] == [
        ("run", 8.0, 24.0),
        ("two", 4.0, 2.0),
    ]
    assert (spent.total.usd, spent.total.num_failed, spent.total.failed_usd) == (26.0, 1, 2.0)
    partly = spending([*some, *other], price=lambda name: stated(3.0) if name == "H100" else None)
    assert (partly.total.usd, partly.unpriced) == (None, ("L4",))


@pytest.mark.parametrize("end", ["failed", "stopped"])
def test_runs_that_failed_or_were_stopped_early_have_their_cost_told(end):
    ended = windows({"startup": 600}, {"step": 1200}, end=end)
    good = windows({"step": 3600}, tags=replace(TAGS, run="good"), end="finished")
    total = spending([*ended, *good], price=flat).total
    told = {"failed": (total.num_failed, total.failed_ns, total.failed_usd),
            "stopped": (total.num_stopped, total.stopped_ns, total.stopped_usd)}  # fmt: skip
    assert told.pop(end) == (1, 1800 * S, 1.0)
    assert list(told.values()) == [(0, 0, 0.0)]


def test_candidates_of_a_project_are_told_apart():
    tags = [replace(TAGS, run=f"run{n}", candidate=name) for n, name in enumerate("aab")]
    spent = spending([w for n, tag in enumerate(tags) for w in windows({"step": 1 + n}, tags=tag)], by="candidate")
    assert [(group.names, group.num_runs) for group in spent.groups] == [
        (("core", "proxies", "a"), 2),
        (("core", "proxies", "b"), 1),
    ]


def test_devices_without_a_step_for_long_are_named_and_evaluations_are_not():
    steps = [{"step": 100}] * 3
    hung = windows(*steps, {"idle": 2000}, end="failed")
    spent = spending(hung)
    (zombie,) = spent.zombies
    assert (zombie.stuck_ns, zombie.step, zombie.rank) == (2000 * S, 3, 0)
    assert (zombie.start_ns, zombie.stop_ns) == (START + 300 * S, START + 2300 * S)
    assert spending(hung, zombie_s=2001).zombies == ()
    assert spending(windows(*steps, {"evaluation": 9000, "idle": 10}, end="finished")).zombies == ()
    assert spending(windows({"startup": 2000}, *steps)).zombies[0].step == 0


def test_a_long_gap_is_a_zombie_and_so_is_a_rank_that_fell_silent():
    gap = [*windows({"step": 10}), *windows({"step": 5}, {"step": 5}, start_ns=START + 4000 * S)]
    gap[1:] = [replace(window, step=window.step + 1) for window in gap[1:]]
    assert [zombie.stuck_ns for zombie in spending(gap).zombies] == [3990 * S]
    silent = [
        *windows({"step": 10}, {"step": 8000}, tags=replace(TAGS, world=2), end="failed"),
        *windows({"step": 10}, tags=replace(TAGS, rank=1, world=2)),
    ]
    (zombie,) = spending(silent).zombies
    assert (zombie.rank, zombie.stuck_ns) == (1, 8000 * S)


def test_an_account_says_what_was_allocated_and_the_ledger_what_for():
    inside = windows({"startup": 600}, {"step": 2400}, tags=replace(TAGS, devices=8), start_ns=START + 300 * S)
    job = given_to(queued_ns=1800 * S, end="failed")
    spent = spending(inside, [job], by="run", price=flat)
    (run,) = spent.groups
    assert run.names == ("core", "proxies", "run")
    assert run.allocated_ns == job.device_ns == 8 * HOUR_NS
    assert run.spent_ns == {"startup": 8 * 600 * S, "step": 8 * 2400 * S, "unaccounted": 8 * 600 * S}
    assert run.goodput == 2400 / 3600
    assert run.ettr == 2400 / (3600 + 1800)
    assert (run.usd, run.num_failed, run.queued_wall_ns) == (16.0, 1, 1800 * S)


def test_the_end_that_the_ledger_tells_goes_before_that_of_the_account():
    inside = windows({"step": 3600}, tags=replace(TAGS, devices=8), end="finished")
    assert spending(inside, [given_to(end="failed")]).total.num_failed == 0


def test_an_attempt_that_died_before_it_wrote_belongs_to_its_job():
    inside = windows({"step": 3600}, tags=replace(TAGS, devices=8), end="finished")
    spent = spending(inside, [given_to(), given_to(start_s=-7200, length_s=60, attempt=0, end="failed")], by="run")
    (run,) = spent.groups
    assert run.allocated_ns == 8 * 3660 * S
    assert run.spent_ns["unaccounted"] == 8 * 60 * S
    assert run.ettr == 3600 / (7200 + 3600)


def test_an_account_of_another_team_or_time_is_another_run():
    inside = windows({"step": 3600}, tags=replace(TAGS, devices=8), end="finished")
    for other in (given_to(team="vision"), given_to(start_s=10**6), given_to(project="else")):
        spent = spending(inside, [other], by="run")
        assert sorted(group.allocated_ns for group in spent.groups) == [8 * HOUR_NS] * 2
        assert spent.unmatched == (TAGS.key,)
        assert spent.total.measured_ns == 8 * HOUR_NS


def test_time_that_only_the_ledger_tells_counts_and_is_named():
    early = windows({"step": 4000}, tags=replace(TAGS, devices=8), start_ns=START - 400 * S, end="finished")
    spent = spending(early, [given_to()])
    assert spent.total.allocated_ns == 8 * 4000 * S
    assert spent.outside == {TAGS.key: 8 * 400 * S}
    many = windows({"step": 3600}, tags=replace(TAGS, devices=16), end="finished")
    spent = spending(many, [given_to()])
    assert spent.total.allocated_ns == 16 * HOUR_NS
    assert spent.outside == {TAGS.key: 8 * HOUR_NS}


def test_an_allocation_that_nobody_attends_is_a_zombie():
    inside = windows({"step": 600}, tags=replace(TAGS, devices=8), end="failed")
    spent = spending(inside, [given_to(length_s=7200)])
    (zombie,) = spent.zombies
    assert (zombie.rank, zombie.devices, zombie.stuck_ns, zombie.step) == (None, 8, 6600 * S, 1)
    spent = spending([], [given_to(length_s=7200)])
    assert spent.zombies == ()
    assert (spent.total.goodput, spent.total.ettr) == (None, None)


def test_without_a_ledger_each_job_is_a_trial_and_its_last_attempt_tells():
    jobs = [
        given_to(job="1", end="failed"),
        given_to(job="1", start_s=9000, attempt=1, end="finished"),
        given_to(job="2", end="failed"),
        given_to(job="3", end="stopped"),
    ]
    total = spending([], jobs).total
    assert (total.num_runs, total.num_failed, total.failed_ns) == (1, 1, 8 * HOUR_NS)
    assert (total.num_stopped, total.stopped_ns) == (1, 8 * HOUR_NS)


BUCKETS = ["startup", "compile", "data_wait", "step", "evaluation", "checkpoint", "lost_to_restart", "idle"]


@given(
    content=st.lists(
        st.tuples(
            st.builds(
                Tags,
                run=st.sampled_from("ab"),
                attempt=st.integers(0, 2),
                rank=st.integers(0, 2),
                world=st.just(3),
                team=st.sampled_from(["", "x", "y"]),
                candidate=st.sampled_from(["", "c"]),
                devices=st.integers(0, 8),
            ),
            st.integers(0, 10**6),
            st.dictionaries(st.sampled_from(BUCKETS), st.integers(0, 10**6), max_size=4),
            st.integers(0, 9),
            st.sampled_from(["", "finished", "failed", "stopped"]),
        ),
        max_size=30,
    ),
    jobs=st.lists(
        st.builds(
            given_to,
            run=st.sampled_from("abc"),
            start_s=st.integers(0, 10**6).map(lambda ns: ns / S),
            length_s=st.integers(0, 10**6).map(lambda ns: ns / S),
            devices=st.integers(0, 8),
            job=st.sampled_from("12"),
            team=st.sampled_from(["", "x"]),
            end=st.sampled_from(["finished", "failed"]),
        ),
        max_size=5,
    ),
)
def test_every_device_nanosecond_is_in_one_bucket_of_one_group_however_bad_the_windows(content, jobs):
    given_windows = [
        Window(
            tags=tags, start_ns=START + at, stop_ns=START + at + sum(took.values()), spent_ns=took, step=step, end=end
        )
        for tags, at, took, step, end in content
    ]
    kept, _ = counted_once(given_windows)
    for window in kept:
        assert sum(window.spent_ns.values()) == window.stop_ns - window.start_ns
    for mine in {(window.tags.key, window.tags.rank) for window in kept}:
        own = [window for window in kept if (window.tags.key, window.tags.rank) == mine]
        spans = sorted((window.start_ns, window.stop_ns) for window in own if window.stop_ns > window.start_ns)
        assert all(one[1] <= two[0] for one, two in itertools.pairwise(spans))
    for by in LEVELS:
        spent = spending(given_windows, jobs, by=by, price=flat)
        assert sum(group.allocated_ns for group in spent.groups) == spent.total.allocated_ns
        assert spent.total.allocated_ns >= sum(job.device_ns for job in jobs)
        assert sum(spent.total.waste_ns.values()) + spent.total.productive_ns == spent.total.allocated_ns
        assert spent.total.usd == pytest.approx(2 * spent.total.device_hours)
        for group in (*spent.groups, spent.total):
            assert all(took >= 0 for took in group.spent_ns.values())
            assert 0 <= group.productive_ns <= group.measured_ns <= group.allocated_ns
            assert 0 <= (group.ettr or 0) <= 1
            assert group.failed_ns + group.stopped_ns <= group.allocated_ns


@given(spans=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(0, 1)), min_size=1, max_size=12))
def test_each_moment_that_a_rank_tells_of_counts_once(spans):
    told = [
        Window(
            tags=replace(TAGS, attempt=attempt),
            start_ns=START + at,
            stop_ns=START + at + length,
            spent_ns={"step": length // 2, "idle": length - length // 2},
            step=0,
        )
        for at, length, attempt in spans
    ]
    kept, faults = counted_once(told)
    moments = {moment for at, length, _ in spans for moment in range(at, at + length)}
    assert sum(window.stop_ns - window.start_ns for window in kept) == len(moments)
    twice = sum(length for _, length, _ in spans) - len(moments)
    assert sum(fault.length_ns for fault in faults if fault.kind == "overlap") == twice
    for fault in faults:
        if fault.kind == "gap":
            assert moments.isdisjoint(range(fault.start_ns - START, fault.stop_ns - START))


def test_ledgers_below_a_folder_are_found_and_read_once(tmp_path):
    for name in ("one", "two"):
        written(tmp_path / "sweep" / name, windows({"step": 1}, tags=replace(TAGS, run=name)))
    found, notes = read_ledgers([tmp_path, tmp_path / "sweep/one", tmp_path / "sweep/two/ledger.jsonl"])
    assert ([window.tags.run for window in found], notes) == (["one", "two"], ())
    with pytest.raises(InputError, match=r"holds no ledger.jsonl: give the directory of a run"):
        read_ledgers([tmp_path / "sweep/three"])


def test_runs_of_one_name_in_two_folders_are_two_runs_and_ranks_of_one_are_one(tmp_path):
    for name in ("a", "b"):
        written(tmp_path / name / "run", windows({"step": 10}))
    found, notes = read_ledgers([tmp_path])
    assert spending(found).total.num_runs == 2
    assert spending(found).faults == ()
    assert notes == ("several directories hold a run called 'run': each is shown with its folders",)
    for rank in (0, 1):
        tags = replace(TAGS, rank=rank, world=2)
        written(tmp_path / f"node{rank}", windows({"step": 10}, tags=tags))
    found, notes = read_ledgers([tmp_path / "node0", tmp_path / "node1"])
    assert (spending(found).total.num_runs, notes) == (1, ())


def test_lines_that_a_kill_cut_off_are_told(tmp_path):
    written(tmp_path, windows({"step": 10}, {"step": 10}))
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    _, (note,) = read_ledgers([path])
    assert "1 line was cut off by a kill" in note


@pytest.fixture
def cluster(tmp_path):
    """A folder with two runs, and the account of the jobs that they ran in and of others."""
    tags = replace(TAGS, devices=8)
    written(tmp_path / "runs/big", windows({"startup": 600}, {"data_wait": 900, "step": 1500},
            tags=replace(tags, run="big", team="nlp"), end="finished"))  # fmt: skip
    written(tmp_path / "runs/small", windows({"step": 600}, {"idle": 3000},
            tags=replace(tags, run="small\x1b[31m", team="vision"), end="failed"))  # fmt: skip
    start, end = str(START // S - 60), str(START // S + 3540)
    text = row(name="big", submit=str(START // S - 660), start=start, end=end)
    other = row(job="2", name="other", account="vision", submit=start, start=start, end=end, state="CANCELLED by 5")
    (tmp_path / "sacct.txt").write_text("\n".join([HEADER, text, other]))
    return tmp_path


def run(capsys, **options) -> str:
    ledger(**options)
    return capsys.readouterr().out


def test_the_command_prints_who_spent_what_on_what_and_what_is_wrong(cluster, capsys):
    shown = run(capsys, paths=[cluster / "runs"], sacct=[cluster / "sacct.txt"], zone="UTC", by="run", price="2.5")
    assert "24 GPU-hours of 3 runs; $60.00; goodput 29.2 %, ETTR 26.9 %" in shown
    for text in ("nlp", "proxies", "big", "waiting for data", "not accounted for"):
        assert text in shown
    assert "failed runs and jobs: 1, which took 8 GPU-hours, $20.00" in shown
    assert "runs and jobs stopped early: 1, which took 8 GPU-hours, $20.00" in shown
    assert "jobs waited 10 min 00 s in the queue" in shown
    assert "devices held without a step: 1" in shown
    assert "took no step for 50 min 00 s after step 1, holding 8 devices: 2026-09-21 " in " ".join(shown.split())
    assert "8 GPU-hours are of runs that keep no ledger" in shown
    assert "that have the name of no job at their time: 1, vision" in " ".join(shown.split())
    assert "\x1b" not in shown


def test_the_groups_are_written_as_csv_and_parquet(cluster, capsys):
    files = {"csv": cluster / "out.csv", "parquet": cluster / "out.parquet"}
    run(capsys, paths=[cluster / "runs"], by="team", price="H100", **files)
    with files["csv"].open(newline="") as file:
        rows = list(csv.DictReader(file))
    table = pq.read_table(files["parquet"]).to_pylist()
    assert [entry["team"] for entry in rows] == [entry["team"] for entry in table] == ["vision", "nlp"]
    for text, entry in zip(rows, table, strict=True):
        assert {name: "" if value is None else str(value) for name, value in entry.items()} == text
        buckets = sum(entry[f"{bucket}_device_ns"] for bucket in [*BUCKETS, "unaccounted"])
        assert buckets == entry["allocated_device_ns"]
    assert table[0]["usd"] == pytest.approx(8 * 2.95)


def test_without_a_price_there_are_no_dollars_and_old_prices_are_told(cluster, capsys):
    assert "without the name of some accelerators there are no dollars" in run(capsys, paths=[cluster / "runs"])
    path = cluster / "vms.csv"
    path.write_text("InstanceType,AcceleratorName,AcceleratorCount,Price,Region,SpotPrice\nx,H100,8,16,here,8\n")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    options = {"paths": [cluster / "runs"], "price": "H100", "prices": path}
    shown = run(capsys, **options)
    assert "price: H100 at $2.00 an hour (x in here, by vms.csv, as of 2023-11-14)" in " ".join(shown.split())
    assert "days old (2023-11-14): look it up again" in " ".join(shown.split())
    assert "H100 at $1.00 an hour, spot" in run(capsys, **options, spot=True)


def test_a_step_log_is_summed_up_like_a_ledger(tmp_path, capsys):
    lines = ["step,time", *(f"{step},{1_790_000_000 + step}" for step in range(10)), "10,1790003609"]
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "log.csv").write_text("\n".join(lines))
    logs = [tmp_path / folder / "log.csv" for folder in ("a", "b")]
    shown = run(capsys, step_log=logs, devices=4, by="run")
    assert "8.02 GPU-hours of 2 runs" in shown
    assert "standing still" in shown
    assert "the run stood still for 3599 s before" in " ".join(shown.split())


def test_the_best_checkpoint_interval_is_told_where_it_is_asked_for(capsys):
    options = {"failures_per_1000_node_days": 6.5, "checkpoint_s": 10.0}
    shown = run(capsys, nodes=1500, **options)
    assert "a failure every 2 h 27 min" in shown
    assert "best: a checkpoint of 10 s every 7 min 01 s gives an ETTR of 92.1 %" in shown
    shown = run(capsys, nodes=16_384, failures_per_1000_node_days=6.5, checkpoint_s=300.0, interval_s=3600.0)
    assert "every 1 h 00 min gives an ETTR of 0 %" in shown
    assert "the closed form gives -1.47, which cannot be" in " ".join(shown.split())


def test_the_command_line_reaches_every_option_that_it_names(cluster):
    app = typer.Typer()
    app.command()(ledger)
    arguments = f"{cluster}/runs --sacct {cluster}/sacct.txt --zone UTC --by run --price 2 --zombie-s 60 --nodes 8"
    done = CliRunner().invoke(app, [*arguments.split(), "--csv", f"{cluster}/o.csv", "--checkpoint-s", "30"])
    assert (done.exit_code, (cluster / "o.csv").is_file()) == (0, True)
    assert "$48.00" in done.output
    assert "8 nodes that fail 6.5 times" in done.output


def test_what_cannot_be_summed_up_says_what_to_give(cluster):
    with pytest.raises(PlanError, match="nothing to sum up: give run directories"):
        ledger()
    with pytest.raises(PlanError, match="--by is 'user'; it must be team, project, run, candidate"):
        ledger(paths=[cluster / "runs"], by="user")
    with pytest.raises(PlanError, match="local time without a zone"):
        ledger(sacct=[cluster / "sacct.txt"])
    with pytest.raises(PlanError, match="no price of 'H101' is known"):
        ledger(paths=[cluster / "runs"], price="H101")
    with pytest.raises(PlanError, match=r"Tags.devices is -1; it must be 0 or more"):
        replace(TAGS, devices=-1)
