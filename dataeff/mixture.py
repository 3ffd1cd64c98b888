"""From weights to epochs: how often each source is seen, under a cap on repetition."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dataeff.arrow import U64
from dataeff.errors import PlanError

SUM_TOLERANCE = 1e-9
Copies: TypeAlias = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceShare:
    """How one source is used."""

    available_tokens: int
    """Distinct tokens that the source has."""
    target_share: float
    """Share of training that the mixer asked for, in [0, 1]."""
    use_tokens: int
    """Tokens to train on from this source, repetitions included."""
    epochs: float
    """`use_tokens / available_tokens`: below 1, only that part of the source is seen; 0 where it has nothing."""
    realised_share: float
    """`use_tokens` in all that is used, in [0, 1]. Differs from the target where a cap bites."""
    capped: bool
    """The cap on epochs, or having no tokens at all, gave this source less than its target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixturePlan:
    """What training sees of every source."""

    budget_tokens: int
    """Tokens asked for."""
    max_epochs: float | None
    """The cap on repetition, or None where there is none."""
    sources: dict[str, SourceShare]
    """By source, in the order in which they were given."""
    use_tokens: int
    """Tokens that can be had: the budget less `unreachable_tokens`."""
    unreachable_tokens: int
    """Tokens of the budget that no source may give, for all with a weight are at the cap. Above 0: find more
    data, raise the cap, or train on less."""


def plan(weights: Mapping[str, float], tokens: Mapping[str, int], budget: int, max_epochs: float | None) -> MixturePlan:
    """Tokens to use of each source, as near to `weights` as the cap allows.

    Source i may give at most c_i = floor(max_epochs * tokens_i), or without limit where there is no cap and it
    has tokens at all. It gives min(c_i, s * w_i), with the one s >= 0 at which the sum is the budget; that is,
    what capped sources cannot give goes to the others in proportion to their weights, again and again until
    nothing is left over or all with a weight are at their cap. Where the caps sum to less than the budget each
    source gives its cap, and the rest is `unreachable_tokens`. A source of weight 0 is never used.

    Whole tokens are reached by largest remainder, ties to the name that sorts first. The arithmetic is exact
    (fractions), so the order of the sources does not matter.

    Args:
        weights: Wanted share by source, non-negative, summing to 1; a source that is missing has weight 0.
        tokens: Distinct tokens by source.
        budget: Tokens to train on, 1 or more.
        max_epochs: Most times that any source is seen, above 0; None sets no limit.

    Raises:
        PlanError: A weight is negative, not finite, or of an unknown source; they do not sum to 1; or budget,
            cap or a token count is out of range.
    """
    _check(weights, tokens, budget, max_epochs)
    caps = {name: _cap(count, budget, max_epochs) for name, count in tokens.items()}
    wanted = {name: Fraction(weights[name]) for name in tokens if weights.get(name, 0.0) > 0}
    ideal, at_cap = _fill(wanted, caps, budget)
    use = _whole(ideal)
    total = sum(use.values())
    sources = {
        name: SourceShare(
            available_tokens=count,
            target_share=float(weights.get(name, 0.0)),
            use_tokens=use.get(name, 0),
            epochs=use.get(name, 0) / count if count else 0.0,
            realised_share=use.get(name, 0) / total if total else 0.0,
            capped=name in at_cap,
        )
        for name, count in tokens.items()
    }
    return MixturePlan(
        budget_tokens=budget,
        max_epochs=max_epochs,
        sources=sources,
        use_tokens=total,
        unreachable_tokens=budget - total,
    )


def copies(keys: U64, epochs: float) -> Copies:
    """How often each document of a source is seen, so that the source is seen `epochs` times.

    Every document is seen floor(epochs) times, and once more where its key, read as a fraction of 2**64, is below
    what is left of `epochs`. There is no random generator: the same keys give the same copies, and a document
    that is chosen at some `epochs` stays chosen at every larger one.

    Args:
        keys: A uniform 64-bit hash a document, shape (rows,).
        epochs: 0 or more.

    Returns:
        Copies of each document, shape (rows,).

    Raises:
        PlanError: `epochs` is negative, not finite, or 2**31 or more.
    """
    if not 0 <= epochs < 1 << 31:
        raise PlanError(f"epochs is {epochs!r}; it must be a finite number, 0 or more and below 2**31")
    whole = math.floor(epochs)
    below = np.uint64(math.ceil(Fraction(epochs - whole) * 2**64))
    return np.int32(whole) + (keys < below).astype(np.int32)


def _fill(
    wanted: Mapping[str, Fraction], caps: Mapping[str, int], budget: int
) -> tuple[dict[str, Fraction], frozenset[str]]:
    """Each source's min(cap, s * weight) with the sum at the budget where it can be; and who is at the cap.

    Taken in the order in which a growing s would meet the caps: once a source's fair part of what is left fits
    under its cap, so does that of all that follow.
    """
    left, weight_left = Fraction(budget), sum(wanted.values(), Fraction())
    filled: dict[str, Fraction] = {}
    at_cap = set()
    for name in sorted(wanted, key=lambda name: (caps[name] / wanted[name], name)):
        filled[name] = left * wanted[name] / weight_left
        if caps[name] < filled[name]:
            filled[name] = Fraction(caps[name])
            at_cap.add(name)
        left -= filled[name]
        weight_left -= wanted[name]
    return filled, frozenset(at_cap)


def _whole(ideal: Mapping[str, Fraction]) -> dict[str, int]:
    """Whole tokens with the same sum, by largest remainder. None passes a cap: what is at the cap is whole."""
    whole = {name: math.floor(part) for name, part in ideal.items()}
    missing = math.floor(sum(ideal.values(), Fraction())) - sum(whole.values())
    for name in sorted(ideal, key=lambda name: (whole[name] - ideal[name], name))[:missing]:
        whole[name] += 1
    return whole


def _cap(count: int, budget: int, max_epochs: float | None) -> int:
    if max_epochs is None:
        return budget if count else 0
    return math.floor(Fraction(max_epochs) * count)


def _check(weights: Mapping[str, float], tokens: Mapping[str, int], budget: int, max_epochs: float | None) -> None:
    unknown = sorted(set(weights) - set(tokens))
    if unknown:
        raise PlanError(f"weights name {', '.join(unknown)}; the sources are {', '.join(sorted(tokens))}")
    wrong = sorted(name for name, weight in weights.items() if not (math.isfinite(weight) and weight >= 0))
    if wrong:
        raise PlanError(f"the weight of {wrong[0]} is {weights[wrong[0]]!r}; it must be finite and 0 or more")
    total = math.fsum(weights.values())
    if abs(total - 1) > SUM_TOLERANCE:
        raise PlanError(f"the weights sum to {total!r}; they must sum to 1: divide each by the sum")
    negative = sorted(name for name, count in tokens.items() if count < 0)
    if negative:
        raise PlanError(f"{negative[0]} has {tokens[negative[0]]} tokens; a source has 0 or more")
    if budget < 1:
        raise PlanError(f"the budget is {budget}; it must be 1 or more tokens")
    if max_epochs is not None and not (math.isfinite(max_epochs) and max_epochs > 0):
        raise PlanError(f"max_epochs is {max_epochs!r}; it must be a finite number above 0, or None for no cap")
