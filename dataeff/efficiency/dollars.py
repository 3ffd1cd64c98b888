"""Dollars to target: tokens over tokens a second, at a price, over the share of time that trains, and the corpus.

What was measured and what is carried over to a larger run are kept apart: a ratio of tokens is measured on proxies at
their scale; that it holds at the scale of the real run is an extrapolation, and marked as one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from dataeff.efficiency.mfu import Peak
from dataeff.efficiency.repetition import ScalingLaw, effective_tokens, tokens_worth
from dataeff.errors import PlanError
from dataeff.prices import Price


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A figure with its interval; an end that is not known is None."""

    value: float | None
    low: float | None = None
    high: float | None = None

    def times(self, factor: float) -> Interval:
        """Each multiplied."""
        return Interval(
            value=None if self.value is None else self.value * factor,
            low=None if self.low is None else self.low * factor,
            high=None if self.high is None else self.high * factor,
        )

    def plus(self, more: float) -> Interval:
        """Each with so much added."""
        return Interval(
            value=None if self.value is None else self.value + more,
            low=None if self.low is None else self.low + more,
            high=None if self.high is None else self.high + more,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RealRun:
    """The run that is planned."""

    parameters: float
    tokens: float
    """What the baseline would be trained on."""
    devices: int
    peak: Peak | None = None
    mfu: float | None = None
    """Model FLOPs utilisation that is expected, with `peak`."""
    tokens_per_s: float | None = None
    """Of all devices, stalls included, where it was measured; else it follows from `mfu`."""
    ettr: float = 1.0
    """Share of the allocated time that trains."""

    def __post_init__(self) -> None:
        for name in ("parameters", "tokens", "devices"):
            if not getattr(self, name) > 0:
                raise PlanError.out_of_range(self, name, "above 0")
        if not 0 < self.ettr <= 1:
            raise PlanError.out_of_range(self, "ettr", "in (0, 1]")
        if self.tokens_per_s is None and (self.mfu is None or self.peak is None):
            raise PlanError("how fast the real run is must be known: give its tokens a second, or an MFU and a device")
        if self.mfu is not None and not 0 < self.mfu <= 1:
            raise PlanError.out_of_range(self, "mfu", "in (0, 1]")
        if self.tokens_per_s is not None and not self.tokens_per_s > 0:
            raise PlanError.out_of_range(self, "tokens_per_s", "above 0")

    @property
    def speed(self) -> float:
        """Tokens a second of all devices: as measured, or MFU x peak x devices / 6 N."""
        if self.tokens_per_s is not None:
            return self.tokens_per_s
        assert self.mfu is not None
        assert self.peak is not None
        return self.mfu * self.peak.flops_per_s * self.devices / (6 * self.parameters)

    def device_hours(self, tokens: float) -> float:
        """Allocated, for so many tokens."""
        return tokens / self.speed * self.devices / 3600 / self.ettr


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What one candidate means for the real run. All of it is extrapolated but `ratio`."""

    ratio: Interval
    """Tokens over the baseline's, measured on proxies."""
    new_tokens: Interval
    """Of never repeated data, for the loss that the baseline reaches."""
    tokens: Interval
    """With repetition priced; None where no amount of repetition is worth it."""
    epochs: Mapping[str, float]
    """Times each source is seen."""
    device_hours: Interval
    usd: Interval
    """Training and the corpus."""
    loss_change: Interval
    """At equal tokens, by the scaling law, in nats: below 0 is better."""
    steps: tuple[str, ...] = field(default=())
    """How each figure came about, in words."""


def carried(
    run: RealRun,
    ratio: Interval,
    weights: Mapping[str, float],
    supply: Mapping[str, int],
    baseline: tuple[Mapping[str, float], Mapping[str, int]],
    *,
    price: Price | None,
    corpus_usd: float = 0.0,
    corpus_scale: float = 1.0,
    repetition_matched: bool = False,
    law: ScalingLaw | None = None,
) -> Carried:
    """Carry a ratio of tokens over to the real run.

    The baseline's tokens, less what their repetitions are not worth, are its effective tokens; the candidate needs
    `ratio` times as many effective ones, and as many of its own as are worth that (data-constrained scaling).
    Where proxies repeated sources as often as the real run will (`real_tokens` of a comparison), the ratio holds
    repetition already, and nothing is added.

    Args:
        run: What is planned.
        ratio: Tokens over the baseline's for one loss, with its interval.
        weights, supply: The candidate's share and distinct tokens of each source.
        baseline: The same of the baseline.
        price: Of an hour of one device.
        corpus_usd: What making the corpus costs.
        corpus_scale: How many times larger the real corpus is than the one that was compared.
        repetition_matched: Whether the proxies were.
        law: For the change of the loss; the published one if not given.
    """
    law = law or ScalingLaw()
    supply = {name: round(tokens * corpus_scale) for name, tokens in supply.items()}
    baseline = baseline[0], {name: round(tokens * corpus_scale) for name, tokens in baseline[1].items()}
    worth = run.tokens if repetition_matched else effective_tokens(*baseline, run.tokens)
    new = ratio.times(worth)
    if repetition_matched or (ratio.value == 1 and (weights, supply) == baseline):
        tokens = ratio.times(run.tokens)
    else:
        ends = [None if end is None or not math.isfinite(end) else end for end in (new.value, new.low, new.high)]
        found = [None if end is None or end <= 0 else tokens_worth(weights, supply, end) for end in ends]
        tokens = Interval(value=found[0], low=found[1], high=found[2])
    hours = tokens.times(run.device_hours(1.0))
    dollars = hours.times(price.usd_per_hour).plus(corpus_usd) if price else Interval(value=None)
    changes = [None if end is None or not 0 < end < math.inf else law.loss_change(run.parameters, worth, end)
               for end in (ratio.value, ratio.low, ratio.high)]  # fmt: skip
    seen = {name: weight * tokens.value / supply[name] for name, weight in weights.items() if weight and tokens.value}
    return Carried(
        ratio=ratio,
        new_tokens=new,
        tokens=tokens,
        epochs=seen,
        device_hours=hours,
        usd=dollars,
        loss_change=Interval(value=changes[0], low=changes[1], high=changes[2]),
        steps=_steps(run, worth, tokens, price, corpus_usd, repetition_matched),
    )


def _steps(
    run: RealRun, worth: float, tokens: Interval, price: Price | None, corpus_usd: float, repetition_matched: bool
) -> tuple[str, ...]:
    """In words."""
    if run.tokens_per_s is not None:
        speed = f"{run.speed:,.0f} tokens/s, as given"
    else:
        assert run.peak is not None
        speed = (
            f"{run.speed:,.0f} tokens/s = MFU {run.mfu:.2f} x {run.peak.flops_per_s:.4g} FLOP/s ({run.peak.source}) x "
            f"{run.devices} devices / (6 x {run.parameters:.3g} parameters)"
        )
    repeated = (
        "proxies repeated sources as often as the real run does, so repetition is in the ratio"
        if repetition_matched
        else f"of the baseline's {run.tokens:.4g} tokens, repetitions priced (R_D* = 15.39), {worth:.4g} count"
    )
    steps = [repeated, speed]
    if tokens.value is not None:
        steps.append(
            f"{run.device_hours(tokens.value):,.0f} device-hours = {tokens.value:.4g} tokens / {run.speed:,.0f} x "
            f"{run.devices} / 3600 / ETTR {run.ettr:.3f}"
        )
    if price is not None:
        steps.append(f"price: {price}; the corpus: ${corpus_usd:,.2f}")
    return tuple(steps)
