"""Dollars to target: tokens over tokens a second, at a price, over the share of time that trains, and the corpus.

What was measured and what is carried over to a larger run are kept apart: a ratio of tokens is measured on proxies at
their scale; that it holds at the scale of the real run is an extrapolation, and marked as one.

A figure that the scaling law has a part in is as unsure as both, the ratio and the law. Their errors are independent,
being of different runs, so the distances of an end from the figure are added as squares (the method of variance
estimates recovery, Zou & Donner 2008, for intervals that are not symmetric): one distance is that of the ratio's own
end under the law as given, the other that of a quantile over equally likely laws at the ratio as measured. Tokens, and
what follows from them, are joined as logarithms, as the ratio's interval is one of logarithms; losses are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dataeff.efficiency.mfu import Peak
from dataeff.efficiency.repetition import ScalingLaw, effective_tokens, tokens_worth
from dataeff.efficiency.repetition_draws import DRAWS, PARAMETERS, TOKENS
from dataeff.errors import PlanError
from dataeff.prices import Price


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A figure with its interval of 95 %; an end that is not known is None, one that has no bound is infinite."""

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
    tokens_by: Parts
    loss_change_by: Parts
    beyond: tuple[str, ...] = field(default=())
    """How the run lies beyond those that the law was fitted to."""
    steps: tuple[str, ...] = field(default=())
    """How each figure came about, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a figure's interval would be if only one of its sources were unsure."""

    ratio: Interval
    """The measured ratio, with the law as it is."""
    law: Interval
    """The law, with the ratio as it was measured. No wider than the figure where the law has no part in it."""


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
    laws: Sequence[ScalingLaw] | None = None,
) -> Carried:
    """Carry a ratio of tokens over to the real run.

    The baseline's tokens, less what their repetitions are not worth, are its effective tokens; the candidate needs
    `ratio` times as many effective ones, and as many of its own as are worth that (data-constrained scaling).
    Where proxies repeated sources as often as the real run will (`real_tokens` of a comparison), the ratio holds
    repetition already, and nothing is added.

    The law thus has a part in tokens only where a source is repeated, and in the change of the loss always.

    Args:
        run: What is planned.
        ratio: Tokens over the baseline's for one loss, with its interval.
        weights, supply: The candidate's share and distinct tokens of each source.
        baseline: The same of the baseline.
        price: Of an hour of one device.
        corpus_usd: What making the corpus costs.
        corpus_scale: How many times larger the real corpus is than the one that was compared.
        repetition_matched: Whether the proxies were.
        law: For what repetition is worth, and for the change of the loss; the published one if not given.
        laws: Equally likely ones, how sure the law is: those of `repetition_draws` if neither is given, none with a law
            of your own; `dataeff.efficiency.repetition_fit.law_draws` makes them.
    """
    if laws is None:
        laws = DRAWS if law is None else ()
    law = law or ScalingLaw()
    supply = {name: round(tokens * corpus_scale) for name, tokens in supply.items()}
    baseline = baseline[0], {name: round(tokens * corpus_scale) for name, tokens in baseline[1].items()}
    same = repetition_matched or (ratio.value == 1 and (weights, supply) == baseline)

    def worth(law: ScalingLaw) -> float:
        return run.tokens if repetition_matched else effective_tokens(*baseline, run.tokens, law.r_d)

    def new_of(law: ScalingLaw, ratio: float) -> float:
        return ratio * worth(law)

    def tokens_of(law: ScalingLaw, ratio: float) -> float:
        if same or math.isinf(ratio):
            return ratio * run.tokens
        if ratio <= 0:
            return 0.0
        found = tokens_worth(weights, supply, new_of(law, ratio), law.r_d)
        return math.inf if found is None else found

    def change_of(law: ScalingLaw, ratio: float) -> float:
        return law.loss_change(run.parameters, worth(law), ratio) if 0 < ratio < math.inf else math.nan

    new, _ = _joined(new_of, law, laws, ratio, logarithms=True)
    tokens, tokens_by = _joined(tokens_of, law, laws, ratio, logarithms=True)
    change, change_by = _joined(change_of, law, laws, ratio, logarithms=False)
    hours = tokens.times(run.device_hours(1.0))
    dollars = hours.times(price.usd_per_hour).plus(corpus_usd) if price else Interval(value=None)
    seen = {name: weight * tokens.value / supply[name] for name, weight in weights.items() if weight and tokens.value}
    return Carried(
        ratio=ratio,
        new_tokens=new,
        tokens=tokens,
        epochs=seen,
        device_hours=hours,
        usd=dollars,
        loss_change=change,
        tokens_by=tokens_by,
        loss_change_by=change_by,
        beyond=_beyond(run) if laws is DRAWS else (),
        steps=_steps(run, law, worth(law), tokens, price, corpus_usd, repetition_matched),
    )


