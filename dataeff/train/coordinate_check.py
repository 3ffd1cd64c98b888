"""Does a parametrisation keep activations the same size as models grow? A few steps at each size tell.

The coordinate check of muP (Yang et al. 2022, arXiv:2203.03466, appendix D.1; microsoft/mup 1.0.0 `coord_check`):
train models of several sizes for a few steps, and take the mean absolute coordinate of activations on one batch, and
of what has changed of them since the first step. On log scales, neither may rise or fall with size. It is a necessary
test, not a sufficient one: it sees neither weight decay nor long training, so sweep the learning rate too.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from dataeff.errors import PlanError
from dataeff.train.model import GPT, Block, ModelSettings, next_token_loss
from dataeff.train.parametrisation import Rules, parameter_groups

Grow = Literal["heads", "head_width", "layers"]
Measure = Literal["activation", "change"]

_ROWS, _TOKENS, _IDS = 2, 8, 16
"""Of random batches. Few, because what the updates of other tokens do to a token's activations is noise that falls as
1 / sqrt(width): with few tokens the limit shows in narrow models."""
_Key = tuple[str, Measure, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """How one activation follows the size of the model after so many steps."""

    site: str
    """Where; `attention logits` are those of each token with itself, which rotary positions leave as they are."""
    measure: Measure
    """Mean absolute coordinate of the `activation`, or of its `change` since step 0."""
    step: int
    """Optimizer steps done."""
    slope: float
    """Of log2 of the measure on log2 of the size: near 0 is right, 0.5 doubles where the size is fourfold. Infinite
    where a model diverged, or the measure is 0."""
    means: tuple[float, ...]
    """Of each size: the geometric mean over seeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinateCheck:
    """What a coordinate check found."""

    grow: Grow
    sizes: tuple[int, ...]
    """Widths, or layers where those grew."""
    tolerance: float
    trends: tuple[Trend, ...]

    @property
    def failures(self) -> tuple[Trend, ...]:
        """Trends after step 0 that are steeper than the tolerance, the steepest first."""
        steep = [trend for trend in self.trends if trend.step and not self.steepness(trend) <= self.tolerance]
        return tuple(sorted(steep, key=self.steepness, reverse=True))

    @property
    def passes(self) -> bool:
        """Whether no activation follows the size."""
        return not self.failures

    @property
    def steepest(self) -> Trend:
        """Of the trends after step 0."""
        return max((trend for trend in self.trends if trend.step), key=self.steepness)

    def steepness(self, trend: Trend) -> float:
        """What the tolerance bounds: the slope, up or down.

        Attention logits may fall where heads grow wider: what initialisation leaves of them does so as 1 / sqrt(head
        width) under the right rules.
        """
        may_fall = self.grow == "head_width" and trend.site.endswith("attention logits")
        return trend.slope if may_fall else abs(trend.slope)


def coordinate_check(
    sizes: Sequence[int],
    settings: ModelSettings,
    *,
    grow: Grow = "heads",
    batches: Sequence[Tensor] = (),
    steps: int = 4,
    learning_rate: float = 2e-3,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    tolerance: float = 0.1,
    rules: Rules | None = None,
) -> CoordinateCheck:
    """Train models of several sizes on the CPU, and regress their activations on size.

    Args:
        sizes: Widths, or layers where those grow; two or more.
        settings: Of the models, which differ from it in size only; documents are not masked.
        grow: `heads`: width by more heads as wide as those of `settings`. `head_width`: width by wider heads. `layers`:
            multiples of those of `settings`; activations are compared at the same shares of the depth.
        batches: Token ids, int64, shape (rows, tokens), taken in turn; activations are those of the first. If none are
            given, one batch of random tokens.
        steps: Of AdamW without weight decay, at a constant learning rate.
        learning_rate: Of the base size.
        seeds: Of initialisation and random tokens. Few sizes of narrow models need many.
        tolerance: Steepest slope that passes.
        rules: How models scale; others than muP's are for tests that must fail.

    Raises:
        PlanError: A slope needs more sizes, seeds or steps, or no model is of such a size.
    """
    if len(set(sizes)) < 2 or not seeds or steps < 1:
        raise PlanError(
            f"{len(set(sizes))} sizes, {len(seeds)} seeds and {steps} steps give no slope: use 2, 1 and 1, or more"
        )
    models = [_grown(settings, size, grow) for size in sizes]
    runs = [
        [_coordinates(model, settings.layers, seed, batches, steps, learning_rate, rules) for model in models]
        for seed in seeds
    ]
    trends = (_trend(key, sizes, [[run[key] for run in of_seed] for of_seed in runs]) for key in runs[0][0])
    return CoordinateCheck(grow=grow, sizes=tuple(sizes), tolerance=tolerance, trends=tuple(trends))


