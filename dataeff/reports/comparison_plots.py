"""The charts of a comparison: losses, cost to target, mixtures, and where device time went.

The baseline and those that were judged last have colours of their own; with more than a handful of candidates nothing
else would tell lines apart.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bokeh.core.properties import value
from bokeh.models import ColumnDataSource, FixedTicker, LinearAxis, NumeralTickFormatter, Span

from dataeff.compare.outcome import Outcome, Read, Row, Trial, device_hours_to, usd
from dataeff.efficiency.goodput import HOUR_NS, Spending
from dataeff.efficiency.intervals import Description
from dataeff.prices import Price
from dataeff.reports.plots import (
    ALL,
    DUPLICATE,
    FILTERED,
    GRID,
    INK,
    KEPT,
    LIMIT,
    MUTED,
    ROW_PX,
    axis_labels,
    drawing,
    hovering,
)
from dataeff.reports.quantities import count, share
from dataeff.reports.spending import LABELS
from dataeff.reports.visible import one_line

MAX_BARS = 30
MAX_SOURCES = 12
NAME_CHARACTERS = 44
_LABEL_CHARACTERS = 32
FOURTH, FIFTH = "#3f86c4", "#c0608a"
"""The same in both themes."""
_COLOURS = (KEPT, DUPLICATE, FILTERED, FOURTH, FIFTH)
_BEST, _MIDDLE, _WORST = (0x2C, 0x7F, 0xB8), (0xA9, 0xA0, 0x88), (0xD9, 0x6A, 0x1E)
"""Of losses; legible on light and on dark."""
_SHOWN_SHARE = 0.05
"""Of the budget: what comes before would leave no room to tell curves apart where it matters."""
_HEIGHT = math.sqrt(3) / 2
"""Of the triangle, whose side is 1."""

Points = Mapping[float, float]
"""Losses by tokens."""


def coloured(found: Outcome) -> dict[str, str]:
    """Colours of the baseline and of those judged by fresh seeds, or else of the nearest to the target, by name."""
    fresh = [row for row in found.rows[1:] if row.headline and row.headline.fresh]
    leading = [row for row in found.rows[1:] if row.state == "kept" and row.headline]
    chosen = (fresh or leading)[: len(_COLOURS)]
    colours = zip((row.candidate for row in chosen), _COLOURS, strict=False)
    return {found.baseline.candidate: INK, **dict(colours)}


def seed_curves(found: Outcome, candidate: str, *, annealed: bool) -> list[Points]:
    """Of the deciding size, the losses of each seed; of annealed runs only the last, which is what they are for."""
    size = list(found.plan["proxies"])[-1]
    trials = [t for t in found.trials if (t.candidate, t.size, t.annealed) == (candidate, size, annealed) and t.curve]
    if not annealed:
        return [_points(trial) for trial in trials]
    ends: dict[int, dict[float, float]] = {}
    for trial in trials:
        tokens, loss = list(_points(trial).items())[-1]
        ends.setdefault(trial.seed, {})[tokens] = loss
    return [dict(sorted(points.items())) for _, points in sorted(ends.items())]


def _points(trial: Trial) -> Points:
    assert trial.curve is not None
    return dict(zip(trial.curve.tokens.tolist(), trial.curve.losses.tolist(), strict=True))


def mean_curve(seeds: Sequence[Points]) -> tuple[dict[float, float], int]:
    """Mean losses of the seeds that were trained furthest, and how many those are: a line without jumps."""
    furthest = max((max(points) for points in seeds), default=0.0)
    longest = [points for points in seeds if max(points) == furthest]
    shared = set.intersection(*map(set, longest)) if longest else set()
    return {tokens: statistics.fmean(points[tokens] for points in longest) for tokens in sorted(shared)}, len(longest)


def equal_losses(found: Outcome) -> tuple[float, dict[str, float]] | None:
    """The most tokens at which all candidates that were trained at the deciding size have losses, and those losses.

    Means over the seeds that all have there; None where there is no such point.
    """
    size = list(found.plan["proxies"])[-1]
    curves: dict[str, dict[tuple[float, int], float]] = {}
    for trial in found.trials:
        if trial.size == size and not trial.annealed and trial.curve is not None:
            there = {(tokens, trial.seed): loss for tokens, loss in _points(trial).items()}
            curves.setdefault(trial.candidate, {}).update(there)
    shared = set.intersection(*map(set, curves.values())) if curves else set()
    if not shared:
        return None
    most = max(tokens for tokens, _ in shared)
    chosen = sorted(place for place in shared if place[0] == most)
    return most, {name: statistics.fmean(losses[place] for place in chosen) for name, losses in curves.items()}


def losses(found: Outcome, *, annealed: bool) -> Any | None:
    """Mean losses by candidate, each seed thin, the target, and where it is crossed; None without a curve."""
    target = found.annealed_target if annealed else found.target
    seeds = {row.candidate: seed_curves(found, row.candidate, annealed=annealed) for row in found.rows}
    means = {name: (*mean_curve(each), len(each)) for name, each in seeds.items() if each}
    if not any(curve for curve, *_ in means.values()):
        return None
    x_range, y_range = _window(found, [curve for each in seeds.values() for curve in each], target)
    plot = drawing(height=400, x_axis_type="log", x_range=x_range, y_range=y_range)
    colours = coloured(found)
    # The last drawn lies on top: what has a colour, and of that the baseline.
    order = [name for name in (*(name for name in means if name not in colours), *reversed(colours)) if name in means]
    thin = [(points, colours[name]) for name in order if name in colours for points in seeds[name]]
    if thin:
        _lines(plot, thin, width=1, alpha=0.3)
    for name in order:
        width = 2.5 if name in colours else 1.5
        _lines(plot, [(means[name][0], colours.get(name, ALL))], width=width, alpha=1.0)
    told = [_mean_points(plot, order, means, colours)]
    if target is not None:
        plot.add_layout(Span(location=target["loss"], dimension="width", line_color=LIMIT, line_dash="dashed"))
        rows = [row for row in found.rows if row.candidate in colours]
        reads = [(row.candidate, row.annealed if annealed else row.constant) for row in rows]
        told += _crossing_bars(plot, [(name, read) for name, read in reads if read], target["loss"], colours)
    plot.xaxis.axis_label, plot.yaxis.axis_label = "training tokens", "loss, nats a token"
    plot.xaxis.ticker = FixedTicker(ticks=_round_tokens(*x_range))
    plot.xaxis.formatter = NumeralTickFormatter(format="0.[0]a")
    tips = [("", "@name"), ("tokens", "@tokens_text"), ("loss", "@loss_text"), ("runs", "@note")]
    hovering(plot, tips, renderers=told)
    return plot


def _lines(plot: Any, curves: Sequence[tuple[Points, str]], *, width: float, alpha: float) -> None:
    data = {
        "xs": [list(points) for points, _ in curves],
        "ys": [list(points.values()) for points, _ in curves],
        "colour": [colour for _, colour in curves],
    }
    source = ColumnDataSource(data)
    plot.multi_line(xs="xs", ys="ys", line_color="colour", line_width=width, line_alpha=alpha, source=source)


def _mean_points(
    plot: Any, order: Sequence[str], means: Mapping[str, tuple[Points, int, int]], colours: Mapping[str, str]
) -> Any:
    """Marks on the mean lines: a line is too thin for a pointer. Grey ones are not seen, unless there is no line."""
    rows = []
    for name in order:
        points, num_mean, num_seeds = means[name]
        told = f"mean of {num_mean} of {num_seeds} seeds" if num_seeds > 1 else "one seed"
        seen = name in colours or len(points) == 1
        for tokens, loss in points.items():
            texts = (cut_middle(name, NAME_CHARACTERS), tokens_words(tokens), f"{loss:.4f}", told)
            rows.append((tokens, loss, colours.get(name, ALL), 1.0 if seen else 0.0, *texts))
    names = ("x", "y", "colour", "alpha", "name", "tokens_text", "loss_text", "note")
    data = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    return plot.scatter(
        x="x", y="y", size=6, fill_color="colour", alpha="alpha", line_width=0, source=ColumnDataSource(data)
    )


def _window(
    found: Outcome, curves: Sequence[Points], target: Mapping[str, Any] | None
) -> tuple[tuple[float, float], tuple[float, float]]:
    """What of the plane is shown: from a share of the budget on, and the losses from there."""
    start = min(_SHOWN_SHARE * found.plan["budget_tokens"], max(max(points) for points in curves))
    start = max(start, min(min(points) for points in curves))
    seen = [(tokens, loss) for points in curves for tokens, loss in points.items() if tokens >= start]
    low = min([loss for _, loss in seen] + ([target["loss"]] if target else []))
    high = max([loss for _, loss in seen] + ([target["loss"]] if target else []))
    room = 0.06 * (high - low) or 0.1
    return (0.94 * start, 1.12 * max(tokens for tokens, _ in seen)), (low - room, high + room)


def _round_tokens(low: float, high: float) -> list[float]:
    """Numbers to write along a logarithmic axis: 1, 2 and 5 of each power of ten, or more where few lie on it."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for digits in ((1, 2, 5), (1, 2, 3, 4, 6, 8), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)):
        found = [digit * 10.0**power for power in powers for digit in digits if low <= digit * 10.0**power <= high]
        if len(found) >= 3:
            break
    return found


