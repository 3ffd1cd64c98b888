"""A comparison from its recipe to its verdicts: trials, journal, kills, failures, and what it refuses."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from dataeff import Candidate, Comparison, Dedup, Pipeline, Proxy, Read
from dataeff.__main__ import app
from dataeff.compare import drive
from dataeff.compare.corpora import prepare
from dataeff.compare.drive import compare, open_compared
from dataeff.compare.journal import Entry, Journal
from dataeff.compare.outcome import outcome
from dataeff.compare.trials import Plan, Runner, Task, directory, do, readings
from dataeff.contest import Job
from dataeff.efficiency.crossing import choose_target
from dataeff.engine import Engine
from dataeff.errors import FormatError, InputError, PlanError, StorageError
from dataeff.filters import HeldOut
from dataeff.ledger import read_ledger
from dataeff.loader.validation import read_validation
from dataeff.mixers import Explicit, Temperature
from dataeff.recipes import load
from dataeff.screeners import SmallFirst, SuccessiveHalving
from dataeff.segments import Segments
from dataeff.stages.tasks import Context
from dataeff.tokenizers import TrainedBpe
from tests import making

STEPS = 9


def inputs(folder: Path) -> Path:
    """Two sources of made-up prose, one with each document three times."""
    web = making.rows(90, seed=1, source="web")
    books = making.rows(60, seed=2, source="books")
    making.write_jsonl(folder / "web.jsonl", [{**row, "id": f"{row['id']}-{copy}"} for row in web for copy in range(3)])
    making.write_jsonl(folder / "books.jsonl", books)
    return folder


def comparison(folder: Path, **changes) -> Comparison:
    read = Read(str(folder))
    given = {
        "corpora": {"raw": Pipeline(read), "deduplicated": Pipeline(read, Dedup())},
        "candidates": {
            "raw": Candidate(corpus="raw"),
            "deduplicated": Candidate(corpus="deduplicated"),
            "even": Candidate(corpus="deduplicated", mixer=Temperature(temperature=float("inf"))),
            "books": Candidate(corpus="deduplicated", mixer=Explicit(shares={"books": 1.0})),
        },
        "baseline": "raw",
        "proxies": {"full": Proxy(width=16, layers=1, heads=1)},
        "tokens": STEPS * 4 * 16,
        "batch_rows": 4,
        "sequence_length": 16,
        "tokenizer": TrainedBpe(vocab_size=300),
        "evaluations": 9,
        "seeds": 3,
        "fresh_seeds": 2,
        "annealed": (0.5, 1.0),
        "screener": SuccessiveHalving(eta=3),
        "holdout_share": 0.1,
        "validation_rows": 4,
        "team": "core",
        "project": "mixtures",
    }
    return Comparison(**{**given, **changes})


def run(made: Comparison, out: Path, seen: list[Entry] | None = None):
    with Engine(threads=2) as engine:
        context = Context(out=out, engine=engine, observer=making.Silent(), seed=made.seed)
        return compare(made, context, 2, lambda entry: seen.append(entry) if seen is not None else None)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return inputs(tmp_path_factory.mktemp("in"))


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("compared") / "out"
    run(comparison(corpus), out)
    return out


def results(out: Path) -> dict[tuple, float | None]:
    _, journal = open_compared(out)
    return {(entry.phase, entry.job): entry.loss for entry in journal.entries}


def test_the_baseline_sets_the_target_before_any_candidate_is_trained(finished):
    _, journal = open_compared(finished)
    lines = [json.loads(line) for line in (finished / "journal.jsonl").read_text().splitlines()]
    names = [line.get("phase") or line.get("fact") or "header" for line in lines]
    assert names[:5] == ["header", "baseline", "baseline", "baseline", "target"]
    losses = [entry.loss for entry in journal.of("baseline")]
    assert journal.facts["target"]["loss"] == choose_target(losses)


def test_every_trial_is_in_the_ledger_with_its_candidate(finished):
    found = outcome(finished)
    assert {trial.candidate for trial in found.trials} == {"raw", "deduplicated", "even", "books"}
    for trial in found.trials:
        windows, torn = read_ledger(trial.folder / "ledger.jsonl")
        assert not torn
        assert {window.tags.candidate for window in windows} == {trial.candidate}
        assert {(window.tags.team, window.tags.project) for window in windows} == {("core", "mixtures")}
        assert sum(sum(window.spent_ns.values()) for window in windows) == trial.device_ns > 0


def test_a_table_has_the_baseline_first_and_finalists_judged_by_fresh_seeds(finished):
    found = outcome(finished)
    assert found.baseline.candidate == "raw"
    assert found.baseline.headline.described.num_runs == 2
    finalists = [row for row in found.rows if row.annealed and row.candidate != "raw"]
    assert len(finalists) == 1
    assert finalists[0].constant.fresh
    assert finalists[0].constant.seeds == (3, 4)
    assert finalists[0].constant.ratio is not None
    assert 0 < found.screening_share < 1
    stopped = [row for row in found.rows if row.state == "stopped"]
    assert stopped
    assert all(row.why for row in stopped)


def test_an_annealed_run_branches_off_a_constant_one(finished):
    found = next(trial for trial in outcome(finished).trials if trial.annealed and trial.candidate == "raw")
    begun = json.loads((found.folder / "branch.json").read_text())["step"]
    steps = list(readings(found.folder))
    assert begun < steps[0]
    settings = json.loads((found.folder / "train.json").read_text())["settings"]
    assert settings["anneal_steps"] == settings["steps"] - begun


def test_the_same_comparison_again_trains_nothing(finished, corpus):
    before = (finished / "journal.jsonl").read_bytes()
    seen: list[Entry] = []
    run(comparison(corpus), finished, seen)
    assert seen == []
    assert (finished / "journal.jsonl").read_bytes() == before


def test_a_killed_comparison_goes_on_and_ends_as_an_undisturbed_one(finished, corpus, tmp_path):
    script = tmp_path / "go.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nfrom tests.test_compare import comparison, run\n"
        "if __name__ == '__main__':\n    run(comparison(Path(sys.argv[1])), Path(sys.argv[2]))\n"
    )
    out = tmp_path / "out"
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, str(script), str(corpus), str(out)]
    process = subprocess.Popen(command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, start_new_session=True)
    journal = out / "journal.jsonl"
    while process.poll() is None and not (journal.exists() and journal.read_bytes().count(b"\n") >= 7):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with journal.open("ab") as file:
        file.write(b'{"phase":"screen","job":{"cand')
    run(comparison(corpus), out)
    assert results(out) == results(finished)


def test_a_worker_that_is_killed_loses_no_trial(finished, corpus, tmp_path):
    killed: list[int] = []

    def kill_one(entry: Entry) -> None:
        if not killed and entry.phase == "screen":
            killed.append(multiprocessing.active_children()[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    made = comparison(corpus)
    with Engine(threads=2) as engine:
        compare(made, Context(out=tmp_path / "out", engine=engine, observer=making.Silent(), seed=0), 2, kill_one)
    assert killed
    assert results(tmp_path / "out") == results(finished)


def test_a_worker_that_dies_between_two_jobs_loses_none(finished, corpus, tmp_path, monkeypatch):
    runners: list[Runner] = []

    class Watched(Runner):
        def __init__(self, workers: int) -> None:
            super().__init__(workers)
            runners.append(self)

    monkeypatch.setattr(drive, "Runner", Watched)
    broken: list[int] = []

    def kill_idle(entry: Entry) -> None:
        if not broken and entry.phase == "screen":
            pool = runners[-1]._pool
            for process in multiprocessing.active_children():
                if process.pid in pool._processes:
                    os.kill(process.pid, signal.SIGKILL)
                    broken.append(process.pid)
            deadline = time.monotonic() + 60
            while not pool._broken and time.monotonic() < deadline:
                time.sleep(0.01)
            assert pool._broken

    made = comparison(corpus)
    with Engine(threads=2) as engine:
        compare(made, Context(out=tmp_path / "out", engine=engine, observer=making.Silent(), seed=0), 1, kill_idle)
    assert broken
    assert results(tmp_path / "out") == results(finished)


def test_another_comparison_in_the_same_directory_is_refused(finished, corpus, tmp_path):
    with pytest.raises(FormatError, match="another comparison"):
        run(comparison(corpus, learning_rate=1e-3), finished)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    with pytest.raises(StorageError, match="holds no comparison"):
        run(comparison(corpus), other)


def test_input_that_is_not_there_leaves_no_directory(tmp_path):
    with pytest.raises(InputError, match="cannot be looked at"):
        run(comparison(tmp_path / "absent"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_held_out_documents_are_in_no_corpus(corpus, tmp_path):
    texts = {row["text"] for row in making.rows(90, seed=1, source="web")}
    kept, held = (HeldOut(share=0.1, keep=side) for side in ("training", "validation"))
    segments = Segments(pa.array(sorted(texts), pa.large_string()))
    draws = kept.measure(segments)["draw"]
    assert (draws == held.measure(segments)["draw"]).all()
    training, validation = kept.bounds()["draw"], held.bounds()["draw"]
    sides = [(training.low <= draw <= training.high, validation.low <= draw <= validation.high) for draw in draws]
    assert all(one != other for one, other in sides)
    assert 0 < sum(other for _, other in sides) < 30


def test_validation_text_that_a_candidate_trains_on_does_not_count_and_too_much_is_refused(tmp_path):
    folder = tmp_path / "in"
    rng = random.Random(7)
    shared = making.document(rng)
    web = [{"id": f"w{n}", "source": "web", "text": making.sentence(rng, 9) + "\n" + shared} for n in range(80)]
    books = [{"id": f"b{n}", "source": "books", "text": making.document(rng)} for n in range(60)]
    making.write_jsonl(folder / "web.jsonl", web)
    making.write_jsonl(folder / "books.jsonl", books)
    made = comparison(folder, holdout_share=0.2, validation_rows=64)
    with Engine(threads=2) as engine:
        context = Context(out=tmp_path / "out", engine=engine, observer=making.Silent(), seed=0)
        with pytest.raises(PlanError, match=r"validation tokens of web.*% in raw"):
            prepare(replace(made, domains={"web": 1.0}), context)
        prepared = prepare(replace(made, domains={"books": 1.0}), context)
    found = read_validation(prepared.validation)
    assert list(found.sources) == ["books"]
    assert found.sources["books"].counts.mean() > 0.9
    assert prepared.overlap["books"]["left"] == int(found.sources["books"].counts.sum())
    assert prepared.overlap["web"]["left"] < 0.5 * prepared.overlap["web"]["tokens"]
    assert 0.5 < prepared.overlap["web"]["raw"] <= 1


def test_a_run_that_diverges_is_a_failed_trial_with_its_cost(finished, tmp_path):
    plan, _ = open_compared(finished)
    job = Job(candidate="raw", seed=0, size="full", tokens=20 * 64)
    settings = {"batch_size": 4, "learning_rate": 9.0, "clip_norm": 0.0, "holdout_rows": 0, "log_every": 1}
    made = Plan(
        corpus=str(finished / "corpora" / "raw"),
        validation=str(finished / "validation.arrow"),
        shape={"width": 16, "layers": 1, "heads": 1},
        settings={**settings, "betas": (0.0, 0.0), "weight_decay": 50.0},
        step_tokens=64,
        domains=plan["domains"],
    )
    entry = do(Task(phase="screen", job=job, plan=made, out=tmp_path / "trial"))
    windows, _ = read_ledger(tmp_path / "trial" / "ledger.jsonl")
    assert entry.loss is None
    assert "the loss is" in entry.failure
    assert windows[-1].end == "failed"
    assert sum(window.stop_ns - window.start_ns for window in windows) > 0


def test_a_trial_that_was_trained_further_is_only_read(finished):
    job = Job(candidate="raw", seed=0, size="full", tokens=3 * 64)
    folder = directory(finished, job)
    before = (folder / "validation.jsonl").read_bytes()
    plan, _ = open_compared(finished)
    made = Plan(corpus="", validation="", shape={}, settings={}, step_tokens=64, domains=plan["domains"])
    entry = do(Task(phase="screen", job=job, plan=made, out=folder))
    assert entry.losses == readings(folder)[3]
    assert (folder / "validation.jsonl").read_bytes() == before


def test_a_journal_line_that_a_kill_cut_off_is_passed_over(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "mine")
    job = Job(candidate="a", seed=0, size="full", tokens=64)
    journal.add(Entry(phase="screen", job=job, loss=2.5, losses={"web": 2.5}))
    path.write_bytes(path.read_bytes() + b'{"phase":"scr')
    again = Journal(path, "mine")
    again.settle("target", {"loss": 2.0})
    again.settle("target", {"loss": 3.0})
    third = Journal(path, "mine")
    assert [entry.job for entry in third.entries] == [job]
    assert third.facts == {"target": {"loss": 2.0}}
    with pytest.raises(FormatError, match="another comparison"):
        Journal(path, "other")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"baseline": "absent"}, "the baseline 'absent' must be one of"),
        ({"candidates": {"raw": Candidate(corpus="raw")}}, "two candidates or more"),
        ({"candidates": {"raw": Candidate(corpus="raw"), "x": Candidate(corpus="y")}}, "of the corpus 'y'"),
        ({"seeds": 0}, "Comparison.seeds is 0"),
        ({"annealed": (1.0, 0.5)}, "rising shares"),
        ({"target": -1.0}, "a loss above 0"),
        ({"real_tokens": 10}, "a trial's tokens or more"),
        ({"passage_tokens": 2}, "4 or more"),
        ({"proxies": {"../x": Proxy()}}, "names a folder"),
    ],
)
def test_a_comparison_that_cannot_work_is_refused(corpus, changes, message):
    with pytest.raises(PlanError, match=message):
        comparison(corpus, **changes)


def test_a_pipeline_that_tokenizes_for_itself_is_refused(corpus):
    from dataeff import Tokenize

    read = Read(str(corpus))
    with pytest.raises(PlanError, match="has Tokenize; a comparison tokenizes"):
        comparison(corpus, corpora={"raw": Pipeline(read, Tokenize(TrainedBpe())), "deduplicated": Pipeline(read)})


def test_the_recipe_for_mixtures_compares_three_corpora_and_three_more_mixtures(corpus):
    recipe = load(str(Path(__file__).resolve().parents[1] / "pipelines" / "mixtures.py"), Comparison)
    made, values = recipe.make([f"inputs={corpus}", "domains=web,books", "tokens=50_000", "real_tokens=1_000_000"])
    assert set(values) == set(recipe.parameters)
    assert len(made.candidates) == 6
    assert made.domains == {"web": 1.0, "books": 1.0}
    assert made.budget_tokens >= 50_000
    assert made.rows_share == made.budget_tokens / 1_000_000


def shown(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output + repr(done.exception)
    return done.output


def test_the_table_says_what_to_do_and_every_figure_in_it_can_be_traced(finished):
    table = shown("compare", "--out", str(finished), "--price", "2.5")
    assert "tokens to target" in table
    assert "saving in tokens" in table
    assert "price: $2.50 an hour (as given)" in table
    assert (finished / "report.html").is_file()
    traced = shown("compare", "--out", str(finished), "--explain", "even", "--price", "2.5")
    assert "trials/full/even/seed-0: loss" in traced
    assert "mixer: {'class': 'Temperature', 'temperature': 'inf'}" in traced
    best = next(row for row in outcome(finished).rows[1:] if row.annealed)
    traced = shown("compare", "--out", str(finished), "--explain", best.candidate, "--price", "2.5")
    assert best.annealed.described.words in traced
    assert "(fresh seeds)" in traced
    for crossing in (*best.constant.crossings, *best.annealed.crossings):
        assert f"of {crossing.budget_tokens:,.0f} trained" in traced
    unknown = CliRunner().invoke(app, ["compare", "--out", str(finished), "--explain", "absent"])
    assert isinstance(unknown.exception, PlanError)
    assert "its candidates are raw, deduplicated, even, books" in str(unknown.exception)


def test_a_target_that_nobody_reaches_is_said_to_be_so_and_never_extrapolated(finished, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    journal = out / "journal.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    kept = [line for line in lines if line.get("fact") != "annealed target"]
    for line in kept:
        if line.get("fact") == "target":
            line["value"] = {"loss": 0.5, "rule": "as asked for"}
    journal.write_text("".join(json.dumps(line) + "\n" for line in kept))
    found = outcome(out)
    reads = [row.constant for row in found.rows if row.constant]
    assert all(read.described.num_reached == 0 and read.described.mean_tokens is None for read in reads)
    assert {read.verdict.split(":")[0] for read in reads[1:]} <= {"not reached (0 of 1)", "not reached (0 of 2)"}
    table = shown("compare", "--out", str(out))
    assert "Keep raw: no candidate was found to be cheaper" in table
    assert "0 of 5" in table


def test_the_cost_of_the_real_run_is_marked_as_extrapolated_and_its_price_as_old(finished):
    table = shown(
        *("cost", str(finished), "--parameters", "7e9", "--tokens", "1e12", "--devices", "64", "--mfu", "0.4"),
        *("--accelerator", "H200", "--corpus-scale", "1e9", "--cpu-price", "0.04"),
    )
    assert "~ extrapolated" in table
    assert "~ intervals of 95 %: the measured ratio's joined with the scaling law's own, of 199 laws" in table
    assert "~ beyond the law's runs: 1e+12 tokens, where its runs have 1e+08 to 9e+11" in table
    assert "MFU 0.40 x 9.89e+14" in table
    assert "H200 at $3.50 an hour" in table
    assert "days old (2026)" in table
    refused = CliRunner().invoke(
        app, ["cost", str(finished), "--parameters", "7e9", "--tokens", "1e12", "--devices", "64", "--price", "H1000"]
    )
    assert isinstance(refused.exception, PlanError)
    assert "no price of 'H1000' is known" in str(refused.exception)
    assert "H100" in str(refused.exception)


def test_the_cost_of_a_candidate_is_traced_to_the_ratio_and_the_law(finished):
    given = ("--parameters", "7e9", "--tokens", "1e12", "--devices", "64", "--mfu", "0.4", "--corpus-scale", "1e9")
    traced = shown("cost", str(finished), *given, "--explain", "raw")
    assert "raw: 1.0000 times raw's tokens to the same loss, measured" in traced
    assert "law: R_D* 15.39 as published, " in traced
    assert "in 95 % of 199 refitted laws" in traced
    assert "~ tokens: 1e+12; by the ratio alone 1e+12, by the law alone 1e+12" in traced
    assert "MFU 0.40 x 9.89e+14" in traced
    refused = CliRunner().invoke(app, ["cost", str(finished), *given, "--explain", "cooked"])
    assert isinstance(refused.exception, PlanError)
    assert "no ratio of 'cooked' to carry over; it has those of raw" in str(refused.exception)


def test_screening_by_size_starts_small_and_ends_with_the_deciding_model(corpus, tmp_path):
    sizes = {"small": Proxy(width=8, layers=1, heads=1), "full": Proxy(width=16, layers=1, heads=1)}
    made = comparison(corpus, proxies=sizes, screener=SmallFirst(keep=1), seeds=1, fresh_seeds=0)
    found = run(made, tmp_path / "out")
    entries = found.journal.of("screen")
    assert {entry.job.candidate for entry in entries if entry.job.size == "small"} == set(made.candidates)
    assert len({entry.job.candidate for entry in entries if entry.job.size == "full"}) == 2
    judged = outcome(tmp_path / "out")
    assert list(judged.plan["proxies"]) == ["small", "full"]
    assert {trial.size for trial in judged.trials if trial.candidate == "raw"} == {"small", "full"}
    assert judged.baseline.constant.verdict == "baseline"
    verdicts = {row.constant.verdict for row in judged.rows[1:] if row.constant}
    assert verdicts <= {"one seed: no interval", "not reached (0 of 1)"}
