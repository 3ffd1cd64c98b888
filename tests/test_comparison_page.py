"""The page of a comparison: outcomes made up here, from their curves on, and a browser without a network."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataeff.compare.outcome import Outcome, Read, Row, Trial
from dataeff.efficiency.crossing import tokens_to_target
from dataeff.efficiency.curves import Curve
from dataeff.efficiency.goodput import HELD, HOUR_NS, Spending
from dataeff.efficiency.intervals import describe, holm, ratio, verdict
from dataeff.efficiency.samples import Sample
from dataeff.errors import MeasurementError
from dataeff.ledger import Tags, Window
from dataeff.prices import price_of
from dataeff.reports import comparison_plots as plots
from dataeff.reports.comparison_page import (
    answer,
    comparison_page,
    component_words,
    doubts,
    table,
    wasted,
    write_comparison_page,
)
from dataeff.reports.plots import ALL, INK, KEPT
from tests.test_report_browser import BACKGROUND, PAINTED, Visit, browser  # noqa: F401

HOSTILE = '<script>window.HACKED=1</script>"><img src=x onerror="window.HACKED=2">\N{RIGHT-TO-LEFT OVERRIDE}'
BUDGET, STEP = 270_000, 1_000
SIZE = "full"
PRICE = price_of("H100")


@dataclass(frozen=True, kw_only=True)
class Made:
    """What to make an outcome of."""

    speed: Mapping[str, float]
    """How many times the baseline's tokens each needs, the baseline first."""
    sources: tuple[str, ...] = ("web", "code", "books")
    seeds: int = 3
    fresh: int = 3
    finalists: tuple[str, ...] = ()
    stopped: Mapping[str, int] = field(default_factory=dict)
    """Tokens at which they were."""
    failed: tuple[str, ...] = ()
    annealed: bool = True
    target: float | None = 3.0
    screened_at: int = BUDGET
    """Tokens that the others have."""
    horizon: int = BUDGET


def loss_at(tokens: float, speed: float, seed: int) -> float:
    """A power law, and a little luck that stays with a seed."""
    luck = 1 + 0.01 * math.sin(7.3 * seed + 1.7 * speed)
    return 2.0 + 6.0 * (tokens / (speed * luck) / 4_000) ** -0.46


def outcome_of(out: Path, made: Made) -> Outcome:
    """An outcome, with ledgers of its trials on disk."""
    out.mkdir(parents=True, exist_ok=True)
    names = list(made.speed)
    trials = [trial for name in names for trial in _trials(out, made, name)]
    kinds = [(False, made.target)]
    kinds += [(True, made.target - 0.03)] if made.annealed and made.finalists and made.target else []
    reads = {annealed: _reads(made, trials, target, annealed=annealed) for annealed, target in kinds if target}
    rows = [_row(made, name, reads, trials) for name in names]
    targets = {annealed: {"loss": target, "rule": "as asked for"} for annealed, target in kinds if target}
    rows[1:] = sorted(rows[1:], key=lambda row: (row.annealed is None, _tokens(row) is None, _tokens(row) or 0))
    return Outcome(
        out=out,
        plan=_plan(made),
        target=targets.get(False),
        annealed_target=targets.get(True),
        rows=tuple(rows),
        trials=tuple(trials),
        tokens_per_s=1_000.0 if made.target else None,
        device_hours=sum(trial.device_ns for trial in trials) / HOUR_NS,
        screening_share=0.37,
        grid_device_hours=len(names) * made.seeds * BUDGET / 1_000 / 3600 if made.target else None,
    )


def _tokens(row: Row) -> float | None:
    return row.headline.described.mean_tokens if row.headline else None


def _trials(out: Path, made: Made, name: str) -> list[Trial]:
    baseline = name == next(iter(made.speed))
    last = made.stopped.get(name, BUDGET if baseline or name in made.finalists else made.screened_at)
    seeds = made.seeds if last == BUDGET else 1
    found = [_trial(out, made, name, seed, last) for seed in range(seeds)]
    if made.finalists and (baseline or name in made.finalists):
        for seed in range(made.seeds, made.seeds + made.fresh):
            found.append(_trial(out, made, name, seed, BUDGET))
            if made.annealed:
                found += [_trial(out, made, name, seed, round(part * BUDGET), annealed=True) for part in (0.5, 0.75, 1)]
    return found


