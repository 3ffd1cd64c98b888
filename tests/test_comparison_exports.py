"""A comparison as tables and as an Optuna study, read back by others: pyarrow, csv and Optuna itself."""

from __future__ import annotations

import csv
import errno
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataeff.compare.optuna_study import export_study
from dataeff.compare.outcome import Outcome, Read, Row, Trial
from dataeff.compare.tables import CANDIDATES, CURVES, candidates_table, curves_table, ended, name_of, write_tables
from dataeff.efficiency.crossing import Crossing
from dataeff.efficiency.intervals import describe, ratio, verdict
from dataeff.efficiency.samples import Sample
from dataeff.errors import FormatError, PlanError, StorageError
from dataeff.ledger import Ledger, Tags
from dataeff.prices import stated
from dataeff.proxy_runs import read_runs

BUDGET = 4000
STEP = 100
WEIGHTS = {
    "raw": {"books": 0.75, "web": 0.25},
    "even": {"books": 0.5, "web": 0.5},
    "clean": {"books": 1.0000000000000002},
}
CORPORA = {"raw": "all", "even": "all", "clean": "filtered"}


def plan(**changes: Any) -> dict[str, Any]:
    return {
        "fingerprint": "0123456789abcdef0123456789abcdef",
        "baseline": "raw",
        "candidates": {name: {"corpus": CORPORA[name], "weights": WEIGHTS[name]} for name in WEIGHTS},
        "domains": {"books": 0.5, "web": 0.5},
        "supply": {corpus: {"books": 10_000, "web": 20_000} for corpus in sorted(set(CORPORA.values()))},
        "proxies": {"small": {"width": 32, "cost": 1.0}, "full": {"width": 64, "cost": 4.0}},
        "screener": {"class": "FullGrid"},
        "budget_tokens": BUDGET,
        "step_tokens": STEP,
        "sequence_length": 10,
        "horizon_tokens": 2 * BUDGET,
        "seeds": 2,
        "fresh_seeds": 0,
        "finalists": 1,
        "annealed": [0.5, 1.0],
        "schedule": {"learning_rate": 0.003, "warmup_share": 0.05},
        "team": "data",
        "project": "",
        **changes,
    }


def trial(out: Path, candidate: str, seed: int, tokens: int, **changes: Any) -> Trial:
    """A run that has read its loss each 1,000 tokens, until `tokens`; better with a later seed."""
    size, branch = changes.get("size", "full"), changes.pop("branch", "")
    losses = {at: {"books": 4 - at / 2000 - seed / 100, "web": 5 - at / 2000} for at in range(1000, tokens + 1, 1000)}
    return Trial(
        **{
            "candidate": candidate,
            "seed": seed,
            "size": size,
            "folder": out / "trials" / size / candidate / f"seed-{seed}{branch}",
            "curve": None,
            "losses": losses,
            "device_ns": 3_600_000_000_000,
            "train_ns": 1_000_000_000,
            "step_tokens_done": tokens,
            "failure": "",
            "annealed": bool(branch),
            **changes,
        }
    )


def read(tokens: tuple[int | None, ...], baseline: tuple[int | None, ...] | None = None) -> Read:
    crossings = tuple(Crossing(tokens=at, method="isotonic", budget_tokens=BUDGET) for at in tokens)
    sample = Sample.of(crossings)
    found = None
    if baseline is not None:
        others = tuple(Crossing(tokens=at, method="isotonic", budget_tokens=BUDGET) for at in baseline)
        found = ratio(sample, Sample.of(others))
    return Read(
        crossings=crossings,
        seeds=tuple(range(len(tokens))),
        described=describe(sample),
        ratio=found,
        p_value=found.p_value if found else None,
        verdict=verdict(found, p_value=found.p_value) if found else "baseline",
        fresh=False,
    )


