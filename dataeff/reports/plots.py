"""The report's interactive charts: Bokeh figures in placeholder colours, which the page replaces by its theme's."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from bokeh.embed import json_item
from bokeh.models import BoxAnnotation, ColumnDataSource, FixedTicker, HoverTool, NumeralTickFormatter, Span
from bokeh.plotting import figure

from dataeff.reports.accounting import Amount, Fate, Mixed
from dataeff.reports.quantities import count, share, size, value
from dataeff.reports.signals import Distribution
from dataeff.reports.visible import one_line

INK, MUTED, GRID, KEPT, FILTERED, DUPLICATE, ALL, LIMIT = (f"#0000f{digit}" for digit in range(1, 9))
"""Placeholders; page.js knows them by the same numbers."""
_LABEL_CHARACTERS = 24
ROW_PX = 26
_NUMBERED = re.compile(r"p\d+")
_MATHEMATICS = re.compile(r"\$(?=\$)|\\(?=[(\[])")
_NO_SPACE = "\u200b"


def chart(plot: Any) -> dict[str, Any]:
    """A figure as JSON that is the same in every process: Bokeh numbers its models by a counter of the process."""
    item: dict[str, Any] = json_item(plot)
    names: dict[str, str] = {}

    def renamed(node: Any) -> Any:
        if isinstance(node, dict):
            return {
                key: names.setdefault(entry, f"p{len(names)}")
                if key in ("id", "root_id") and isinstance(entry, str) and _NUMBERED.fullmatch(entry)
                else renamed(entry)
                for key, entry in node.items()
            }
        return [renamed(entry) for entry in node] if isinstance(node, (list, tuple)) else node

    found: dict[str, Any] = json.loads(json.dumps(renamed(item)))
    return found


def reasons(whole: Fate, left: Sequence[tuple[str, Amount]]) -> Any:
    """What is left after each reason: bars that hang from what was there before."""
    steps = [("read", whole.read.documents, 0, ALL)]
    remaining = whole.read.documents
    for reason, amount in left:
        colour = DUPLICATE if reason == "duplicates" else FILTERED
        steps.append((reason, remaining, remaining - amount.documents, colour))
        remaining -= amount.documents
    steps.append(("kept", remaining, 0, KEPT))
    labels = axis_labels(_short([name for name, *_ in steps]))
    data = {
        "label": labels,
        "reason": [one_line(name, 80) for name, *_ in steps],
        "right": [high for _, high, _, _ in steps],
        "left": [low for _, _, low, _ in steps],
        "colour": [colour for *_, colour in steps],
        "documents": [count(high - low) for _, high, low, _ in steps],
        "share": [share(high - low, whole.read.documents) for _, high, low, _ in steps],
    }
    plot = drawing(y_range=labels[::-1], height=ROW_PX * len(steps) + 50, x_range=(0, max(1, whole.read.documents)))
    plot.hbar(y="label", left="left", right="right", height=0.72, color="colour", source=ColumnDataSource(data))
    plot.xaxis.formatter = NumeralTickFormatter(format="0.[0]a")
    plot.xaxis.ticker.desired_num_ticks = 4
    hovering(plot, [("", "@reason"), ("documents", "@documents"), ("of all read", "@share")])
    return plot


def outcomes(parts: Sequence[Fate]) -> Any:
    """Share of each source's documents that was kept, filtered out, and removed as duplicate."""
    labels = axis_labels([fate.source for fate in parts])
    plot = drawing(y_range=labels[::-1], height=ROW_PX * len(parts) + 50, x_range=(0, 1))
    start = np.zeros(len(parts))
    for name, colour, numbers in (
        ("kept", KEPT, [fate.kept.documents for fate in parts]),
        ("filtered out", FILTERED, [fate.filtered.documents for fate in parts]),
        ("duplicates", DUPLICATE, [fate.duplicates.documents for fate in parts]),
    ):
        shares = [
            number / fate.read.documents if fate.read.documents else 0.0
            for number, fate in zip(numbers, parts, strict=True)
        ]
        data = {
            "label": labels,
            "left": start,
            "right": start + shares,
            "documents": [count(number) for number in numbers],
            "share": [share(number, fate.read.documents) for number, fate in zip(numbers, parts, strict=True)],
            "what": [name] * len(parts),
        }
        plot.hbar(y="label", left="left", right="right", height=0.72, color=colour, source=ColumnDataSource(data))
        start = start + shares
    plot.xaxis.formatter = NumeralTickFormatter(format="0 %")
    plot.xaxis.ticker = FixedTicker(ticks=[0, 0.5, 1])
    hovering(plot, [("", "@label"), ("@what", "@documents (@share)")])
    return plot


