"""Does a learning rate that is best for a narrow model stay best for a wide one, and would broken rules be noticed?

Two tests of muP. The sweep: loss on held-out text by learning rate at three widths, with muP and without. The widest is
the base, where both are the same model. With the narrowest as base and tied embeddings, the best rate does not move
either, but at two and four times that rate wider models are worse, so whether they are better is a figure here. The
coordinate check: activations and their changes over widths, with the right rules and with one broken at a time. Models
have two layers; those of the sweep read bytes of real text.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks import corpora
from benchmarks.harness import Figure, Report, say
from dataeff.arrow import text_views
from dataeff.train.coordinate_check import CoordinateCheck, coordinate_check
from dataeff.train.model import GPT, ModelSettings, next_token_loss
from dataeff.train.parametrisation import Rules, parameter_groups

CHECK_WIDTHS = (64, 128, 256, 512, 1024)
SWEEP_WIDTHS = (32, 64, 128)
RATES = tuple(2.0**power for power in range(-11, -4))
SEEDS = (0, 1)
CORPUS = "novels"
STEPS, WARMUP_STEPS, ROWS, HELD_OUT_ROWS = 150, 15, 16, 128
CLIP_NORM, WEIGHT_DECAY, BETAS = 1.0, 0.1, (0.9, 0.95)
TOLERANCE = 0.1
CHECKED = ModelSettings(vocab_size=16, sequence_length=8, width=64, layers=2, heads=4)
TRAINED = ModelSettings(vocab_size=256, sequence_length=64, width=128, layers=2, heads=8)
MUTANTS = {
    "learning rate of matrices not scaled": Rules(hidden_learning_rate=0.0),
    "initialisation of matrices not scaled": Rules(hidden_init=0.0),
    "logits not divided by m": Rules(readout=0.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """Where a width's loss is least over learning rates."""

    rate: float
    loss: float
    """Nats a byte on held-out rows, mean over seeds."""
    at_edge: bool
    """The best rate is the first or last that was tried: the true one may lie beyond."""


def run() -> Report:
    """Sweep, then check coordinates."""
    # Models this small gain nothing from a second thread, and sums do not depend on how many processors there are.
    torch.set_num_threads(1)
    rows = text_rows()
    losses = _sweep(rows)
    checks = _checks()
    corpora.DATA.mkdir(exist_ok=True)
    plot = corpora.DATA / "mup.html"
    _plot(checks, losses, str(plot))
    return Report(
        name="mup",
        figures=(*map(_steepest, checks, checks.values()), *_shifts(losses)),
        notes=(
            f"coordinate check: widths {CHECK_WIDTHS}, 5 seeds, 4 steps; broken rules must be steeper than {TOLERANCE}",
            f"sweep: {STEPS} steps of {ROWS} rows of {TRAINED.sequence_length} bytes of {CORPUS}, {len(SEEDS)} seeds; "
            f"loss on {HELD_OUT_ROWS} held-out rows",
            f"plots: {plot.relative_to(corpora.ROOT)}",
        ),
        versions={"torch": torch.__version__},
        details={
            "losses": {kind: {str(width): by for width, by in found.items()} for kind, found in losses.items()},
            "trends": {name: [dataclasses.asdict(trend) for trend in check.trends] for name, check in checks.items()},
        },
    )