def _crossing_bars(
    plot: Any, reads: Sequence[tuple[str, Read]], target: float, colours: Mapping[str, str]
) -> list[Any]:
    """Intervals of the tokens to target, side by side around the target line; open ones end in an arrow."""
    end = plot.x_range.end
    apart = 0.028 * (plot.y_range.end - plot.y_range.start)
    shown = [(name, read.described) for name, read in reads if read.described.low_tokens is not None]
    if not shown:
        return []
    heights = [target + (number - (len(shown) - 1) / 2) * apart for number in range(len(shown))]
    spans = [(one.low_tokens or 0.0, end if one.high_tokens is None else one.high_tokens) for _, one in shown]
    data = {
        "left": [low for low, _ in spans],
        "right": [min(high, end) for _, high in spans],
        "y": heights,
        "colour": [colours[name] for name, _ in shown],
        "name": [cut_middle(name, NAME_CHARACTERS) for name, _ in shown],
        "tokens_text": [interval_words(one, 1.0, tokens_words) for _, one in shown],
        "loss_text": [f"{target:.4f}, the target"] * len(shown),
        "note": [f"{one.num_reached} of {one.num_runs} reached it" for _, one in shown],
    }
    source = ColumnDataSource(data)
    bars = plot.segment(x0="left", x1="right", y0="y", y1="y", line_color="colour", line_width=5, source=source)
    ends = [(y, colours[name]) for (name, _), (_, high), y in zip(shown, spans, heights, strict=True) if high > end]
    _marks(plot, [(end, y, colour) for y, colour in ends], marker="triangle", angle=-math.pi / 2, size=12, line_width=0)
    means = [(one.mean_tokens, y, colours[name]) for (name, one), y in zip(shown, heights, strict=True)]
    _marks(plot, [mark for mark in means if mark[0] is not None], size=8, line_color=GRID)
    return [bars]