def _joined(
    of: Callable[[ScalingLaw, float], float],
    law: ScalingLaw,
    laws: Sequence[ScalingLaw],
    ratio: Interval,
    *,
    logarithms: bool,
) -> tuple[Interval, Parts]:
    """A figure that rises with the ratio, with the interval of both its sources and of each alone.

    Without a value of the ratio there is no distance to add, and the ends are those of the ratio alone.
    """

    def at(end: float | None) -> float | None:
        found = None if end is None else of(law, end)
        return None if found is None or math.isnan(found) else found

    value, low, high = at(ratio.value), at(ratio.low), at(ratio.high)
    by_ratio = Interval(value=_finite(value), low=low, high=high)
    if ratio.value is None or value is None or not laws:
        return by_ratio, Parts(ratio=by_ratio, law=Interval(value=_finite(value), low=value, high=value))
    least, most = central(of(one, ratio.value) for one in laws)
    # The law as given is one of those that may hold.
    least, most = min(value, least), max(value, most)
    by_law = Interval(value=_finite(value), low=least, high=most)
    joined = Interval(
        value=_finite(value),
        low=None if low is None else _end(value, low, least, logarithms),
        high=None if high is None else _end(value, high, most, logarithms),
    )
    return joined, Parts(ratio=by_ratio, law=by_law)


def central(values: Iterable[float]) -> tuple[float, float]:
    """Between which 95 % of equally likely values lie; of two ranks that would do, the outer one."""
    ranked = sorted(values)
    cut = max(1, math.floor(0.025 * (len(ranked) + 1)))
    return ranked[cut - 1], ranked[-cut]


def _end(value: float, one: float, other: float, logarithms: bool) -> float:
    """The end whose distance from the value is that of both others, their squares added."""
    if math.isinf(value):
        return min(one, other) if min(one, other) < value else value
    if not logarithms:
        return value + math.copysign(math.hypot(one - value, other - value), (one - value) or (other - value))
    if min(one, other) <= 0:
        return 0.0
    away = math.hypot(math.log(one / value), math.log(other / value))
    return value * math.exp(away if max(one, other) > value else -away)


def _finite(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else None


def _beyond(run: RealRun) -> tuple[str, ...]:
    """How a run lies outside those of the published law."""
    found = []
    for name, (least, most) in (("parameters", PARAMETERS), ("tokens", TOKENS)):
        value = getattr(run, name)
        if not least <= value <= most:
            found.append(f"{value:.3g} {name}, where its runs have {least:.3g} to {most:.3g}")
    return tuple(found)


def _steps(
    run: RealRun,
    law: ScalingLaw,
    worth: float,
    tokens: Interval,
    price: Price | None,
    corpus_usd: float,
    repetition_matched: bool,
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
        else f"of the baseline's {run.tokens:.4g} tokens, repetitions priced (R_D* = {law.r_d:.2f}), {worth:.4g} count"
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