def _grown(settings: ModelSettings, size: int, grow: Grow) -> ModelSettings:
    """The model of another size.

    Raises:
        PlanError: There is none.
    """
    settings = dataclasses.replace(settings, mask_documents=False)
    if grow == "layers":
        if size % settings.layers:
            raise PlanError(
                f"a model of {size} layers cannot be compared at shares of {settings.layers}: use a multiple of it"
            )
        return dataclasses.replace(settings, layers=size)
    if grow == "head_width":
        return dataclasses.replace(settings, width=size)
    if size % settings.head_width:
        raise PlanError(f"a width of {size} is not of heads of {settings.head_width}: use a multiple of it")
    return dataclasses.replace(settings, width=size, heads=size // settings.head_width)


def _trend(key: _Key, sizes: Sequence[int], values: list[list[float]]) -> Trend:
    """Of values by seed and size."""
    site, measure, step = key
    logs = [
        statistics.fmean(math.log2(value) if value else -math.inf for value in of_size)
        for of_size in zip(*values, strict=True)
    ]
    finite = all(map(math.isfinite, logs))
    slope = statistics.linear_regression([math.log2(size) for size in sizes], logs).slope if finite else math.inf
    return Trend(site=site, measure=measure, step=step, slope=slope, means=tuple(2**log for log in logs))


def _coordinates(
    settings: ModelSettings,
    places: int,
    seed: int,
    batches: Sequence[Tensor],
    steps: int,
    learning_rate: float,
    rules: Rules | None,
) -> dict[_Key, float]:
    """Mean absolute coordinates of one model's activations after each step, and of their change."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        shape = _ROWS, min(_TOKENS, settings.sequence_length)
        batches = batches or [torch.randint(min(_IDS, settings.vocab_size), shape)]
        model = GPT(settings, rules)
    optimizer = torch.optim.AdamW(parameter_groups(model, learning_rate, 0.0), betas=(0.9, 0.95))
    start = _activations(model, batches[0], places)
    found: dict[_Key, float] = {(site, "activation", 0): value.abs().mean().item() for site, value in start.items()}
    for step in range(1, steps + 1):
        loss, count = next_token_loss(model, batches[(step - 1) % len(batches)])
        (loss / count).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for site, value in _activations(model, batches[0], places).items():
            found[site, "activation", step] = value.abs().mean().item()
            found[site, "change", step] = (value - start[site]).abs().mean().item()
    return found


def _activations(model: GPT, tokens: Tensor, places: int) -> dict[str, Tensor]:
    """By site, in the order of the forward pass, at `places` blocks that are evenly spread over the depth."""
    seen: dict[str, Tensor] = {}
    with _watched(model, places, seen.__setitem__), torch.no_grad():
        model(tokens)
    return seen


@contextmanager
def _watched(model: GPT, places: int, see: Callable[[str, Tensor], None]) -> Iterator[None]:
    """Show `see` what passes the sites of a model."""

    def out(module: nn.Module, site: str, of: Callable[[Tensor], Tensor] = lambda output: output) -> Any:
        return module.register_forward_hook(lambda module, inputs, output: see(site, of(output)))

    def attention_logits(qkv: Tensor) -> Tensor:
        query, key, _ = qkv.view(*qkv.shape[:-1], 3, -1, model.settings.head_width).unbind(-3)
        return (query * key).sum(-1) * first.attention.scale

    blocks = cast("list[Block]", list(model.blocks))
    first = blocks[0]
    handles = [
        first.register_forward_pre_hook(lambda module, inputs: see("embedding", inputs[0])),
        out(model.norm, "final norm"),
        out(model, "logits"),
    ]
    for place in range(1, places + 1):
        block, name = blocks[place * len(blocks) // places - 1], f"block {place}"
        handles += [
            out(block.attention.qkv, f"{name} attention logits", attention_logits),
            out(block.attention, f"{name} attention"),
            out(block.mlp, f"{name} MLP"),
            out(block, name),
        ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
