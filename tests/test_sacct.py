"""Accounts of others: Slurm's with its traps, and step logs of other trainers."""

from __future__ import annotations

import itertools
import json
from datetime import datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataeff.accounts.sacct import accelerators, read_sacct
from dataeff.accounts.step_log import read_step_log
from dataeff.efficiency.goodput import HOUR_NS, spending
from dataeff.errors import FormatError, InputError, PlanError
from dataeff.ledger import Tags

HEADER = "JobIDRaw|JobName|Account|WCKey|Comment|State|Submit|Start|End|ElapsedRaw|AllocTRES"
EIGHT = "billing=64,cpu=64,gres/gpu:h100=8,gres/gpu=8,mem=1000000M,node=1"
BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold).timestamp()) * 10**9


NOW = at("2026-09-06T18:00:00")


def row(job="1", name="big", state="COMPLETED", start="2026-09-06T12:00:00", end="2026-09-06T13:00:00", elapsed=3600,
        tres=EIGHT, submit="2026-09-06T11:30:00", account="nlp", wckey="proxies", comment=""):  # fmt: skip
    return "|".join([job, name, account, wckey, comment, state, submit, start, end, str(elapsed), tres])


def account(tmp_path, *rows: str, header: str = HEADER, zone: str = "Europe/Berlin", now_ns: int = NOW):
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join([header, *rows]) + "\n")
    return read_sacct(path, zone=zone, now_ns=now_ns)


def test_a_job_is_read_with_its_owner_its_devices_and_its_wait(tmp_path):
    (found,) = account(tmp_path, row()).allocations
    assert (found.team, found.project, found.run, found.job) == ("nlp", "proxies", "big", "1")
    assert (found.start_ns, found.stop_ns) == (at("2026-09-06T12:00:00"), at("2026-09-06T13:00:00"))
    assert (found.devices, found.accelerator) == (8, "H100")
    assert found.queued_ns == 1800 * 10**9
    assert found.device_ns == 8 * HOUR_NS


def test_a_project_is_the_wckey_or_else_the_comment(tmp_path):
    found = account(tmp_path, row(wckey="*proxies"), row(job="2", wckey="", comment="scaling laws")).allocations
    assert [entry.project for entry in found] == ["proxies", "scaling laws"]


@pytest.mark.parametrize(
    ("state", "end"),
    [
        ("COMPLETED", "finished"),
        *((state, "failed") for state in ("FAILED", "OUT_OF_MEMORY", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "DEADLINE")),
        ("PREEMPTED", "preempted"),
        ("REQUEUED", "preempted"),
        ("CANCELLED", "stopped"),
        ("CANCELLED by 1001", "stopped"),
    ],
)
def test_every_state_says_how_the_attempt_ended(tmp_path, state, end):
    found = account(tmp_path, row(state=state))
    assert (found.allocations[0].end, found.notes) == (end, ())


def test_a_state_that_is_not_known_is_named_and_its_time_counts(tmp_path):
    found = account(tmp_path, row(state="REVOKED"))
    assert (found.allocations[0].end, found.allocations[0].device_ns) == ("", 8 * HOUR_NS)
    assert found.notes == ("sacct.txt: rows in the state REVOKED, of which no end is known: 1",)