def compared(out: Path) -> Outcome:
    """A small comparison that goes on: `raw` is done, `even` is at its last seed, `clean` stopped and once failed."""
    rows = {
        "raw": ("baseline", "carried to the end", read((3000, 3100)), read((2000, 2050))),
        "even": ("kept", "goes on", read((2000, 2600), (3000, 3100)), None),
        "clean": ("stopped", "2nd of 2 at 1,000 tokens", read((None,), (3000, 3100)), None),
    }
    diverged = {1000: {"books": 3.5, "web": 4.5}, 2000: {"books": math.nan, "web": 9.0}}
    return Outcome(
        out=out,
        plan=plan(),
        target={"loss": 3.0, "rule": "as asked for", "phase": "constant"},
        annealed_target={"loss": 2.9, "rule": "as asked for", "phase": "annealed"},
        rows=tuple(
            Row(
                candidate=name,
                corpus=CORPORA[name],
                weights=WEIGHTS[name],
                epochs=dict.fromkeys(WEIGHTS[name], 0.5),
                state=state,  # type: ignore[arg-type]
                why=why,
                constant=constant,
                annealed=annealed,
                num_failed=int(name == "clean"),
                device_hours=2.0,
            )
            for name, (state, why, constant, annealed) in rows.items()
        ),
        trials=(
            # Better than all of the full size, so that whoever compares across sizes is found out.
            trial(out, "raw", 0, 4000, size="small", losses={4000: {"books": 0.5, "web": 0.5}}),
            trial(out, "raw", 0, 4000),
            trial(out, "raw", 0, 4000, branch="-annealed-40"),
            trial(out, "raw", 0, 2000, branch="-annealed-20"),
            trial(out, "raw", 1, 4000),
            trial(out, "even", 0, 4000),
            trial(out, "even", 1, 2000),
            trial(out, "clean", 0, 1000),
            trial(out, "clean", 1, 2000, losses=diverged, failure="its validation loss is nan"),
        ),
        tokens_per_s=1000.0,
        device_hours=9.0,
        screening_share=0.5,
        grid_device_hours=12.0,
    )


@pytest.fixture
def found(tmp_path: Path) -> Outcome:
    return compared(tmp_path / "compared")


def test_a_candidate_is_a_row_with_all_that_was_found_of_it(found: Outcome):
    table = candidates_table(found, stated(2.0))
    raw, even, clean = table.to_pylist()
    assert table.schema == CANDIDATES
    assert [row["candidate"] for row in (raw, even, clean)] == ["raw", "even", "clean"]
    assert even["tokens_to_target"] == pytest.approx(math.sqrt(2000 * 2600))
    assert even["low_tokens"] < even["tokens_to_target"] < even["high_tokens"]
    assert even["low_ratio"] < even["ratio"] < even["high_ratio"]
    assert (even["num_reached"], even["num_runs"], even["seeds"]) == (2, 2, [0, 1])
    assert even["device_hours_to_target"] == pytest.approx(even["tokens_to_target"] / 1000 / 3600)
    assert even["usd_to_target"] == pytest.approx(2 * even["device_hours_to_target"])
    assert (even["device_hours_spent"], even["usd_spent"]) == (2.0, 4.0)
    assert (even["state"], even["why"], even["verdict"]) == ("kept", "goes on", found.rows[1].constant.verdict)
    assert even["weights"] == [("books", 0.5), ("web", 0.5)]
    assert even["price"] == "$2.00 an hour (as given)"
    assert clean["num_failed"] == 1


def test_the_figures_are_those_of_annealed_runs_where_there_are_some(found: Outcome):
    raw, even, _ = candidates_table(found, None).to_pylist()
    assert (raw["schedule"], raw["target_loss"]) == ("annealed", 2.9)
    assert raw["tokens_to_target"] == pytest.approx(math.sqrt(2000 * 2050))
    assert (even["schedule"], even["target_loss"]) == ("constant", 3.0)


def test_a_candidate_that_never_reached_the_target_has_a_bound_and_no_figure(found: Outcome):
    clean = candidates_table(found, stated(2.0)).to_pylist()[2]
    assert clean["tokens_to_target"] is None
    assert clean["usd_to_target"] is None
    assert clean["low_tokens"] == pytest.approx(BUDGET)
    assert clean["high_tokens"] == math.inf
    assert (clean["num_reached"], clean["num_runs"]) == (0, 1)


