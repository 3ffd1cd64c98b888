"""A comparison as one web page: which candidate to use, what it saves, how sure that is, and what finding out cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jinja2
from markupsafe import Markup

from dataeff.compare.outcome import Outcome, Read, Row, Trial, device_hours_to, usd
from dataeff.efficiency.goodput import HOUR_NS, Spending, spending
from dataeff.efficiency.intervals import Ratio
from dataeff.ledger import FILE, Window, read_ledger
from dataeff.manifest import committed
from dataeff.prices import Price
from dataeff.reports import comparison_plots as drawn
from dataeff.reports.comparison_plots import hours_words, tokens_words, usd_words
from dataeff.reports.page import breakable, json_block, library, policy, printable, tight
from dataeff.reports.plots import DUPLICATE, FILTERED, INK, KEPT, chart
from dataeff.reports.quantities import count, share
from dataeff.reports.visible import one_line

MANY_EPOCHS = 4.0
"""Repetitions up to which tokens are worth nearly as much as new ones (Muennighoff et al. 2023, arXiv 2305.16264)."""
_FOLDER = Path(__file__).parent
_MINUS = "\N{MINUS SIGN}"
_KEYS = {
    **{INK: "baseline", KEPT: "kept", DUPLICATE: "duplicate", FILTERED: "filtered"},
    **{drawn.FOURTH: "fourth", drawn.FIFTH: "fifth"},
}
"""Classes of the charts' colours."""
Tone = Literal["cheaper", "dearer", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A figure, and beneath it what qualifies it."""

    figure: str = "–"
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A candidate in the table."""

    row: Row
    key: str
    """Class of its colour in the charts; empty where it has none."""
    annealed: Cell
    constant: Cell
    hours: Cell
    usd: Cell
    saving: Cell
    verdict: str
    verdict_note: str
    tone: Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What to do, in a sentence, and what it rests on."""

    sentence: Markup
    grounds: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """Where the device time of all trials went."""

    total: Spending
    failed_ns: int
    num_failed: int
    stopped_ns: int
    num_stopped: int
    """Trials of candidates that the screener stopped, without failed ones."""


def write_comparison_page(found: Outcome, path: Path, price: Price | None) -> Path:
    """Write the page.

    Args:
        found: A comparison, finished or not.
        path: Where to.
        price: Of an hour of the device that trained; None for no dollars.

    Raises:
        StorageError: It cannot be written.
        FormatError: A trial's ledger is damaged.
    """
    with committed(path) as sink:
        sink.write(comparison_page(found, price).encode("utf-8", "replace"))
    return path


def comparison_page(found: Outcome, price: Price | None) -> str:
    """The page as HTML; equal for equal outcomes and ledgers.

    Raises:
        FormatError: A trial's ledger is damaged.
    """
    waste = wasted(found)
    scripts = [library(), (_FOLDER / "page.js").read_text(encoding="utf-8")]
    styles = [(_FOLDER / name).read_text(encoding="utf-8") for name in ("page.css", "comparison.css")]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        finalize=printable,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        **{"breakable": breakable, "count": count, "line": one_line, "share": share, "tight": tight},
        **{"tokens": tokens_words, "hours": hours_words, "mixer": component_words},
    )
    charts = _charts(found, price, waste)
    return environment.get_template("comparison.html.jinja").render(
        found=found,
        answer=answer(found),
        headlines=_headlines(found, price),
        doubts=tuple(doubts(found)),
        lines=table(found, price),
        with_annealed=any(row.annealed for row in found.rows),
        price=price,
        keys=_keys(found),
        hidden_bars=sum(bool(row.annealed) + bool(row.constant) for row in found.rows) - len(drawn.bars(found)),
        sources=drawn.sources_of(found),
        max_sources=drawn.MAX_SOURCES,
        equal=_equal(found),
        many_epochs=MANY_EPOCHS,
        waste=waste,
        hour_ns=HOUR_NS,
        waste_words=tuple(_waste_words(found, waste, price)),
        overlap=_overlap(found.plan),
        facts=tuple(_facts(found, price)),
        charts=json_block({name: chart(figure) for name, figure in charts.items()}),
        drawn=tuple(charts),
        style="\n".join(styles),
        scripts=scripts,
        policy=policy(scripts),
    )


def _charts(found: Outcome, price: Price | None, waste: Waste | None) -> dict[str, Any]:
    """Every chart by the name that its place in the page has."""
    figures = {
        "losses": drawn.losses(found, annealed=False),
        "annealed": drawn.losses(found, annealed=True),
        "costs": drawn.costs(found, price),
        "mixtures": drawn.mixtures(found),
        "waste": drawn.waterfall(waste.total, price) if waste else None,
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def _keys(found: Outcome) -> dict[str, str]:
    """Classes of the colours that candidates have in the charts, by name."""
    return {name: _KEYS[colour] for name, colour in drawn.coloured(found).items()}


def _named(name: str) -> Markup:
    return Markup("<bdi>{}</bdi>").format(drawn.cut_middle(name, drawn.NAME_CHARACTERS))


def answer(found: Outcome) -> Answer:
    """Which candidate to use. Where some were judged by fresh seeds, those only: others were chosen for their luck."""
    baseline = _named(found.baseline.candidate)
    if found.target is None:
        sentence = Markup("No answer yet: the baseline {} sets the target, and is not trained to its end.").format(
            baseline
        )
        return Answer(sentence=sentence, grounds=())
    judged = _judged(found)
    cheaper = [(row, read) for row, read in judged if _tone(read) == "cheaper"]
    if cheaper:
        row, read = min(cheaper, key=lambda pair: _least(pair[1].ratio))
        assert read.ratio is not None
        sentence = Markup("Use {}: it reaches the target with {} than {}.").format(
            _named(row.candidate), _saving_words(read.ratio), baseline
        )
        return Answer(sentence=sentence, grounds=tuple(_grounds(found, read)))
    return Answer(sentence=_without_winner(found, judged, baseline), grounds=tuple(_nearest(found, judged)))


def _judged(found: Outcome) -> list[tuple[Row, Read]]:
    rows = [(row, row.headline) for row in found.rows[1:] if row.state not in ("stopped", "failed")]
    reads = [(row, read) for row, read in rows if read is not None and read.ratio is not None]
    finals = [(row, read) for row, read in reads if read.fresh]
    return finals or reads


def _least(found: Ratio | None) -> float:
    assert found is not None
    return found.ratio if found.ratio is not None else found.high or math.inf


def _without_winner(found: Outcome, judged: Sequence[tuple[Row, Read]], baseline: Markup) -> Markup:
    base = found.baseline.headline
    if not any(row.headline and row.headline.described.num_reached for row in found.rows):
        loss = found.target["loss"] if found.target else math.nan
        return Markup("No answer: no run reached the target of {} nats; train longer, or choose a higher one.").format(
            f"{loss:.4f}"
        )
    if not judged or base is None:
        return Markup("No answer: no candidate but the baseline {} has a loss curve.").format(baseline)
    if all(read.verdict == "dearer" for _, read in judged):
        return Markup("Stay with {}: all others that were judged need more tokens.").format(baseline)
    if not any(read.described.num_reached for _, read in judged):
        return Markup("Stay with {}: no other that was judged reached the target.").format(baseline)
    return Markup("No difference found: nothing shows that another candidate needs fewer tokens than {}.").format(
        baseline
    )


def _saving_words(found: Ratio) -> Markup:
    """`18.0 % fewer tokens (12.1 to 23.4 %)`."""
    if found.ratio is None:
        assert found.high is not None
        return Markup("at least {} fewer tokens").format(_percent(1 - found.high))
    between = f" ({_between(found)}, {100 * found.confidence:g} % interval)" if found.low is not None else ""
    return Markup("{} fewer tokens{}").format(_percent(1 - found.ratio), between)


def _grounds(found: Outcome, read: Read) -> Iterator[str]:
    """How sure a winner is."""
    compared = read.ratio
    assert compared is not None
    kind = "annealed " if any(row.annealed is read for row in found.rows) else ""
    seeds = "fresh seeds" if read.fresh else "the seeds that it was chosen by, which flatter it"
    p_value = "" if read.p_value is None else f", {_p_words(read.p_value)}"
    yield (
        f"verdict: {read.verdict}{p_value}; {compared.candidate_runs} {kind}runs with {seeds}, "
        f"{compared.baseline_runs} of the baseline"
    )
    yield f"by {compared.method_words}"


def _nearest(found: Outcome, judged: Sequence[tuple[Row, Read]]) -> Iterator[str]:
    """What is known of the best candidate where none wins."""
    told = [(row, read) for row, read in judged if read.ratio and (read.ratio.ratio or read.ratio.high is not None)]
    if not told:
        return
    row, read = min(told, key=lambda pair: _least(pair[1].ratio))
    assert read.ratio is not None
    words = f": {read.ratio.words}" if read.ratio.words and read.ratio.words not in read.verdict else ""
    yield f"the nearest, {drawn.cut_middle(row.candidate, drawn.NAME_CHARACTERS)}{words}; {read.verdict}"
    if not read.fresh:
        yield "it is judged by the seeds that it was chosen by, which flatter it"


def _tone(read: Read | None) -> Tone:
    """Cheaper, dearer, or not decided; a one-sided bound beyond 1 decides too."""
    if read is None or read.ratio is None:
        return "open"
    if read.verdict in ("cheaper", "dearer"):
        return "cheaper" if read.verdict == "cheaper" else "dearer"
    bound = read.ratio if read.ratio.method == "bound" else None
    if bound is not None and bound.high is not None and bound.high < 1:
        return "cheaper"
    return "dearer" if bound is not None and bound.low is not None and bound.low > 1 else "open"


def doubts(found: Outcome) -> Iterator[str]:
    """What the reader must know before believing the answer."""
    plan = found.plan
    if _goes_on(found):
        yield "the comparison is not over: candidates are still being trained, and all that stands here may change"
    elif found.target is not None and not any(row.headline and row.headline.fresh for row in found.rows[1:]):
        yield "no candidate was trained again with fresh seeds: whoever looks best was also the luckiest"
    short = [trial for trial in _deciding(found) if _cut_short(found, trial)]
    if short:
        yield (
            f"{len(short)} runs of the baseline or of finalists are not at their budget of "
            f"{tokens_words(plan['budget_tokens'])} tokens yet, and count as not having reached the target"
        )
    if plan["seeds"] + plan["fresh_seeds"] < 3:
        yield "with fewer than three seeds there is next to nothing to tell luck from"


def _goes_on(found: Outcome) -> bool:
    return found.target is None or any(row.why == "goes on" for row in found.rows)


def _deciding(found: Outcome) -> list[Trial]:
    """Runs at a constant rate of the baseline and of candidates with fresh seeds."""
    names = {found.baseline.candidate} | {r.candidate for r in found.rows[1:] if r.headline and r.headline.fresh}
    size = list(found.plan["proxies"])[-1]
    return [t for t in found.trials if t.candidate in names and t.size == size and not t.annealed and not t.failure]


def _cut_short(found: Outcome, trial: Trial) -> bool:
    last = max(trial.losses, default=0)
    return last < int(found.plan["budget_tokens"])


def table(found: Outcome, price: Price | None) -> tuple[Line, ...]:
    """A line a candidate, in the order of the outcome."""
    keys = _keys(found)
    hour = device_hours_to(1.0, found)
    both = any(row.annealed for row in found.rows)
    return tuple(
        Line(
            row=row,
            key=keys.get(row.candidate, ""),
            annealed=_cell(row.annealed, 1.0, tokens_words),
            constant=_cell(row.constant, 1.0, tokens_words),
            hours=_cell(row.headline, hour, hours_words),
            usd=_cell(row.headline, usd(hour, price), usd_words),
            saving=_saving(row, both),
            verdict="" if row.headline is None else row.headline.verdict,
            verdict_note=_p_words(row.headline.p_value) if row.headline else "",
            tone=_tone(row.headline),
        )
        for row in found.rows
    )


def _cell(read: Read | None, scale: float | None, words: Callable[[float], str]) -> Cell:
    """Tokens to the target, in units of which a token is `scale`."""
    if read is None or scale is None:
        return Cell()
    found = read.described
    low, high, mean = found.low_tokens, found.high_tokens, found.mean_tokens
    if mean is None:
        return Cell(figure=f"> {words(low * scale)}" if low is not None and not found.num_reached else "–")
    if low is None or high is None:
        return Cell(figure=words(mean * scale), note="no interval")
    upper = "more" if math.isinf(high) else words(high * scale)
    return Cell(figure=words(mean * scale), note=f"{words(low * scale)} to {upper}")


def _saving(row: Row, both: bool) -> Cell:
    found = row.headline.ratio if row.headline else None
    if found is None or (found.ratio is None and found.low is None):
        return Cell()
    kind = "constant rate" if both and row.annealed is None else ""
    if found.ratio is None:
        assert found.low is not None
        assert found.high is not None
        at_most = math.isinf(found.high)
        figure = f"{'at most' if at_most else 'at least'} {_percent(1 - (found.low if at_most else found.high))}"
        return Cell(figure=figure, note=kind)
    between = "no interval" if found.low is None else _between(found)
    return Cell(figure=_percent(1 - found.ratio), note=", ".join(filter(None, (between, kind))))


def _between(found: Ratio) -> str:
    """The interval of what is saved."""
    assert found.low is not None
    assert found.high is not None
    least = "less" if math.isinf(found.high) else _percent(1 - found.high).removesuffix(" %")
    return f"{least} to {_percent(1 - found.low)}"


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %".replace("-", _MINUS)


def _p_words(p_value: float | None) -> str:
    if p_value is None:
        return ""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}"


def _headlines(found: Outcome, price: Price | None) -> list[tuple[str, str, str]]:
    """Label, number, note."""
    shown = []
    base = found.baseline.headline
    if found.target is not None and base is not None:
        cell = _cell(base, 1.0, tokens_words)
        reached = f"reached by {base.described.num_reached} of {base.described.num_runs}"
        shown.append(("Baseline to target", cell.figure, f"tokens, {cell.note or reached}"))
    spent = f"{hours_words(found.device_hours)} h"
    dollars = usd(found.device_hours, price)
    shown.append(
        ("The comparison took", spent, "device time" if dollars is None else f"device time, {usd_words(dollars)}")
    )
    note = (
        f"of the full grid's {hours_words(found.grid_device_hours)} h"
        if found.grid_device_hours
        else "of the full grid"
    )
    shown.append(("Screening trained", share(found.screening_share, 1), note))
    counted = [row.state for row in found.rows]
    note = ", ".join(f"{counted.count(state)} {state}" for state in ("kept", "stopped", "failed") if state in counted)
    shown.append(("Candidates", str(len(found.rows)), f"the baseline, {note}"))
    return shown


def _equal(found: Outcome) -> tuple[float, float, float, str] | None:
    """Tokens of the losses that mixtures are coloured by, the lowest and highest, and the scale as CSS."""
    equal = drawn.equal_losses(found)
    if equal is None:
        return None
    scale = ", ".join(drawn.ramp(place) for place in (0.0, 0.5, 1.0))
    return equal[0], min(equal[1].values()), max(equal[1].values()), scale


def wasted(found: Outcome) -> Waste | None:
    """Sum up the trials' ledgers; None where there is none.

    Raises:
        FormatError: A ledger is damaged.
    """
    stopped = {row.candidate for row in found.rows if row.state == "stopped"}
    read = [(trial, _windows(trial)) for trial in found.trials]
    windows = [window for _, mine in read for window in mine]
    if not windows:
        return None
    failed = [mine for trial, mine in read if trial.failure]
    given_up = [mine for trial, mine in read if trial.candidate in stopped and not trial.failure]
    return Waste(
        total=spending(windows).total,
        failed_ns=_allocated_ns(failed),
        num_failed=len(failed),
        stopped_ns=_allocated_ns(given_up),
        num_stopped=len(given_up),
    )


def _allocated_ns(groups: Sequence[Sequence[Window]]) -> int:
    return spending([window for mine in groups for window in mine]).total.allocated_ns


def _windows(trial: Trial) -> list[Window]:
    """Of one trial, as a run of its own: an annealed branch writes under the name of the trial that it left."""
    windows, _ = read_ledger(trial.folder / FILE)
    run = f"{trial.size}/{trial.candidate}/{trial.folder.name}"
    return [replace(window, tags=replace(window.tags, run=run)) for window in windows]


def _waste_words(found: Outcome, waste: Waste | None, price: Price | None) -> Iterator[str]:
    def cost(hours: float) -> str:
        dollars = usd(hours, price)
        return f"{hours_words(hours)} device-hours" + ("" if dollars is None else f" ({usd_words(dollars)})")

    if waste is not None:
        whole = waste.total.allocated_ns
        for number, took_ns, what in (
            (waste.num_failed, waste.failed_ns, "trials that failed"),
            (waste.num_stopped, waste.stopped_ns, "trials of candidates that were stopped early"),
        ):
            if number:
                yield f"{number} {what} took {cost(took_ns / HOUR_NS)}, {share(took_ns, whole)} of all"
    words = f"the screener trained {share(found.screening_share, 1)} of what the full grid would have"
    if found.grid_device_hours:
        words += f"; the grid would have taken {cost(found.grid_device_hours)} at the measured speed"
        if not _goes_on(found):
            saved = max(found.grid_device_hours * (1 - found.screening_share), 0.0)
            words += f", so about {cost(saved)} were saved"
    yield words
    yield f"with fresh seeds, annealed runs, evaluations and all, the comparison took {cost(found.device_hours)}"


def _overlap(plan: Mapping[str, Any]) -> list[tuple[str, int, int, float, list[float]]]:
    """Source, validation tokens, those that count, weight in the loss, and what of it stood in each corpus."""
    corpora = list(plan["supply"])
    return [
        (
            source,
            entry["tokens"],
            entry["left"],
            plan["domains"].get(source, 0.0),
            [entry.get(corpus, 0.0) for corpus in corpora],
        )
        for source, entry in plan["overlap"].items()
    ]


def _facts(found: Outcome, price: Price | None) -> Iterator[tuple[str, str]]:
    """How it was done, a name and a sentence each."""
    plan = found.plan
    for name, proxy in plan["proxies"].items():
        mup = f", muP from width {proxy['base_width']}" if proxy["base_width"] else ""
        label = "Model" if len(plan["proxies"]) == 1 else f"Model {one_line(name, 30)}"
        yield label, f"{proxy['layers']} layers of width {proxy['width']}, {proxy['heads']} heads{mup}"
    if len(plan["proxies"]) > 1:
        yield "Decided by", one_line(list(plan["proxies"])[-1], drawn.NAME_CHARACTERS)
    steps = plan["budget_tokens"] // plan["step_tokens"]
    yield (
        "Budget",
        f"{tokens_words(plan['budget_tokens'])} tokens a trial: {steps:,} steps of {plan['step_tokens']:,}, in "
        f"sequences of {plan['sequence_length']:,}; the planned run has {tokens_words(plan['horizon_tokens'])}",
    )
    schedule = plan["schedule"]
    annealed = ", ".join(f"{100 * part:g} %" for part in plan["annealed"]) or "never"
    yield (
        "Schedule",
        f"warm-up over {100 * schedule['warmup_share']:g} % of the budget, then a constant learning rate of "
        f"{schedule['learning_rate']:g}; finalists also annealed over the last fifth, at {annealed} of the budget",
    )
    yield "Seeds", f"{plan['seeds']} a candidate, {plan['fresh_seeds']} fresh ones for finalists and the baseline"
    yield "Loss", f"validation cross entropy in nats a token, read {plan['evaluations']} times a trial, sources weighed"
    for name, target in (("Target", found.target), ("Target, annealed", found.annealed_target)):
        if target is not None:
            yield name, f"{target['loss']:.4f} nats a token: {target['rule']}"
    methods = {_method(row.headline.ratio) for row in found.rows if row.headline and row.headline.ratio}
    yield "Intervals", "95 % over seeds, p-values adjusted by Holm; " + "; ".join(sorted(methods))
    yield "Screener", component_words(plan["screener"])
    if found.tokens_per_s:
        yield (
            "Speed",
            f"{tokens_words(found.tokens_per_s)} tokens/s a device, the median of trials; hours are tokens by it",
        )
    yield "Price", "none given" if price is None else str(price)
    yield "Fingerprint", str(plan["fingerprint"])


def _method(found: Ratio) -> str:
    """How the interval was made, without its degrees of freedom."""
    words = found.method_words
    return words if found.degrees_of_freedom is None else words.rpartition(", ")[0]


def component_words(described: Any) -> str:
    """A mixer or screener as the plan holds it: `Temperature(temperature=2.0)`."""
    if not isinstance(described, Mapping) or "class" not in described:
        return one_line(str(described), 200)
    options = ", ".join(f"{name}={value}" for name, value in described.items() if name != "class")
    return one_line(f"{described['class']}({options})", 200)