def _marks(plot: Any, places: Sequence[tuple[Any, Any, str]], **look: Any) -> None:
    """Marks at x and y, each of its colour."""
    if not places:
        return
    columns = {name: [place[number] for place in places] for number, name in enumerate(("x", "y", "colour"))}
    plot.scatter(x="x", y="y", fill_color="colour", **look, source=ColumnDataSource(columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A candidate's cost to one of the targets."""

    name: str
    label: str
    read: Read
    colour: str


def bars(found: Outcome) -> list[Bar]:
    """What there is a figure of: annealed runs first, with a star, then those at a constant rate."""
    colours = coloured(found)
    both = any(row.annealed for row in found.rows)
    reads: list[tuple[Row, Read, str]] = []
    reads += [(row, row.annealed, ", annealed") for row in found.rows if row.annealed]
    reads += [(row, row.constant, "") for row in found.rows if row.constant]
    told = [entry for entry in reads if entry[1].described.mean_tokens or not entry[1].described.num_reached][:MAX_BARS]
    names = [f"{cut_middle(row.candidate, _LABEL_CHARACTERS)}{' *' if also else ''}" for row, _, also in told]
    return [
        Bar(
            name=f"{cut_middle(row.candidate, NAME_CHARACTERS)}{also or (', constant rate' if both else '')}",
            label=label,
            read=read,
            colour=colours.get(row.candidate, ALL),
        )
        for (row, read, also), label in zip(told, axis_labels(names, _LABEL_CHARACTERS + 2), strict=True)
    ]


def cut_middle(name: str, limit: int) -> str:
    """A name on one line, its middle left out where it is too long: names of candidates often differ at their ends."""
    whole = one_line(name, 400)
    half = limit // 2
    return whole if len(whole) <= limit else f"{whole[: half - 1]}…{whole[-half:]}"


def costs(found: Outcome, price: Price | None) -> Any | None:
    """Device-hours to the target, with intervals; hatched and open to the right where it was not reached."""
    shown = bars(found)
    hour = device_hours_to(1.0, found)
    if not shown or hour is None:
        return None
    ends = [bar.read.described for bar in shown]
    longest = max((described.mean_tokens or described.low_tokens or 0.0) for described in ends)
    # An interval that is far wider than its figure is cut off, or no figure could be told from another.
    highs = [high for described in ends if (high := described.high_tokens) and high < 2 * longest]
    most = 1.08 * max([longest, *highs]) * hour
    labels = [bar.label for bar in shown]
    above = 34 if price else 0
    plot = drawing(y_range=labels[::-1], height=ROW_PX * len(shown) + 66 + above, x_range=(0, most))
    known = [bar for bar in shown if bar.read.described.mean_tokens]
    unknown = [bar for bar in shown if not bar.read.described.mean_tokens]
    bar = {"y": "label", "right": "right", "height": 0.62, "fill_color": "colour"}
    hatch = {"hatch_pattern": "right_diagonal_line", "hatch_color": MUTED, "hatch_scale": 8, "line_color": "colour"}
    looks = ((known, {"fill_alpha": 0.65, "line_width": 0}), (unknown, {"fill_alpha": 0.15, **hatch}))
    drawn = [plot.hbar(**bar, **look, source=_cost_source(some, hour, price)) for some, look in looks if some]
    _cost_whiskers(plot, known, unknown, hour, most)
    plot.xaxis.axis_label = "device-hours"
    plot.xaxis.ticker.desired_num_ticks = 4
    if price is not None:
        plot.add_layout(_dollar_axis(most, price), "above")
    tips = [("", "@name"), ("tokens", "@tokens"), ("device-hours", "@hours")]
    tips += [("dollars", "@usd")] if price else []
    hovering(plot, [*tips, ("reached by", "@reached")], renderers=drawn)
    return plot


def _cost_source(shown: Sequence[Bar], hour: float, price: Price | None) -> Any:
    reads = [(bar, bar.read.described) for bar in shown]
    return ColumnDataSource(
        {
            "label": [bar.label for bar in shown],
            "name": [bar.name for bar in shown],
            "right": [(one.mean_tokens or one.low_tokens or 0.0) * hour for _, one in reads],
            "colour": [bar.colour for bar in shown],
            "tokens": [interval_words(one, 1.0, tokens_words) for _, one in reads],
            "hours": [interval_words(one, hour, hours_words) for _, one in reads],
            "usd": [interval_words(one, hour * price.usd_per_hour, usd_words) if price else "" for _, one in reads],
            "reached": [f"{one.num_reached} of {one.num_runs} runs" for _, one in reads],
        }
    )


def _cost_whiskers(plot: Any, known: Sequence[Bar], unknown: Sequence[Bar], hour: float, most: float) -> None:
    """Intervals; arrows where one goes on beyond the chart, and where a run ended without the target."""
    spans = [(bar, bar.read.described.low_tokens, bar.read.described.high_tokens) for bar in known]
    whole = [(bar, low * hour, high * hour) for bar, low, high in spans if low is not None and high is not None]
    if whole:
        labels = [bar.label for bar, *_ in whole]
        lows, highs = [low for _, low, _ in whole], [min(high, most) for *_, high in whole]
        plot.segment(x0=lows, x1=highs, y0=labels, y1=labels, line_color=INK, line_width=2)
    ends = [(low, bar.label, INK) for bar, low, _ in whole]
    ends += [(high, bar.label, INK) for bar, _, high in whole if high <= most]
    _marks(plot, ends, marker="dash", angle=math.pi / 2, size=9, line_color=INK, line_width=2)
    arrows = [(0.995 * most, bar.label, bar.colour) for bar, _, high in whole if high > most]
    arrows += [((bar.read.described.low_tokens or 0.0) * hour, bar.label, bar.colour) for bar in unknown]
    _marks(plot, arrows, marker="triangle", angle=-math.pi / 2, size=11, line_width=0)


def _dollar_axis(most: float, price: Price) -> Any:
    """Round dollars over the hours that they buy, up to `most` hours."""
    dollars = most * price.usd_per_hour
    step = 10.0 ** math.floor(math.log10(dollars / 2))
    step *= next(factor for factor in (1, 2, 5, 10) if dollars / (step * factor) <= 5)
    ticks = [step * number for number in range(int(dollars / step) + 1)]
    axis = LinearAxis(axis_label="dollars", ticker=FixedTicker(ticks=[tick / price.usd_per_hour for tick in ticks]))
    axis.major_label_overrides = {tick / price.usd_per_hour: f"{tick:,.6g}" for tick in ticks}
    axis.axis_line_color = axis.minor_tick_line_color = axis.major_tick_line_color = None
    axis.major_label_text_color = axis.axis_label_text_color = MUTED
    axis.major_label_text_font = axis.axis_label_text_font = "system-ui, sans-serif"
    axis.major_label_text_font_size = axis.axis_label_text_font_size = "12px"
    axis.axis_label_text_font_style = "normal"
    return axis


def sources_of(found: Outcome) -> list[str]:
    """All sources of any candidate, those whose weights differ most first."""
    names = dict.fromkeys(name for row in found.rows for name in row.weights)
    weights = {name: [row.weights.get(name, 0.0) for row in found.rows] for name in names}
    return sorted(names, key=lambda name: (-(max(weights[name]) - min(weights[name])), list(names).index(name)))


def mixtures(found: Outcome) -> Any:
    """A point a candidate in a triangle where there are three sources, else a line a candidate over the sources."""
    sources = sources_of(found)
    equal = equal_losses(found)
    losses = equal[1] if equal else {}
    # The last drawn lies on top: the best.
    rows = sorted(found.rows, key=lambda row: -losses.get(row.candidate, math.inf))
    plot, drawn = (_triangle if len(sources) == 3 else _parallel)(rows, sources, losses)
    tips = [("", "@name"), ("loss", "@loss"), ("most of", "@first")]
    hovering(plot, [*tips, ("then", "@second"), ("then", "@third")][: 2 + len(sources)], renderers=[drawn])
    return plot


def loss_colours(losses: Mapping[str, float]) -> dict[str, str]:
    """From the lowest loss to the highest."""
    low, high = (min(losses.values()), max(losses.values())) if losses else (0.0, 0.0)
    return {name: ramp((loss - low) / (high - low) if high > low else 0.0) for name, loss in losses.items()}


def ramp(place: float) -> str:
    """A colour by its place in [0, 1] between the best and the worst."""
    ends = (_BEST, _MIDDLE) if place < 0.5 else (_MIDDLE, _WORST)
    part = 2 * place if place < 0.5 else 2 * place - 1
    return "#" + "".join(f"{round(first + part * (last - first)):02x}" for first, last in zip(*ends, strict=True))


def _mixture_data(rows: Sequence[Row], sources: Sequence[str], losses: Mapping[str, float]) -> dict[str, list[Any]]:
    """Colours, and what is told of each candidate: its loss at equal tokens, and its largest weights."""
    colours = loss_colours(losses)
    largest = [sorted(sources, key=lambda name: -row.weights.get(name, 0.0)) for row in rows]
    ranks = {
        rank: [
            f"{one_line(names[place], 24)} {share(row.weights.get(names[place], 0.0), 1)}" if place < len(names) else ""
            for row, names in zip(rows, largest, strict=True)
        ]
        for place, rank in enumerate(("first", "second", "third"))
    }
    return {
        "colour": [colours.get(row.candidate, ALL) for row in rows],
        "name": [_kind_name(row) for row in rows],
        "loss": [f"{losses[row.candidate]:.4f}" if row.candidate in losses else "not known" for row in rows],
        **ranks,
    }


def _kind_name(row: Row) -> str:
    return cut_middle(row.candidate, NAME_CHARACTERS) + (" (baseline)" if row.state == "baseline" else "")


def _parallel(rows: Sequence[Row], sources: Sequence[str], losses: Mapping[str, float]) -> tuple[Any, Any]:
    shown = sources[:MAX_SOURCES]
    labels = axis_labels(shown, 18)
    weights = [[row.weights.get(name, 0.0) for name in shown] for row in rows]
    plot = drawing(x_range=labels, y_range=(0, 1.06 * max(map(max, weights))), height=360)
    data = _mixture_data(rows, sources, losses)
    widths = [4 if row.state == "baseline" else 2 for row in rows]
    source = ColumnDataSource({**data, "xs": [labels for _ in rows], "ys": weights, "width": widths})
    lines = plot.multi_line(xs="xs", ys="ys", line_color="colour", line_width="width", line_alpha=0.85, source=source)
    for kind, look in (("baseline", {"marker": "square", "size": 10}), ("", {"marker": "circle", "size": 7})):
        corners = zip(rows, weights, data["colour"], strict=True)
        mine = [(values, colour) for row, values, colour in corners if (row.state == "baseline") == bool(kind)]
        places = [
            (label, value, colour) for values, colour in mine for label, value in zip(labels, values, strict=True)
        ]
        _marks(plot, places, line_width=0, **look)
    plot.xgrid.grid_line_color = GRID
    plot.xaxis.major_label_orientation = 0.9 if len(shown) > 4 else 0
    plot.yaxis.formatter = NumeralTickFormatter(format="0 %")
    plot.yaxis.axis_label = "weight"
    return plot, lines


def place_in_triangle(parts: Sequence[float]) -> tuple[float, float]:
    """Of three weights that sum to 1, in a triangle of side 1 on the x axis: the first at the left, the last on top."""
    return parts[1] + 0.5 * parts[2], _HEIGHT * parts[2]


def _grid_line(turn: int, part: float) -> list[tuple[float, float]]:
    """Where the weight of the source `turn` is `part`, from one side of the triangle to another."""
    ends = ((part, 1 - part, 0.0), (part, 0.0, 1 - part))
    return [place_in_triangle([*end[3 - turn :], *end[: 3 - turn]]) for end in ends]


def _triangle(rows: Sequence[Row], sources: Sequence[str], losses: Mapping[str, float]) -> tuple[Any, Any]:
    plot = drawing(x_range=(-0.16, 1.16), y_range=(-0.13, 1.0), height=440)
    plot.axis.visible = False
    plot.grid.visible = False
    corners = [place_in_triangle(corner) for corner in ((1, 0, 0), (0, 1, 0), (0, 0, 1))]
    ends = [_grid_line(turn, part) for turn in range(3) for part in (0.25, 0.5, 0.75)]
    (x0, y0), (x1, y1) = (zip(*side, strict=True) for side in zip(*ends, strict=True))
    plot.segment(x0=list(x0), y0=list(y0), x1=list(x1), y1=list(y1), line_color=GRID)
    plot.patch([x for x, _ in corners], [y for _, y in corners], fill_alpha=0, line_color=MUTED)
    plot.text(
        x=[x for x, _ in corners],
        y=[-0.035, -0.035, _HEIGHT + 0.03],
        text=axis_labels(sources, 18),
        text_align=["left", "right", "center"],
        text_baseline=["top", "top", "bottom"],
        text_color=INK,
        text_font=value("system-ui, sans-serif"),
        text_font_size=value("13px"),
    )
    places = [place_in_triangle([row.weights.get(name, 0.0) for name in sources]) for row in rows]
    data = {
        **_mixture_data(rows, sources, losses),
        "x": [x for x, _ in places],
        "y": [y for _, y in places],
        "marker": ["square" if row.state == "baseline" else "circle" for row in rows],
    }
    points = plot.scatter(
        x="x", y="y", marker="marker", size=13, fill_color="colour", line_color=GRID, source=ColumnDataSource(data)
    )
    return plot, points


def falls(spent: Spending) -> list[tuple[str, int, int, str]]:
    """What each thing left of the time that was there before, in device nanoseconds: name, before, after, colour."""
    left = spent.allocated_ns
    steps = [("allocated", left, 0, ALL)]
    for bucket, took_ns in spent.waste_ns.items():
        steps.append((LABELS.get(bucket, bucket), left, left - took_ns, FILTERED))
        left -= took_ns
    return [*steps, ("steps that were kept", left, 0, KEPT)]


def waterfall(spent: Spending, price: Price | None) -> Any:
    """From all device time down to the steps that were kept."""
    steps = falls(spent)
    labels = axis_labels([name for name, *_ in steps], 36)
    lengths = [(high - low) / HOUR_NS for _, high, low, _ in steps]
    data = {
        "label": labels,
        "right": [high / HOUR_NS for _, high, _, _ in steps],
        "left": [low / HOUR_NS for _, _, low, _ in steps],
        "colour": [colour for *_, colour in steps],
        "hours": [hours_words(length) for length in lengths],
        "share": [share(length * HOUR_NS, spent.allocated_ns) for length in lengths],
        "usd": [usd_words(usd(length, price) or 0.0) for length in lengths],
    }
    plot = drawing(y_range=labels[::-1], height=ROW_PX * len(steps) + 66, x_range=(0, spent.device_hours))
    plot.hbar(y="label", left="left", right="right", height=0.72, color="colour", source=ColumnDataSource(data))
    plot.xaxis.axis_label = "device-hours"
    plot.xaxis.ticker.desired_num_ticks = 4
    tips = [("", "@label"), ("device-hours", "@hours"), ("of all", "@share")]
    hovering(plot, [*tips, ("dollars", "@usd")] if price else tips)
    return plot


def tokens_words(tokens: float) -> str:
    """Three digits: `198,000`, `23.4 M`."""
    return count(float(f"{tokens:.3g}"))


def hours_words(hours: float) -> str:
    """Three digits, without unit: `0.0136`, `1,230`."""
    return f"{hours:,.0f}" if hours >= 1000 else f"{hours:.3g}"


def usd_words(dollars: float) -> str:
    """To the cent; to three digits where that is finer."""
    if dollars >= 100:
        return f"${dollars:,.0f}"
    places = 2 if dollars >= 1 or not dollars else 2 - math.floor(math.log10(dollars))
    return f"${dollars:.{places}f}"


def interval_words(described: Description, scale: float, words: Callable[[float], str]) -> str:
    """A figure with its interval, in other units than tokens where `scale` is not 1."""
    low, high, mean = described.low_tokens, described.high_tokens, described.mean_tokens
    if mean is None:
        return f"more than {words(low * scale)}" if low is not None and not described.num_reached else "–"
    if low is None or high is None:
        return f"{words(mean * scale)}; no interval"
    upper = "more" if math.isinf(high) else words(high * scale)
    return f"{words(mean * scale)} ({words(low * scale)} to {upper})"