def test_a_candidate_without_a_curve_is_a_row_all_the_same(found: Outcome):
    bare = replace(found, rows=(found.rows[0], replace(found.rows[1], constant=None)))
    row = candidates_table(bare, None).to_pylist()[1]
    assert (row["candidate"], row["schedule"], row["verdict"], row["seeds"]) == ("even", None, None, None)


def test_without_a_price_there_are_no_dollars(found: Outcome):
    table = candidates_table(found, None)
    assert all(table[name].null_count == 3 for name in ("price", "usd_to_target", "usd_spent"))
    assert table["device_hours_to_target"].null_count == 1


def test_a_reading_is_a_row_with_the_loss_in_all_and_by_source(found: Outcome):
    table = curves_table(found)
    assert table.schema == CURVES
    assert table.num_rows == sum(len(trial.losses) for trial in found.trials)
    rows = [row for row in table.to_pylist() if row["trial"] == "full/even/seed-1"]
    assert [row["tokens"] for row in rows] == [1000, 2000]
    assert rows[0]["losses"] == [("books", 3.49), ("web", 4.5)]
    assert rows[0]["loss"] == pytest.approx((3.49 + 4.5) / 2)
    assert [row["annealed"] for row in table.to_pylist() if row["trial"] == "full/raw/seed-0-annealed-20"] == [True] * 2


def test_no_two_trials_have_one_name(found: Outcome):
    assert len({name_of(trial) for trial in found.trials}) == len(found.trials)


@pytest.mark.parametrize(
    ("number", "state"),
    [(0, "complete"), (1, "complete"), (3, "complete"), (6, "paused"), (7, "stopped"), (8, "failed")],
)
def test_a_trial_ends_in_one_of_four_ways(found: Outcome, number: int, state: str):
    assert ended(found, found.trials[number]) == state


def test_parquet_files_hold_the_tables(found: Outcome, tmp_path: Path):
    paths = write_tables(found, tmp_path / "tables", stated(2.0))
    assert {path.name for path in paths} == {
        f"{name}.{kind}" for name in ("candidates", "curves", "runs-all") for kind in ("csv", "parquet")
    }
    assert sorted(paths) == sorted((tmp_path / "tables").iterdir())
    assert pq.read_table(tmp_path / "tables" / "candidates.parquet").equals(candidates_table(found, stated(2.0)))
    curves = pq.read_table(tmp_path / "tables" / "curves.parquet")
    # A loss that is no number equals nothing, so texts are compared.
    assert str(curves.to_pylist()) == str(curves_table(found).to_pylist())


def test_csv_files_have_a_column_a_source(found: Outcome, tmp_path: Path):
    write_tables(found, tmp_path, stated(2.0))
    with (tmp_path / "candidates.csv").open(newline="", encoding="utf-8") as file:
        raw, even, clean = csv.DictReader(file)
    assert (float(raw["weights.books"]), float(raw["weights.web"])) == (0.75, 0.25)
    assert clean["weights.web"] == ""
    assert even["seeds"] == "0 1"
    assert clean["high_tokens"] == "inf"


names = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=8)
losses = st.floats(0, 20) | st.just(math.nan) | st.just(math.inf)


@settings(max_examples=25)
@given(st.dictionaries(names, losses, min_size=1, max_size=4), st.integers(1, 2**53))
def test_a_reading_comes_back_from_csv_to_the_bit(tmp_path_factory: Any, by_source: dict[str, float], tokens: int):
    folder = tmp_path_factory.mktemp("curves")
    bare = compared(folder)
    alone = trial(folder, "raw", 0, 0, losses={tokens: by_source})
    write_tables(replace(bare, plan=plan(domains=dict.fromkeys(by_source, 1.0)), trials=(alone,)), folder, None)
    with (folder / "curves.csv").open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert int(row["tokens"]) == tokens
    assert {name: repr(float(row[f"losses.{name}"])) for name in by_source} == {
        name: repr(value) for name, value in by_source.items()
    }


