"""What repeating data is worth: the data-constrained scaling law of Muennighoff et al. 2023 (arXiv 2305.16264).

A token seen again teaches less than a new one: after e epochs, unique tokens count 1 + R_D* (1 - exp(-(e - 1) / R_D*))
times, so four epochs are worth 3.7 of new data, and no number of epochs more than 1 + R_D* = 16.4. The constants are
those of the authors' parametric fit (huggingface/datablations). How far other fits of the same runs lie from them is in
`dataeff.efficiency.repetition_draws`; a law of one's own runs is fitted in `dataeff.efficiency.repetition_fit`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dataeff.errors import PlanError

R_D_STAR = 15.387756
"""Epochs after the first over which the worth of a repetition falls by e."""
R_N_STAR = 5.309743
"""The same of parameters beyond those that are best for the unique tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingLaw:
    """Loss of a model of N parameters after D tokens: E + A / N**alpha + B / D**beta, in nats a token.

    Absolute values are those of C4 with the authors' tokenizer; differences carry over better than losses do.
    """

    log_a: float = 6.255414
    log_b: float = 7.3049974
    log_e: float = 0.6254804
    alpha: float = 0.3526596
    beta: float = 0.3526596
    r_d: float = R_D_STAR
    r_n: float = R_N_STAR

    def loss(self, parameters: float, tokens: float, unique_tokens: float | None = None) -> float:
        """Predicted loss.

        Args:
            parameters: Of the model.
            tokens: Trained on, repetitions included.
            unique_tokens: Of these, different ones; all of them if not given.

        Raises:
            PlanError: One of them is not above 0.
        """
        unique = tokens if unique_tokens is None else min(unique_tokens, tokens)
        if not min(parameters, tokens, unique) > 0:
            raise PlanError(f"{parameters:g} parameters, {tokens:g} tokens, {unique:g} unique: all must be above 0")
        balance = (self.alpha * math.exp(self.log_a) / (self.beta * math.exp(self.log_b))) ** (
            1 / (self.alpha + self.beta)
        )
        best_parameters = min(parameters, (unique * balance) ** (self.beta / self.alpha) * balance)
        data = unique * effective_epochs(tokens / unique, self.r_d)
        beyond = max(parameters / best_parameters - 1, 0.0)
        size = best_parameters * (1 + self.r_n * -math.expm1(-beyond / self.r_n))
        capacity, learnt = math.exp(self.log_a) / size**self.alpha, math.exp(self.log_b) / data**self.beta
        return float(math.exp(self.log_e) + capacity + learnt)

    def loss_change(self, parameters: float, tokens: float, ratio: float) -> float:
        """What it means for the loss that data needs `ratio` times the tokens, at equal tokens, in nats."""
        return self.loss(parameters, tokens / ratio) - self.loss(parameters, tokens)


def effective_epochs(epochs: float, r_d: float = R_D_STAR) -> float:
    """Epochs of new data that are worth so many of the same data.

    Raises:
        PlanError: `epochs` is below 0.
    """
    if epochs < 0:
        raise PlanError(f"{epochs:g} epochs; it must be 0 or more")
    return epochs if epochs <= 1 else 1 - r_d * math.expm1(-(epochs - 1) / r_d)


def effective_tokens(
    weights: Mapping[str, float], supply: Mapping[str, int], tokens: float, r_d: float = R_D_STAR
) -> float:
    """New tokens that are worth `tokens` of a mixture whose sources run out.

    Args:
        weights: Share of each source.
        supply: Distinct tokens of each source.
        tokens: To train on, repetitions included.
        r_d: See `R_D_STAR`.

    Raises:
        PlanError: A source with a weight has no tokens.
    """
    empty = sorted(name for name, weight in weights.items() if weight > 0 and not supply.get(name))
    if empty:
        raise PlanError(f"{', '.join(empty)} has a weight, but no tokens: leave it out of the mixture")
    return math.fsum(
        supply[name] * effective_epochs(weight * tokens / supply[name], r_d)
        for name, weight in weights.items()
        if weight
    )


def tokens_worth(
    weights: Mapping[str, float],
    supply: Mapping[str, int],
    effective: float,
    r_d: float = R_D_STAR,
    *,
    most_times: float = 1e3,
) -> float | None:
    """Tokens of a mixture that are worth so many new ones; None where no amount of repetition is.

    Args:
        weights, supply: As for `effective_tokens`.
        effective: New tokens.
        r_d: See `R_D_STAR`.
        most_times: Where to stop looking, in multiples of `effective`.
    """
    low, high = effective, effective * most_times
    if effective_tokens(weights, supply, low, r_d) >= effective * (1 - 1e-12):
        return low
    if effective_tokens(weights, supply, high, r_d) < effective:
        return None
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if effective_tokens(weights, supply, middle, r_d) < effective else (low, middle)
    return high