def distribution(shown: Distribution) -> Any:
    """All documents and kept ones by value of a signal, with what does not pass shaded."""
    edges = shown.edges
    most = max(2.0, float(shown.all_documents.max()))
    plot = drawing(
        height=280,
        x_axis_type="log" if shown.logarithmic else "linear",
        y_axis_type="log",
        x_range=(float(edges[0]), float(edges[-1])),
        y_range=(0.7, most * 1.6),
    )
    ends = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    data = {
        "left": edges[:-1],
        "right": edges[1:],
        "all": np.maximum(shown.all_documents, 0.7),
        "kept": np.maximum(shown.kept_documents, 0.7),
        "range": [value(low + 0.5) if shown.whole else f"{value(low)} to {value(high)}" for low, high in ends],
        "num_all": [count(number) for number in shown.all_documents.tolist()],
        "num_kept": [count(number) for number in shown.kept_documents.tolist()],
    }
    source = ColumnDataSource(data)
    bars = plot.quad(left="left", right="right", bottom=0.7, top="all", color=ALL, line_width=0, source=source)
    plot.quad(left="left", right="right", bottom=0.7, top="kept", color=KEPT, line_width=0, source=source)
    for cut, side in zip(shown.cuts, ("right", "left"), strict=True):
        if cut is not None:
            plot.add_layout(BoxAnnotation(**{side: cut}, fill_color=LIMIT, fill_alpha=0.10, line_width=0))
            plot.add_layout(Span(location=cut, dimension="height", line_color=LIMIT, line_width=1.5))
    plot.yaxis.axis_label = "documents"
    plot.yaxis.ticker = FixedTicker(ticks=[10.0**power for power in range(math.ceil(math.log10(most)) + 1)])
    plot.yaxis.formatter = NumeralTickFormatter(format="0a")
    if shown.logarithmic:
        plot.xaxis.formatter = NumeralTickFormatter(format="0.[00]a")
    hovering(plot, [("value", "@range"), ("read", "@num_all"), ("kept", "@num_kept")], renderers=[bars])
    return plot


def overlap(counts: Mapping[tuple[str, str], int], names: Sequence[str]) -> Any:
    """Documents removed, by their source (rows) and that of the kept document that decided (columns)."""
    labels = dict(zip(names, axis_labels(names, 18), strict=True))
    most = max(counts.values(), default=1)
    cells = [(removed, kept, counts.get((removed, kept), 0)) for removed in names for kept in names]
    data = {
        "removed": [labels[removed] for removed, _, _ in cells],
        "kept": [labels[kept] for _, kept, _ in cells],
        "alpha": [0.0 if not number else 0.12 + 0.88 * math.log1p(number) / math.log1p(most) for *_, number in cells],
        "documents": [count(number) for *_, number in cells],
        "text": [count(number) if number else "" for *_, number in cells],
    }
    ordered = list(labels.values())
    plot = drawing(x_range=ordered, y_range=ordered[::-1], height=max(180, 30 * len(names) + 130))
    source = ColumnDataSource(data)
    cell = plot.rect(
        x="kept",
        y="removed",
        width=0.94,
        height=0.9,
        fill_color=DUPLICATE,
        fill_alpha="alpha",
        line_color=GRID,
        line_width=1,
        source=source,
    )
    if len(names) <= 10:
        plot.text(
            x="kept",
            y="removed",
            text="text",
            text_align="center",
            text_baseline="middle",
            text_font_size="12px",
            text_color=INK,
            source=source,
        )
    plot.xaxis.major_label_orientation = 0.9 if len(names) > 3 else 0
    plot.xaxis.axis_label, plot.yaxis.axis_label = "kept in", "removed from"
    plot.grid.grid_line_color = None
    hovering(plot, [("removed from", "@removed"), ("kept in", "@kept"), ("documents", "@documents")], renderers=[cell])
    return plot