def test_each_attempt_of_a_job_that_was_queued_again_counts_for_itself(tmp_path):
    found = account(
        tmp_path,
        row(state="COMPLETED", submit="2026-09-06T13:05:00", start="2026-09-06T14:00:00", end="2026-09-06T16:00:00",
            elapsed=7200),
        row(state="NODE_FAIL"),
    )  # fmt: skip
    assert [(entry.attempt, entry.end) for entry in found.allocations] == [(0, "failed"), (1, "finished")]
    assert [entry.queued_ns // 10**9 for entry in found.allocations] == [1800, 3300]
    assert sum(entry.device_ns for entry in found.allocations) == 24 * HOUR_NS


def test_an_attempt_that_two_rows_tell_of_counts_once_and_by_the_row_that_knows_its_end(tmp_path):
    running = row(state="RUNNING", end="Unknown", elapsed=600)
    for rows in ([running, row(), row()], [row(), row(), running]):
        found = account(tmp_path, *rows)
        assert [entry.device_ns for entry in found.allocations] == [8 * HOUR_NS]
        assert "rows that tell of an attempt once more, left out: 2" in " ".join(found.notes)


def test_a_job_that_runs_counts_until_now(tmp_path):
    found = account(tmp_path, row(state="RUNNING", end="Unknown", elapsed=6 * 3600))
    assert found.allocations[0].stop_ns == NOW
    assert found.allocations[0].end == ""
    assert found.notes == ("sacct.txt: jobs that ran when the account was written, counted until then: 1",)


def test_a_job_that_ran_longer_than_until_now_shows_a_wrong_zone(tmp_path):
    rows = [row(state="RUNNING", end="Unknown", elapsed=6 * 3600)]
    with pytest.raises(PlanError, match=r"job 1 has run 21600 s .* another zone than America/New_York"):
        account(tmp_path, *rows, zone="America/New_York")


def test_steps_of_a_job_are_left_out_and_counted(tmp_path):
    found = account(tmp_path, row(), row(job="1.batch", name="batch"), row(job="1.0", name="python"))
    assert len(found.allocations) == 1
    assert found.notes == ("sacct.txt: steps of a job, left out because the job's own row holds them (sacct -X): 2",)


@pytest.mark.parametrize(
    ("tres", "devices", "kind"),
    [
        (EIGHT, 8, "H100"),
        ("gres/gpu=8,gres/gpu:h100=8", 8, "H100"),
        ("cpu=4,gres/gpu=2", 2, ""),
        ("gres/gpu:a100=2,gres/gpu:h100=4", 6, ""),
        ("gres/gpu=6,gres/gpu:a100=2,gres/gpu:h100=4", 6, ""),
        ("gres/gpu=4,gres/gpumem=80000M,gres/gpuutil=99,gres/shard=3", 4, ""),
        ("billing=4,cpu=4,mem=8G,node=1", 0, ""),
        ("", 0, ""),
    ],
)
def test_devices_are_counted_in_all_or_by_kind_and_never_both(tres, devices, kind):
    assert accelerators(tres, "here") == (devices, kind)


def test_a_count_with_a_unit_asks_for_noconvert():
    with pytest.raises(FormatError, match=r"here: gres/gpu is '1K' .* --noconvert"):
        accelerators("gres/gpu=1K", "here")


def test_jobs_without_accelerators_or_without_a_start_hold_nothing_and_are_counted(tmp_path):
    found = account(
        tmp_path,
        row(job="2", tres="cpu=4,node=1"),
        row(job="3", state="PENDING", start="Unknown", end="Unknown", elapsed=0, tres=""),
        row(job="4", state="CANCELLED by 7", start="None", end="2026-09-06T12:00:00", elapsed=0, tres=""),
    )
    assert found.allocations == ()
    assert "sacct.txt: jobs that never started, which held nothing: 2" in found.notes
    assert "sacct.txt: jobs without accelerators, left out: 1" in found.notes


def test_columns_that_are_missing_are_listed_with_the_command(tmp_path):
    with pytest.raises(FormatError, match=r"lacks JobIDRaw, Submit, AllocTRES in its .*sacct -X -D --parsable2"):
        account(tmp_path, header="JobName|Account|State|Start|End|ElapsedRaw")
    with pytest.raises(FormatError, match="lacks JobIDRaw, JobName"):
        account(tmp_path, header="")


def test_a_bar_within_a_name_is_refused_with_its_line(tmp_path):
    with pytest.raises(FormatError, match=r"line 3 has 12 fields, and the first line has 11: a name or comment"):
        account(tmp_path, row(), row(name="a|b"))


def test_accounts_that_hold_nothing_or_are_not_there_say_what_to_do(tmp_path):
    with pytest.raises(InputError, match=r"there is no file .* write one with `sacct"):
        read_sacct(tmp_path / "none.txt", zone="UTC", now_ns=NOW)
    with pytest.raises(InputError, match="a header and no job"):
        account(tmp_path)
    with pytest.raises(PlanError, match="'Berlin' is no time zone"):
        account(tmp_path, row(), zone="Berlin")
    with pytest.raises(FormatError, match="ElapsedRaw is '01:00:00'; it must be whole seconds"):
        account(tmp_path, row(elapsed="01:00:00"))


def test_in_the_hour_that_comes_twice_the_time_elapsed_tells_which(tmp_path):
    """On 2026-10-25 clocks in Berlin go from 3 back to 2."""
    now_ns = at("2026-10-26T00:00:00")
    first = row(submit="2026-10-25T01:00:00", start="2026-10-25T02:30:00", end="2026-10-25T04:30:00", elapsed=3 * 3600)
    second = row(submit="2026-10-25T01:00:00", start="2026-10-25T02:30:00", end="2026-10-25T04:30:00", elapsed=2 * 3600)
    for text, fold in ((first, 0), (second, 1)):
        found = account(tmp_path, text, now_ns=now_ns)
        assert found.allocations[0].start_ns == at("2026-10-25T02:30:00", fold)
        assert found.notes == ()
    over = row(submit="2026-10-25T01:00:00", start="2026-10-25T02:30:00", end="2026-10-25T02:15:00", elapsed=2700)
    assert account(tmp_path, over, now_ns=now_ns).allocations[0].device_ns == 8 * 2700 * 10**9
    either = row(submit="2026-10-25T01:00:00", start="2026-10-25T02:10:00", end="2026-10-25T02:40:00", elapsed=1800)
    found = account(tmp_path, either, now_ns=now_ns)
    assert found.allocations[0].start_ns == at("2026-10-25T02:10:00")
    assert "in the hour that the clock shows twice" in found.notes[0]


def test_a_time_that_the_clocks_of_the_zone_never_showed_is_refused(tmp_path):
    with pytest.raises(FormatError, match="clocks in Europe/Berlin never showed 2026-03-29T02:30:00"):
        account(tmp_path, row(start="2026-03-29T02:30:00"))


def test_times_with_an_offset_or_in_seconds_need_no_zone(tmp_path):
    expected_ns = at("2026-09-06T12:00:00")
    for text in ("2026-09-06T10:00:00+00:00", str(expected_ns // 10**9)):
        (found,) = account(
            tmp_path, row(submit=text, start=text, end="2026-09-06T11:00:00+00:00"), zone="UTC"
        ).allocations
        assert (found.start_ns, found.queued_ns) == (expected_ns, 0)


def test_a_job_that_was_suspended_counts_by_the_time_elapsed_and_it_is_said(tmp_path):
    found = account(tmp_path, row(elapsed=1800))
    assert found.allocations[0].device_ns == 4 * HOUR_NS
    assert "jobs that ran for another time than from Start to End" in found.notes[0]


@given(
    jobs=st.lists(
        st.tuples(
            st.sampled_from(["nlp", "vision", "infra"]),
            st.sampled_from(["big", "small"]),
            st.integers(0, 10**6),
            st.integers(0, 64),
            st.sampled_from(["COMPLETED", "FAILED", "CANCELLED by 7", "PREEMPTED"]),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_what_teams_spent_sums_to_the_hours_of_the_account_to_the_second(tmp_path_factory, jobs):
    rows, began = [], at("2026-09-06T12:00:00") // 10**9
    for number, (team, name, elapsed, devices, state) in enumerate(jobs):
        start, end = f"{began}", f"{began + elapsed}"
        rows.append(row(job=str(number), name=name, account=team, state=state, submit=start, start=start, end=end,
                        elapsed=elapsed, tres=f"gres/gpu={devices}"))  # fmt: skip
    found = account(tmp_path_factory.mktemp("sacct"), *rows)
    for by in ("team", "project", "run", "candidate"):
        spent = spending((), found.allocations, by=by)
        seconds = [Fraction(group.allocated_ns, 10**9) for group in spent.groups]
        assert sum(seconds) == sum(elapsed * devices for _, _, elapsed, devices, _ in jobs)
        assert spent.total.allocated_ns == sum(group.allocated_ns for group in spent.groups)
    failed = sum(elapsed * devices for _, _, elapsed, devices, state in jobs if state == "FAILED")
    assert spent.total.failed_ns == failed * 10**9


def log(tmp_path, lines: list[dict], name="run.jsonl", **options):
    path = tmp_path / name
    if name.endswith("csv"):
        columns = list(lines[0])
        path.write_text("\n".join([",".join(columns), *(",".join(str(e[c]) for c in columns) for e in lines)]))
    else:
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_step_log(path, **options)


def every(seconds: float, steps, start: float = 1_790_000_000.0) -> list[dict]:
    return [{"step": step, "time": start + seconds * number} for number, step in enumerate(steps)]


@pytest.mark.parametrize("name", ["run.jsonl", "run.csv"])
def test_the_time_between_two_rows_is_that_of_the_steps_between_them(tmp_path, name):
    found = log(tmp_path, [{**entry, "loss": 2.0} for entry in every(2.5, [10, 20, 30])], name)
    assert [window.spent_ns for window in found.windows] == [{"step": 2_500_000_000}] * 2
    assert [window.step for window in found.windows] == [20, 30]
    assert found.windows[0].start_ns == 1_790_000_000 * 10**9
    assert found.windows[0].tags == Tags(run="run", attempt=0)
    assert found.notes == ()


def test_names_of_other_trackers_and_iso_times_are_read(tmp_path):
    lines = [{"_step": 1, "_timestamp": 1_790_000_000.25}, {"_step": 2, "_timestamp": 1_790_000_001.5}]
    assert log(tmp_path, lines).windows[0].stop_ns == 1_790_000_001_500_000_000
    lines = [{"global_step": n, "timestamp": f"2026-09-06T12:00:0{n}.5"} for n in (1, 2)]
    assert log(tmp_path, lines, zone="Europe/Berlin").windows[0].start_ns == at("2026-09-06T12:00:01") + 5 * 10**8
    with pytest.raises(PlanError, match="names no zone"):
        log(tmp_path, lines)


def test_in_the_hour_that_comes_twice_time_goes_on(tmp_path):
    times = ["2026-10-25T02:50:00", "2026-10-25T02:10:00", "2026-10-25T02:30:00"]
    lines = [{"step": n, "time": text} for n, text in enumerate(times)]
    found = log(tmp_path, lines, zone="Europe/Berlin")
    assert [(w.stop_ns - w.start_ns) // 10**9 for w in found.windows] == [1200, 1200]


def test_steps_that_are_done_again_after_a_restart_are_lost(tmp_path):
    lines = every(1, range(11)) + every(1, range(6, 16), 1_790_000_100.0)
    found = log(tmp_path, lines)
    second = [window for window in found.windows if window.tags.attempt == 1]
    assert [(w.step, *w.spent_ns) for w in second] == [
        *((step, "lost_to_restart") for step in range(7, 11)),
        *((step, "step") for step in range(11, 16)),
    ]
    assert "after step 10 it began again" in found.notes[0]
    assert "90 s later; whether that time was allocated is not in the log" in found.notes[0]
    assert sum(w.stop_ns - w.start_ns for w in found.windows) == 19 * 10**9


def test_a_row_of_steps_old_and_new_is_split_by_steps(tmp_path):
    lines = every(1, [0, 10, 20]) + every(1, [5, 15, 25], 1_790_000_100.0)
    second = [window.spent_ns for window in log(tmp_path, lines).windows if window.tags.attempt == 1]
    assert second == [{"lost_to_restart": 10**9}, {"lost_to_restart": 5 * 10**8, "step": 5 * 10**8}]


def test_a_long_gap_is_idle_but_for_its_step_and_is_named(tmp_path):
    lines = every(1, range(10)) + every(1, range(10, 20), 1_790_000_300.0)
    found = log(tmp_path, lines)
    idle = [window for window in found.windows if "idle" in window.spent_ns]
    assert [window.spent_ns for window in idle] == [{"idle": 290 * 10**9, "step": 10**9}]
    assert "the run stood still for 290 s before" in found.notes[0]
    assert log(tmp_path, lines, idle_steps=1000).notes == ()


def test_waits_for_data_are_taken_out_of_the_steps(tmp_path):
    lines = [{**entry, "data_wait_s": 0.25} for entry in every(1, range(3))]
    found = log(tmp_path, lines)
    assert found.windows[0].spent_ns == {"data_wait": 250_000_000, "step": 750_000_000}
    lines[2]["data_wait_s"] = 7
    found = log(tmp_path, lines)
    assert found.windows[1].spent_ns == {"data_wait": 10**9}
    assert "waited for data longer than its step took" in found.notes[0]


def test_ranks_of_a_log_keep_their_own_time(tmp_path):
    lines = [{**entry, "rank": rank} for entry in every(1, range(3)) for rank in (0, 1)]
    found = log(tmp_path, lines, tags=Tags(run="mine", attempt=0, team="core", devices=8))
    assert [(w.tags.rank, w.tags.world, w.tags.devices, w.step) for w in found.windows] == [
        (rank, 2, 8, step) for rank in (0, 1) for step in (1, 2)
    ]


def test_rows_out_of_order_or_of_one_step_are_named(tmp_path):
    lines = every(1, [1, 2, 2, 3])
    assert "rows that repeat the step of the row before them, left out: 1" in log(tmp_path, lines).notes[0]
    lines = [*every(1, [1, 2]), {"step": 3, "time": 1_789_999_000}, {"step": 4, "time": 1_789_999_001}]
    found = log(tmp_path, lines)
    assert "the clock goes back at" in found.notes[0]
    assert [window.step for window in found.windows] == [2, 4]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("step,time\n1,100\n", InputError, "no two rows of a rank"),
        ("step,time\nx,100\n", FormatError, "line 2: step is 'x'; it must be a whole number"),
        ("step,time\n1.5,100\n", FormatError, "line 2: step is '1.5'"),
        ("step,time\n1,\n", FormatError, "line 2 has no time; a row must have one, called time or _timestamp"),
        ("step,time\n1,noon\n", FormatError, "line 2: 'noon' is no time"),
        ("step,time\n1,1790000000000\n", FormatError, "line 2: '1790000000000' is no time; it must be seconds"),
        ("step,time,data_wait_s\n1,100,-1\n", FormatError, "data_wait_s is '-1'; it must be seconds"),
        ('{"step": 1\n', FormatError, "line 1 is no JSON"),
        ('{"step": 1, "time": 5}\n[1]\n', FormatError, "line 2 is no JSON object"),
    ],
)
def test_logs_that_cannot_be_read_name_the_line(tmp_path, text, error, message):
    path = tmp_path / "run.log"
    path.write_text(text)
    with pytest.raises(error, match=message):
        read_step_log(path)
    with pytest.raises(InputError, match="there is no step log"):
        read_step_log(tmp_path / "none")


@given(
    steps=st.lists(st.integers(0, 30), min_size=2, max_size=40),
    gaps=st.lists(st.integers(0, 500), min_size=40, max_size=40),
)
def test_every_moment_between_two_rows_of_an_attempt_is_in_one_bucket(tmp_path_factory, steps, gaps):
    lines, now = [], 1_790_000_000
    for step, gap in zip(steps, gaps, strict=False):
        now += gap
        lines.append({"step": step, "time": now})
    try:
        found = log(tmp_path_factory.mktemp("log"), lines)
    except InputError:
        assert all(two <= one for one, two in itertools.pairwise(steps))
        return
    for window in found.windows:
        assert sum(window.spent_ns.values()) == window.stop_ns - window.start_ns
        assert all(took > 0 for took in window.spent_ns.values())