def text_rows() -> Tensor:
    """Bytes of the corpus, int64, shape (rows, sequence_length), in a seeded order."""
    data, offsets = text_views(corpora.texts(CORPUS))
    count = (STEPS * ROWS + HELD_OUT_ROWS) * TRAINED.sequence_length
    text = data[offsets[0] : offsets[-1]]
    places = np.random.default_rng(0).permutation(len(text) // TRAINED.sequence_length)
    rows = text[: len(places) * TRAINED.sequence_length].reshape(len(places), -1)[places]
    return torch.from_numpy(rows[: count // TRAINED.sequence_length].astype(np.int64))


def _checks() -> dict[str, CoordinateCheck]:
    """By what was checked; the right rules first."""
    right = dataclasses.replace(CHECKED, parametrisation="mup", base_width=CHECKED.width)
    cases: dict[str, tuple[ModelSettings, Rules, Any]] = {
        "muP": (right, Rules(), "heads"),
        "standard parametrisation": (CHECKED, Rules(), "heads"),
        **{name: (right, rules, "heads") for name, rules in MUTANTS.items()},
    }
    heads = dataclasses.replace(right, base_head_width=right.head_width)
    cases["muP, heads wider"] = heads, Rules(), "head_width"
    cases["attention over the root of the head width"] = heads, Rules(attention=0.0), "head_width"
    found = {}
    for name, (settings, rules, grow) in cases.items():
        say(f"coordinate check: {name}")
        found[name] = coordinate_check(CHECK_WIDTHS, settings, grow=grow, rules=rules, tolerance=TOLERANCE)
    return found


def _steepest(name: str, check: CoordinateCheck) -> Figure:
    """The steepest slope that counts, and whether it is as it must be."""
    right = name.startswith("muP")
    worst = check.steepest
    return Figure(
        name=f"steepest slope: {name}",
        value=check.steepness(worst),
        unit="log2/log2",
        at_most=TOLERANCE if right else None,
        at_least=None if right else TOLERANCE,
        note=f"{worst.measure} of {worst.site} at step {worst.step}, {worst.slope:+.2f}",
    )


def _sweep(rows: Tensor) -> dict[str, dict[int, dict[str, float]]]:
    """Mean loss over seeds by kind, width and learning rate (as text); of the base width, the kinds share theirs."""
    *narrower, base = SWEEP_WIDTHS
    found: dict[str, dict[int, dict[str, float]]] = {"mup": {}, "standard": {}}
    for width in narrower:
        settings = dataclasses.replace(TRAINED, width=width, heads=width // TRAINED.head_width)
        found["standard"][width] = _by_rate(settings, rows)
        found["mup"][width] = _by_rate(dataclasses.replace(settings, parametrisation="mup", base_width=base), rows)
    found["standard"][base] = found["mup"][base] = _by_rate(TRAINED, rows)
    return found


def _by_rate(settings: ModelSettings, rows: Tensor) -> dict[str, float]:
    say(f"sweep: {settings.parametrisation}, width {settings.width}")
    return {f"{rate:g}": statistics.fmean(trained_loss(settings, rate, seed, rows) for seed in SEEDS) for rate in RATES}


def trained_loss(settings: ModelSettings, rate: float, seed: int, rows: Tensor) -> float:
    """Nats a byte on the held-out rows after training on the others once; infinite where it diverged."""
    torch.manual_seed(seed)
    model = GPT(settings)
    optimizer = torch.optim.AdamW(parameter_groups(model, rate, WEIGHT_DECAY), betas=BETAS)
    held_out, train = rows[:HELD_OUT_ROWS], rows[HELD_OUT_ROWS:]
    for step in range(STEPS):
        # Warm-up, then linearly to a tenth.
        now = rate * min((step + 1) / WARMUP_STEPS, 1 - 0.9 * (step - WARMUP_STEPS) / (STEPS - WARMUP_STEPS))
        for group in optimizer.param_groups:
            group["lr"] = now * group["lr_scale"]
        loss, count = next_token_loss(model, train[step * ROWS : (step + 1) * ROWS])
        (loss / count).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        loss, count = next_token_loss(model, held_out)
    value = float(loss / count)
    return value if math.isfinite(value) else math.inf


def best(losses: dict[str, float]) -> Best:
    """Of losses by learning rate, in the order of the rates."""
    rate = min(losses, key=losses.__getitem__)
    return Best(rate=float(rate), loss=losses[rate], at_edge=rate in (next(iter(losses)), next(reversed(losses))))


def _shifts(losses: dict[str, dict[int, dict[str, float]]]) -> list[Figure]:
    """How far the best learning rate moves, what taking the narrowest's costs, and whether wider models are better."""
    narrowest, widest = SWEEP_WIDTHS[0], SWEEP_WIDTHS[-1]
    figures = []
    for kind, found in losses.items():
        bests = {width: best(by) for width, by in found.items()}
        powers = [math.log2(entry.rate) for entry in bests.values()]
        kept = [by[f"{bests[narrowest].rate:g}"] for by in found.values()]
        edges = {width: " (edge)" if entry.at_edge else "" for width, entry in bests.items()}
        target = kind == "mup" or None
        figures += [
            Figure(
                name=f"shift of the best learning rate: {kind}",
                value=max(powers) - min(powers),
                unit="factors of 2",
                at_most=target and 1.0,
                note=", ".join(
                    f"{width}: 2^{power:g}{edges[width]}" for width, power in zip(bests, powers, strict=True)
                ),
            ),
            Figure(
                name=f"loss that width {narrowest}'s best rate costs at {widest}: {kind}",
                value=kept[-1] - bests[widest].loss,
                unit="nats/byte",
                note=f"{kept[-1]:.4f} against {bests[widest].loss:.4f}",
            ),
            Figure(
                name=f"largest rise of loss from a width to the next, at that rate: {kind}",
                value=max(after - before for before, after in itertools.pairwise(kept)),
                unit="nats/byte",
                at_most=target and 0.0,
                note=", ".join(f"{width}: {loss:.4f}" for width, loss in zip(found, kept, strict=True)),
            ),
        ]
    return figures


def _plot(checks: dict[str, CoordinateCheck], losses: dict[str, dict[int, dict[str, float]]], path: str) -> None:
    """Losses by learning rate, and the last step's changes by width, as an HTML page that needs no network."""
    from bokeh.layouts import gridplot
    from bokeh.palettes import Category10_10
    from bokeh.plotting import figure, output_file, save

    plots = []
    for kind, found in losses.items():
        plot = figure(title=f"{kind}: loss by learning rate", x_axis_type="log", width=420, height=320)
        for colour, (width, by) in zip(Category10_10, found.items(), strict=False):
            plot.line(list(map(float, by)), list(by.values()), color=colour, legend_label=f"width {width}")
            plot.scatter(best(by).rate, best(by).loss, color=colour, size=9)
        plot.xaxis.axis_label, plot.yaxis.axis_label = "learning rate", "nats a byte"
        plots.append(plot)
    for name, check in checks.items():
        plot = figure(title=name, x_axis_type="log", y_axis_type="log", width=420, height=320)
        last = max(trend.step for trend in check.trends)
        shown = [trend for trend in check.trends if (trend.measure, trend.step) == ("change", last)]
        for number, trend in enumerate(shown):
            colour = Category10_10[number % 10]
            plot.line(list(check.sizes), list(trend.means), color=colour, legend_label=trend.site)
        plot.xaxis.axis_label, plot.yaxis.axis_label = "width", f"mean change after {last} steps"
        plots.append(plot)
    output_file(path, title="muP", mode="inline")
    save(gridplot(plots, ncols=3))