def test_a_full_disk_leaves_what_was_there(found: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_tables(found, tmp_path, None)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_csv = pyarrow.csv.write_csv

    def full(table: Any, sink: Any) -> None:
        if "tokens" in table.column_names:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_csv(table, sink)

    monkeypatch.setattr("pyarrow.csv.write_csv", full)
    with pytest.raises(StorageError, match="the disk is full"):
        write_tables(found, tmp_path, stated(2.0))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.fixture
def optuna() -> ModuleType:
    module = pytest.importorskip("optuna")
    module.logging.set_verbosity(module.logging.WARNING)
    return module


def opened(optuna: ModuleType, storage: str) -> Any:
    if "://" in storage:
        return storage
    return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(storage))


def by_name(study: Any) -> Mapping[tuple[str, int, str], Any]:
    return {tuple(trial.user_attrs[name] for name in ("candidate", "seed", "size")): trial for trial in study.trials}


@pytest.mark.parametrize("address", ["{}/new/study.log", "sqlite:///{}/study.db"])
def test_optuna_reads_a_trial_for_each_candidate_seed_and_size(
    optuna: ModuleType, found: Outcome, tmp_path: Path, address: str
):
    storage = address.format(tmp_path)
    name = export_study(found, storage)
    study = optuna.load_study(study_name=name, storage=opened(optuna, storage))
    trials = by_name(study)
    assert len(study.trials) == len(trials) == 7
    assert {key: trial.state.name for key, trial in trials.items()} == {
        ("raw", 0, "small"): "PRUNED",
        ("raw", 0, "full"): "COMPLETE",
        ("raw", 1, "full"): "COMPLETE",
        ("even", 0, "full"): "COMPLETE",
        ("even", 1, "full"): "RUNNING",
        ("clean", 0, "full"): "PRUNED",
        ("clean", 1, "full"): "FAIL",
    }
    even = trials["even", 0, "full"]
    assert even.value == 2.5
    assert even.intermediate_values == {1000: 4.0, 2000: 3.5, 3000: 3.0, 4000: 2.5}
    assert even.params == {"corpus": "all", "weight.books": 0.5, "weight.web": 0.5}
    assert math.isnan(trials["clean", 1, "full"].intermediate_values[2000])
    assert trials["clean", 1, "full"].user_attrs["why"] == "its validation loss is nan"
    assert trials["clean", 0, "full"].params == {"corpus": "filtered", "weight.books": 1.0, "weight.web": 0.0}
    assert trials["raw", 0, "full"].user_attrs["annealed_loss_by_tokens"] == {"2000": 3.5, "4000": 2.5}
    small = trials["raw", 0, "small"]
    assert (small.value, small.intermediate_values) == (None, {4000: 0.5}), "it compares with none of the full size"


def test_the_best_trial_is_one_of_the_proxy_that_decides(optuna: ModuleType, found: Outcome, tmp_path: Path):
    storage = str(tmp_path / "study.log")
    study = optuna.load_study(study_name=export_study(found, storage), storage=opened(optuna, storage))
    assert (study.best_trial.user_attrs["candidate"], study.best_trial.user_attrs["seed"]) == ("raw", 1)
    assert study.best_value == pytest.approx((1.99 + 3) / 2)
    assert set(study.best_params) == set(optuna.importance.get_param_importances(study))


def test_a_study_says_what_was_found_in_plain_json(optuna: ModuleType, found: Outcome, tmp_path: Path):
    storage = str(tmp_path / "study.log")
    study = optuna.load_study(study_name=export_study(found, storage), storage=opened(optuna, storage))
    said = study.user_attrs
    assert (said["baseline"], said["deciding_size"], said["team"], said["num_trials"]) == ("raw", "full", "data", 7)
    assert said["candidates"]["even"]["verdict"] == found.rows[1].constant.verdict
    assert said["candidates"]["even"]["ratio"] == found.rows[1].constant.ratio.ratio
    low, high = said["candidates"]["clean"]["tokens_interval"]
    assert (low, high) == (pytest.approx(BUDGET), None)
    assert json.dumps(said, allow_nan=False)