def _trial(out: Path, made: Made, name: str, seed: int, last: int, *, annealed: bool = False) -> Trial:
    first = last * 4 // 5 if annealed else 0
    points = [tokens for tokens in range(10_000, last + 1, 10_000) if tokens > first] + (
        [last] if last % 10_000 else []
    )
    losses = {tokens: loss_at(tokens, made.speed[name], seed) - (0.03 if annealed else 0.0) for tokens in points}
    failed = name in made.failed
    folder = out / "trials" / SIZE / str(list(made.speed).index(name)) / f"seed-{seed}{f'-annealed-{last}' * annealed}"
    spent = _spend(folder, name, seed, last - first, failed=failed)
    curve = Curve.of(points, [math.nan if failed and tokens == last else losses[tokens] for tokens in points])
    return Trial(
        candidate=name,
        seed=seed,
        size=SIZE,
        folder=folder,
        curve=curve,
        losses={tokens: dict.fromkeys(made.sources, loss) for tokens, loss in losses.items()},
        device_ns=spent,
        train_ns=spent,
        step_tokens_done=last - first,
        failure="its loss is nan" if failed else "",
        annealed=annealed,
    )


def _spend(folder: Path, name: str, seed: int, tokens: int, *, failed: bool) -> int:
    """Write a ledger in which a second is a thousand tokens, and a tenth of each bucket besides."""
    folder.mkdir(parents=True, exist_ok=True)
    step = tokens * 1_000_000
    spent = {"startup": step // 10, "step": step, "data_wait": step // 20, "evaluation": step // 5}
    start = 1_000_000_000_000_000_000 + (10**15 if "annealed" in folder.name else 0)
    window = Window(
        # An annealed run writes under the name of the trial that it branches off.
        tags=Tags(run=f"{SIZE}/{name}/seed-{seed}", attempt=0, candidate=name),
        start_ns=start,
        stop_ns=start + sum(spent.values()),
        spent_ns=spent,
        step=tokens // STEP,
        end="failed" if failed else "finished",
    )
    (folder / "ledger.jsonl").write_text(json.dumps(asdict(window)) + "\n")
    return sum(spent.values())


def _reads(made: Made, trials: Sequence[Trial], target: float, *, annealed: bool) -> dict[str, Read]:
    arms: dict[str, dict[int, Any]] = {}
    for name in made.speed:
        if annealed:
            for seed in range(made.seeds, made.seeds + made.fresh):
                ends = [t for t in trials if (t.candidate, t.seed, t.annealed) == (name, seed, True) and t.curve]
                points = {float(t.curve.tokens[-1]): float(t.curve.losses[-1]) for t in ends if t.curve}
                if len(points) > 1:
                    curve = Curve.of(list(points), list(points.values()))
                    arms.setdefault(name, {})[seed] = tokens_to_target(curve, target, method="isotonic")
        else:
            for trial in (t for t in trials if t.candidate == name and not t.annealed and t.curve):
                assert trial.curve is not None
                crossing = tokens_to_target(trial.curve, target, method="isotonic")
                arms.setdefault(name, {})[trial.seed] = crossing
    base = next(iter(made.speed))
    fresh = {name: annealed or name in made.finalists for name in arms}
    for name in arms:
        if fresh[name]:
            arms[name] = {seed: crossing for seed, crossing in arms[name].items() if seed >= made.seeds}
    samples = {name: Sample.of(list(arm.values())) for name, arm in arms.items()}
    ratios = {name: _ratio(sample, samples[base]) for name, sample in samples.items() if name != base}
    adjusted = dict(zip(ratios, holm([one.p_value if one else None for one in ratios.values()]), strict=True))
    return {
        name: Read(
            crossings=tuple(arm.values()),
            seeds=tuple(arm),
            described=describe(samples[name]),
            ratio=ratios.get(name),
            p_value=adjusted.get(name),
            verdict="baseline"
            if name == base
            else verdict(ratios[name], p_value=adjusted[name])
            if ratios[name]
            else "the same runs as the baseline's",
            fresh=fresh[name],
        )
        for name, arm in arms.items()
    }


def _ratio(sample: Sample, baseline: Sample) -> Any:
    try:
        return ratio(sample, baseline)
    except MeasurementError:
        return None


def _weights(made: Made, name: str) -> dict[str, float]:
    place = list(made.speed).index(name)
    parts = [1 + (3 * place + number) % 5 for number in range(len(made.sources))]
    return {source: part / sum(parts) for source, part in zip(made.sources, parts, strict=True)}


def _row(made: Made, name: str, reads: Mapping[bool, Mapping[str, Read]], trials: Sequence[Trial]) -> Row:
    mine = [trial for trial in trials if trial.candidate == name]
    baseline = name == next(iter(made.speed))
    state = (
        "baseline" if baseline else "failed" if name in made.failed else "stopped" if name in made.stopped else "kept"
    )
    weights = _weights(made, name)
    return Row(
        candidate=name,
        corpus="raw",
        weights=weights,
        epochs={source: weight * made.horizon / 100_000 for source, weight in weights.items()},
        state=state,  # type: ignore[arg-type]
        why={"stopped": f"below the best 3 at {made.stopped.get(name)} tokens"}.get(state, "came to the full budget"),
        constant=reads.get(False, {}).get(name),
        annealed=reads.get(True, {}).get(name),
        num_failed=sum(bool(trial.failure) for trial in mine),
        device_hours=sum(trial.device_ns for trial in mine) / HOUR_NS,
    )


def _plan(made: Made) -> dict[str, Any]:
    return {
        "version": 1,
        "baseline": next(iter(made.speed)),
        "candidates": {
            name: {"corpus": "raw", "mixer": {"class": "Temperature", "temperature": 2.0}, "weights": {}, "epochs": {}}
            for name in made.speed
        },
        "domains": dict.fromkeys(made.sources[:-1], 1 / (len(made.sources) - 1)),
        "overlap": {source: {"tokens": 4096, "left": 3000, "raw": 0.2676} for source in made.sources},
        "supply": {"raw": dict.fromkeys(made.sources, 100_000)},
        "proxies": {SIZE: {"width": 64, "layers": 2, "heads": 2, "base_width": 32, "cost": 8192.0}},
        "screener": {"class": "SuccessiveHalving", "eta": 3},
        "budget_tokens": BUDGET,
        "step_tokens": STEP,
        "sequence_length": 125,
        "horizon_tokens": made.horizon,
        "seeds": made.seeds,
        "fresh_seeds": made.fresh,
        "finalists": 1,
        "annealed": [0.5, 0.75, 1.0],
        "schedule": {"learning_rate": 3e-3, "warmup_share": 0.05},
        "evaluations": 27,
        "target": None,
        "team": "",
        "project": "",
        "fingerprint": "8159dc0fff6040287dde84edbaeeef32",
    }


SHAPES: dict[str, Made] = {
    "finished": Made(
        speed={"raw": 1.0, "better": 0.8, "even": 1.1, "worse": 1.3},
        finalists=("better",),
        stopped={"worse": 30_000, "even": 90_000},
    ),
    "equal": Made(speed={"raw": 1.0, "same": 1.0001}, finalists=("same",), annealed=False),
    "not reached": Made(speed={"raw": 1.0, "other": 1.1}, target=1.9),
    "one seed": Made(speed={"raw": 1.0, "other": 0.8}, seeds=1, fresh=0),
    "running": Made(speed={"raw": 1.0, "other": 0.8}, target=None, screened_at=50_000),
    "hostile": Made(
        speed={HOSTILE: 1.0, f"{HOSTILE} 2": 0.8, "$$x$$ \\(y\\)": 1.0},
        sources=(f"{HOSTILE} a", "$$web$$", "\x1b[31mred", "fourth"),
        finalists=(f"{HOSTILE} 2",),
        failed=("$$x$$ \\(y\\)",),
    ),
    "many": Made(
        speed={"raw": 1.0} | {f"candidate_number_{number:02}_of_thirteen": 0.75 + number / 20 for number in range(13)},
        sources=("web", "code", "books", "papers", "forums", "encyclopaedia"),
        finalists=("candidate_number_00_of_thirteen", "candidate_number_02_of_thirteen"),
        stopped={f"candidate_number_{number:02}_of_thirteen": 30_000 for number in range(5, 13)},
        horizon=2_000_000,
    ),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return {
        name: outcome_of(tmp_path_factory.mktemp("comparison") / "pretraining", made) for name, made in SHAPES.items()
    }


@pytest.fixture(scope="module")
def pages(outcomes: dict[str, Outcome]) -> dict[str, str]:
    complaints: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: complaints.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("bokeh").addHandler(handler)
    found = {name: comparison_page(found, PRICE) for name, found in outcomes.items()}
    logging.getLogger("bokeh").removeHandler(handler)
    return {**found, "what Bokeh complained about": "\n".join(complaints)}


def test_a_winner_is_named_with_what_it_saves_and_how_sure_that_is(outcomes: dict[str, Outcome]):
    found = answer(outcomes["finished"])
    assert found.sentence.startswith("Use <bdi>better</bdi>: it reaches the target with ")
    read = outcomes["finished"].rows[1].annealed
    assert read is not None
    assert read.ratio is not None
    assert f"{100 * (1 - read.ratio.ratio):.1f} % fewer tokens" in found.sentence
    assert f"({100 * (1 - read.ratio.high):.1f} to {100 * (1 - read.ratio.low):.1f} %, 95 % interval)" in found.sentence
    assert found.grounds[0].startswith("verdict: cheaper, p ")
    assert "3 annealed runs with fresh seeds" in found.grounds[0]


def test_equals_are_told_as_no_difference_with_the_seeds_that_it_would_take(outcomes: dict[str, Outcome]):
    found = answer(outcomes["equal"])
    assert found.sentence.startswith("No difference found")
    assert found.grounds[0].startswith("the nearest, same")


def test_a_target_that_nobody_reached_has_no_answer_and_figures_without_an_end(outcomes: dict[str, Outcome]):
    assert answer(outcomes["not reached"]).sentence.startswith("No answer: no run reached the target of 1.9000 nats")
    lines = table(outcomes["not reached"], None)
    assert [line.constant.figure for line in lines] == ["> 270,000", "> 270,000"]
    assert [line.hours.figure for line in lines] == ["> 0.075", "> 0.075"]


def test_one_seed_gives_no_interval_and_no_winner(outcomes: dict[str, Outcome]):
    found = outcomes["one seed"]
    assert answer(found).sentence.startswith("No difference found")
    line = table(found, None)[1]
    assert line.constant.note == "no interval"
    assert line.saving.note == "no interval"
    assert any("fewer than three seeds" in doubt for doubt in doubts(found))


def test_without_a_target_there_is_no_answer_yet(outcomes: dict[str, Outcome], pages: dict[str, str]):
    assert answer(outcomes["running"]).sentence.startswith("No answer yet: the baseline")
    assert 'data-chart="losses"' in pages["running"]
    assert 'data-chart="costs"' not in pages["running"]


def test_a_candidate_that_only_looked_good_while_screening_does_not_win_over_fresh_seeds(tmp_path: Path):
    made = Made(speed={"raw": 1.0, "lucky": 0.7, "final": 1.0001}, finalists=("final",))
    found = outcome_of(tmp_path / "out", made)
    assert {row.candidate: row.headline.verdict for row in found.rows if row.headline}["lucky"] == "cheaper"
    assert "lucky" not in answer(found).sentence
    assert answer(found).sentence.startswith("No difference found")


def test_dearer_candidates_leave_the_baseline(tmp_path: Path):
    found = outcome_of(tmp_path / "out", Made(speed={"raw": 1.0, "dear": 1.3}, finalists=("dear",), annealed=False))
    assert answer(found).sentence == "Stay with <bdi>raw</bdi>: all others that were judged need more tokens."
    assert table(found, None)[1].tone == "dearer"
    assert table(found, None)[1].saving.figure.startswith("\N{MINUS SIGN}")


def test_a_baseline_that_never_gets_there_loses_by_a_bound(tmp_path: Path):
    made = Made(speed={"raw": 2.0, "better": 1.0}, target=loss_at(BUDGET, 1.5, 0), fresh=0)
    found = outcome_of(tmp_path / "out", made)
    read = found.rows[1].headline
    assert read is not None
    assert read.ratio is not None
    assert read.ratio.method == "bound"
    assert answer(found).sentence.startswith("Use <bdi>better</bdi>: it reaches the target with at least ")
    assert table(found, None)[1].saving.figure.startswith("at least ")


def test_runs_that_are_under_way_are_named(tmp_path: Path):
    found = outcome_of(tmp_path / "out", Made(speed={"raw": 1.0, "final": 0.8}, finalists=("final",), annealed=False))
    assert not any("not at their budget" in doubt for doubt in doubts(found))
    cut = found.trials[-1]
    short = replace(cut, losses={tokens: losses for tokens, losses in cut.losses.items() if tokens <= BUDGET // 2})
    waiting = replace(found, trials=(*found.trials[:-1], short))
    assert any(doubt.startswith("1 runs of the baseline or of finalists") for doubt in doubts(waiting))


def test_stopped_candidates_say_why_and_dollars_come_with_a_price_only(
    outcomes: dict[str, Outcome], pages: dict[str, str]
):
    assert "stopped: below the best 3 at 30000 tokens" in pages["finished"]
    assert '<tr class="stopped">' in pages["finished"]
    assert ">Dollars<" in pages["finished"]
    assert "Nebius on demand" in pages["finished"]
    free = comparison_page(outcomes["finished"], None)
    assert ">Dollars<" not in free
    assert "$" not in free[free.index("<main>") : free.index("</main>")]


def test_figures_stay_comparable_where_only_finalists_were_annealed(outcomes: dict[str, Outcome]):
    lines = {line.row.candidate: line for line in table(outcomes["finished"], None)}
    assert lines["better"].annealed.figure != "–"
    assert lines["even"].annealed.figure == "–"
    assert "constant rate" not in lines["better"].saving.note
    names = [bar.name for bar in plots.bars(outcomes["finished"])]
    assert names[:3] == ["raw, annealed", "better, annealed", "raw, constant rate"]


@pytest.mark.parametrize("shape", ["finished", "many"])
def test_equal_outcomes_make_equal_pages(outcomes: dict[str, Outcome], pages: dict[str, str], shape: str):
    assert comparison_page(outcomes[shape], PRICE) == pages[shape]


def test_no_page_names_its_folder(outcomes: dict[str, Outcome], pages: dict[str, str]):
    assert [name for name, found in outcomes.items() if str(found.out.parent) in pages[name]] == []


def test_charts_refer_to_no_column_that_they_lack(pages: dict[str, str]):
    assert pages["what Bokeh complained about"] == ""


def test_hostile_names_are_text_wherever_they_stand(pages: dict[str, str]):
    shown = pages["hostile"]
    assert "<script>window" not in shown
    assert "<img" not in shown
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in shown
    assert "\x1b" not in shown
    assert "&lt;script&gt;window" in shown


def test_what_is_written_is_the_page(outcomes: dict[str, Outcome], pages: dict[str, str], tmp_path: Path):
    path = write_comparison_page(outcomes["equal"], tmp_path / "below" / "report.html", PRICE)
    assert path.read_text(encoding="utf-8") == pages["equal"]


def test_sources_repeated_more_than_four_times_are_marked(outcomes: dict[str, Outcome], pages: dict[str, str]):
    rows = outcomes["many"].rows
    marked = sum(epochs > 4 for row in rows for epochs in row.epochs.values())
    assert 0 < marked < len(rows) * 6
    assert pages["many"].count('class="n many"') == marked


def test_only_the_baseline_and_finalists_have_colours(outcomes: dict[str, Outcome]):
    colours = plots.coloured(outcomes["many"])
    assert list(colours) == ["raw", "candidate_number_00_of_thirteen", "candidate_number_02_of_thirteen"]
    assert (colours["raw"], colours["candidate_number_00_of_thirteen"]) == (INK, KEPT)
    bars = plots.bars(outcomes["many"])
    assert {bar.colour for bar in bars if "number_07" in bar.name} == {ALL}
    assert len({bar.label for bar in bars}) == len(bars)


def test_annealed_branches_are_runs_of_their_own_and_failed_ones_are_named(outcomes: dict[str, Outcome]):
    found = outcomes["hostile"]
    waste = wasted(found)
    assert waste is not None
    assert any(trial.annealed for trial in found.trials)
    assert waste.total.allocated_ns == sum(trial.device_ns for trial in found.trials)
    assert "unaccounted" not in waste.total.spent_ns
    failed = [trial for trial in found.trials if trial.failure]
    assert (waste.num_failed, waste.failed_ns) == (len(failed), sum(trial.device_ns for trial in failed))
    assert len(failed) == 3


def test_stopped_candidates_trials_are_summed(outcomes: dict[str, Outcome], pages: dict[str, str]):
    found = outcomes["finished"]
    waste = wasted(found)
    assert waste is not None
    mine = [trial for trial in found.trials if trial.candidate in ("worse", "even")]
    assert (waste.num_stopped, waste.stopped_ns) == (2, sum(trial.device_ns for trial in mine))
    assert "2 trials of candidates that were stopped early took" in pages["finished"]
    assert "at the measured speed, so about" in pages["finished"]
    assert "at the measured speed, so about" not in pages["running"]


def test_without_ledgers_nothing_is_said_of_waste(tmp_path: Path):
    found = outcome_of(tmp_path / "out", Made(speed={"raw": 1.0, "other": 0.8}))
    for path in (tmp_path / "out").rglob("ledger.jsonl"):
        path.unlink()
    assert wasted(found) is None
    assert "No run kept a ledger" in comparison_page(found, None)


BUCKETS = ("step", "startup", "compile", "data_wait", "evaluation", "checkpoint", "lost_to_restart", "idle")


@given(st.dictionaries(st.sampled_from(BUCKETS), st.integers(1, 10**15), min_size=1))
def test_the_waterfall_falls_from_all_time_to_kept_steps_without_a_gap(spent: dict[str, int]):
    step = spent.get("step", 0)
    total = Spending(
        **{"names": (), "num_runs": 1, "spent_ns": spent, "held_ns": step // 3, "measured_ns": sum(spent.values())},
        **{"demand_ns": 0, "queued_wall_ns": None, "usd": None, "num_failed": 0, "failed_ns": 0, "failed_usd": None},
        **{"num_stopped": 0, "stopped_ns": 0, "stopped_usd": None},
    )
    steps = plots.falls(total)
    assert steps[0][1] == (steps[1][1] if len(steps) > 2 else total.allocated_ns)
    assert [after for _, _, after, _ in steps[1:-1]] == [before for _, before, _, _ in steps[2:]]
    assert steps[-1][1] == total.productive_ns
    assert len(steps) == 2 + len(set(spent) - {"step"}) + (HELD in total.waste_ns)


@given(st.lists(st.lists(st.floats(1, 9), min_size=1, max_size=6), min_size=1, max_size=4))
def test_a_mean_line_is_of_the_seeds_that_went_furthest(seeds: list[list[float]]):
    curves = [{1_000.0 * (place + 1): loss for place, loss in enumerate(losses)} for losses in seeds]
    mean, number = plots.mean_curve(curves)
    longest = [losses for losses in seeds if len(losses) == max(map(len, seeds))]
    assert number == len(longest)
    assert list(mean) == [1_000.0 * (place + 1) for place in range(len(longest[0]))]
    expected = [sum(column) / number for column in zip(*longest, strict=True)]
    assert list(mean.values()) == pytest.approx(expected)


def test_mixtures_are_coloured_by_losses_at_equal_tokens_and_seeds(outcomes: dict[str, Outcome]):
    equal = plots.equal_losses(outcomes["finished"])
    assert equal is not None
    tokens, losses = equal
    assert tokens == 30_000
    assert losses == {name: loss_at(30_000, speed, 0) for name, speed in SHAPES["finished"].speed.items()}
    colours = plots.loss_colours(losses)
    assert colours["better"] == plots.ramp(0.0)
    assert colours["worse"] == plots.ramp(1.0)


def test_candidates_that_share_no_tokens_have_no_loss_colours(outcomes: dict[str, Outcome]):
    found = outcomes["equal"]
    other = [trial for trial in found.trials if trial.candidate == "same"]
    moved = [replace(trial, seed=trial.seed + 100) for trial in other]
    alone = replace(found, trials=(*(t for t in found.trials if t.candidate == "raw"), *moved))
    assert plots.equal_losses(alone) is None
    assert "No colours:" in comparison_page(alone, None)


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(lambda parts: sum(parts) > 0.01))
def test_a_mixture_of_three_lies_in_the_triangle_and_its_height_is_the_third(parts: list[float]):
    first, second, third = (part / sum(parts) for part in parts)
    x, y = plots.place_in_triangle((first, second, third))
    height = math.sqrt(3) / 2
    assert y / height == pytest.approx(third)
    # Distances from the other two sides, which the other two weights are.
    assert height * x - y / 2 == pytest.approx(height * second, abs=1e-9)
    assert height * (1 - x) - y / 2 == pytest.approx(height * first, abs=1e-9)


def test_three_sources_make_a_triangle_and_more_make_lines(outcomes: dict[str, Outcome]):
    kinds = {
        shape: {type(renderer.glyph).__name__ for renderer in plots.mixtures(outcomes[shape]).renderers}
        for shape in ("finished", "many")
    }
    assert "Patch" in kinds["finished"]
    assert "MultiLine" in kinds["many"]
    assert "Patch" not in kinds["many"]


def test_what_was_not_reached_is_hatched_and_open_to_the_right(outcomes: dict[str, Outcome]):
    plot = plots.costs(outcomes["finished"], PRICE)
    reached, missed = plot.renderers[:2]
    assert "worse" in missed.data_source.data["label"]
    assert "worse" not in reached.data_source.data["label"]
    assert missed.glyph.hatch_pattern == "right_diagonal_line"
    arrows = [r for r in plot.renderers if getattr(r.glyph, "marker", "") == "triangle"]
    ends = dict(zip(missed.data_source.data["label"], missed.data_source.data["right"], strict=True))
    drawn = dict(zip(arrows[-1].data_source.data["y"], arrows[-1].data_source.data["x"], strict=True))
    assert {label: drawn[label] for label in ends} == pytest.approx(ends)
    above = plot.above[0]
    assert len(above.ticker.ticks) >= 3
    for hours, dollars in above.major_label_overrides.items():
        assert hours * PRICE.usd_per_hour == pytest.approx(float(dollars))
        assert hours <= plot.x_range.end


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (plots.cut_middle("candidate_number_07_of_thirteen", 18), "candidat…_thirteen"),
        (plots.cut_middle("short", 18), "short"),
        (plots.tokens_words(198_290.9), "198,000"),
        (plots.tokens_words(23_449_000), "23.4 M"),
        (plots.hours_words(0.013571), "0.0136"),
        (plots.hours_words(12_345.6), "12,346"),
        (plots.usd_words(0.0), "$0.00"),
        (plots.usd_words(0.0384), "$0.0384"),
        (plots.usd_words(0.161), "$0.161"),
        (plots.usd_words(12.345), "$12.35"),
        (plots.usd_words(1234.5), "$1,234"),
        (component_words({"class": "Natural"}), "Natural()"),
        (component_words({"class": "Unimax", "max_epochs": 4.0}), "Unimax(max_epochs=4.0)"),
    ],
)
def test_figures_and_components_are_told_in_words(made: str, words: str):
    assert made == words


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_chart_is_drawn_and_the_page_asks_for_nothing(
    browser: Any,  # noqa: F811
    outcomes: dict[str, Outcome],
    tmp_path: Path,
    shape: str,
    width: int,
):
    path = write_comparison_page(outcomes[shape], tmp_path / "report.html", PRICE)
    with Visit(browser, path, width=width) as visit:
        page = visit.page
        assert {"losses", "mixtures", "waste"} <= set(page.evaluate(PAINTED))
        assert ("costs" in page.evaluate(PAINTED)) == (shape != "running")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        for section in ("candidates", "mixtures", "waste", "validation", "how"):
            assert page.locator(f"#{section} h2").is_visible()
        for place in page.locator(".chart").all():
            place.scroll_into_view_if_needed()
            box = place.bounding_box()
            for part in (0.3, 0.6):
                page.mouse.move(box["x"] + box["width"] * part, box["y"] + box["height"] * 0.5)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate("window.HACKED") is None
        assert visit.requests == [path.as_uri()]
        assert visit.complaints == []


def test_a_dark_page_draws_too(browser: Any, outcomes: dict[str, Outcome], tmp_path: Path):  # noqa: F811
    path = write_comparison_page(outcomes["finished"], tmp_path / "report.html", None)
    with Visit(browser, path, dark=True) as visit:
        assert visit.page.evaluate(BACKGROUND) < 150
        assert visit.complaints == []