def mixture(mixed: Sequence[Mixed], unit: str) -> Any:
    """Realised share as a bar, wanted share as a mark."""
    labels = axis_labels([entry.source for entry in mixed])
    wanted, realised = [entry.target_share for entry in mixed], [entry.realised_share for entry in mixed]
    data = {
        "label": labels,
        "wanted": wanted,
        "realised": realised,
        "wanted_text": [share(entry.target_share, 1) for entry in mixed],
        "realised_text": [share(entry.realised_share, 1) for entry in mixed],
        "epochs": [f"{entry.epochs:.2f}" for entry in mixed],
        "used": [f"{count(entry.used)} {unit}" if unit == "tokens" else size(entry.used) for entry in mixed],
    }
    most = max([0.01, *wanted, *realised])
    plot = drawing(y_range=labels[::-1], height=ROW_PX * len(mixed) + 50, x_range=(0, most * 1.05))
    source = ColumnDataSource(data)
    bars = plot.hbar(y="label", right="realised", height=0.6, color=KEPT, source=source)
    plot.scatter(
        x="wanted", y="label", marker="dash", angle=math.pi / 2, size=20, line_color=INK, line_width=2.5, source=source
    )
    plot.xaxis.formatter = NumeralTickFormatter(format="0.[0] %")
    plot.xaxis.ticker.desired_num_ticks = 4
    tips = [("", "@label"), ("wanted", "@wanted_text"), ("realised", "@realised_text"), ("epochs", "@epochs")]
    hovering(plot, [*tips, ("used", "@used")], renderers=[bars])
    return plot


def drawing(**options: Any) -> Any:
    """An empty figure in the style of all others."""
    plot = figure(sizing_mode="stretch_width", toolbar_location=None, tools="", output_backend="canvas", **options)
    plot.background_fill_color = plot.border_fill_color = None
    plot.outline_line_color = None
    for axis in plot.axis:
        axis.axis_line_color = axis.minor_tick_line_color = axis.major_tick_line_color = None
        axis.major_label_text_color = axis.axis_label_text_color = MUTED
        axis.major_label_text_font = axis.axis_label_text_font = "system-ui, sans-serif"
        axis.major_label_text_font_size = axis.axis_label_text_font_size = "12px"
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_standoff = 10
    plot.grid.grid_line_color = GRID
    if "y_range" in options and isinstance(options["y_range"], list):
        plot.ygrid.grid_line_color = None
        plot.yaxis.major_label_text_color = INK
    return plot


def hovering(plot: Any, tips: list[tuple[str, str]], renderers: Sequence[Any] = ()) -> None:
    """Tell what is under the pointer; Bokeh escapes what it puts in place of `@column`."""
    rows = [f'<span style="color:#646b75">{name}</span> {told}' if name else f"<b>{told}</b>" for name, told in tips]
    shown = f'<div class="tip" style="font:13px/1.5 system-ui,sans-serif;color:#1c2024">{"<br>".join(rows)}</div>'
    chosen = {"renderers": list(renderers)} if renderers else {}
    plot.add_tools(HoverTool(tooltips=shown, point_policy="follow_mouse", **chosen))


def _short(rules: Sequence[str]) -> list[str]:
    """Signals without their filter's name, where that leaves them distinct."""
    signals = [rule.rpartition(".")[2] for rule in rules]
    return [signal if signals.count(signal) == 1 else rule for signal, rule in zip(signals, rules, strict=True)]


def axis_labels(names: Sequence[str], limit: int = _LABEL_CHARACTERS) -> list[str]:
    """Short, visible and distinct; what Bokeh would take for mathematics, and load a typesetter for, is broken up."""
    found: list[str] = []
    for name in names:
        label, number = _label(name, limit), 2
        while label in found:
            label, number = f"{_label(name, limit - 4)} ({number})", number + 1
        found.append(label)
    return found


def _label(name: str, limit: int) -> str:
    return _MATHEMATICS.sub(lambda match: match.group() + _NO_SPACE, one_line(name, limit)) or "(no name)"