def test_a_study_has_the_times_of_the_ledger(optuna: ModuleType, found: Outcome, tmp_path: Path):
    ledger = Ledger(found.trials[1].folder / "ledger.jsonl", Tags(run="raw", attempt=0), unix_ns=1_700_000_000 * 10**9)
    ledger.write("finished")
    storage = str(tmp_path / "study.log")
    study = optuna.load_study(study_name=export_study(found, storage), storage=opened(optuna, storage))
    assert int(by_name(study)["raw", 0, "full"].datetime_start.timestamp()) == 1_700_000_000


@pytest.mark.parametrize("address", ["{}/study.log", "sqlite:///{}/study.db"])
def test_a_study_that_is_written_again_is_replaced_and_others_are_left_alone(
    optuna: ModuleType, found: Outcome, tmp_path: Path, address: str
):
    storage = address.format(tmp_path)
    optuna.create_study(storage=opened(optuna, storage), study_name="theirs")
    name = export_study(replace(found, trials=found.trials[:2]), storage)
    assert export_study(found, storage) == name
    assert export_study(found, storage) == name
    assert sorted(optuna.get_all_study_names(opened(optuna, storage))) == [name, "theirs"]
    assert len(optuna.load_study(study_name=name, storage=opened(optuna, storage)).trials) == 7


def test_a_study_of_that_name_that_is_not_ours_is_refused(optuna: ModuleType, found: Outcome, tmp_path: Path):
    storage = str(tmp_path / "study.log")
    theirs = optuna.create_study(storage=opened(optuna, storage), study_name="dataeff-0123456789ab")
    theirs.add_trial(optuna.trial.create_trial(value=1.0))
    with pytest.raises(PlanError, match="not of this comparison"):
        export_study(found, storage)
    assert len(optuna.load_study(study_name="dataeff-0123456789ab", storage=opened(optuna, storage)).trials) == 1


def test_a_file_that_is_no_journal_is_refused_and_kept(optuna: ModuleType, found: Outcome, tmp_path: Path):
    for text in ("notes\n", "17\n", '{"a": 1}'):
        (tmp_path / "notes.txt").write_text(text)
        with pytest.raises(FormatError, match="not a journal file"):
            export_study(found, str(tmp_path / "notes.txt"))
        assert (tmp_path / "notes.txt").read_text() == text


def test_a_storage_that_cannot_be_opened_is_named_without_its_password(
    optuna: ModuleType, found: Outcome, tmp_path: Path
):
    with pytest.raises(StorageError, match="unable to open database file"):
        export_study(found, f"sqlite:///{tmp_path}/absent/study.db")
    with pytest.raises(StorageError, match="is a folder"):
        export_study(found, str(tmp_path))
    with pytest.raises(StorageError, match="nosuch://host/x") as caught:
        export_study(found, "nosuch://me:secret@host/x")
    assert "secret" not in str(caught.value)


def test_optuna_says_as_much_as_before_afterwards(optuna: ModuleType, found: Outcome, tmp_path: Path):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    export_study(found, str(tmp_path / "study.log"))
    assert optuna.logging.get_verbosity() == optuna.logging.ERROR


def test_without_optuna_the_extra_is_named(found: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(PlanError, match=r"dataeff\[optuna\]"):
        export_study(found, str(tmp_path / "study.log"))


def test_whole_trials_of_a_corpus_are_what_the_mixer_regression_learns_from(found: Outcome, tmp_path: Path):
    write_tables(found, tmp_path / "tables", None)
    runs = read_runs(tmp_path / "tables" / "runs-all.parquet")
    whole = [
        trial
        for trial in found.trials
        if CORPORA[trial.candidate] == "all" and trial.size == "full" and BUDGET in trial.losses and not trial.annealed
    ]
    kept = [trial for trial in whole if not trial.failure]
    assert runs.sources == runs.domains == ("books", "web")
    assert len(runs.losses) == len(kept) > 0
    assert runs.weights[0].tolist() == [WEIGHTS[kept[0].candidate]["books"], WEIGHTS[kept[0].candidate]["web"]]
    assert runs.losses[0].tolist() == [kept[0].losses[BUDGET][name] for name in ("books", "web")]
