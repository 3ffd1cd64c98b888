"""Mix: how often each source is seen in training."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dataeff import manifest
from dataeff.errors import PlanError
from dataeff.mixers import Mixer
from dataeff.mixture import MixturePlan, plan
from dataeff.registry import name_of
from dataeff.stages.tasks import Context, commit_step

STEP = "mixture"
VERSION = 1


@dataclass(frozen=True, slots=True, init=False)
class Mix:
    """Choose each source's share of training, and so how often its documents repeat.

    Args:
        mixer: A member of `dataeff.mixers`.
        budget: Tokens to train on (bytes of text where nothing is tokenized); None takes all there are, once.
        max_epochs: Most times that any document repeats; 4 epochs are about as good as fresh data (Muennighoff et
            al. 2023). None sets no limit.
    """

    mixer: Mixer
    budget: int | None
    max_epochs: float | None

    def __init__(self, mixer: Mixer, *, budget: int | None = None, max_epochs: float | None = 4.0) -> None:
        object.__setattr__(self, "mixer", mixer)
        object.__setattr__(self, "budget", budget)
        object.__setattr__(self, "max_epochs", max_epochs)
        if not callable(getattr(mixer, "weights", None)):
            raise PlanError(f"{mixer!r} is not a mixer: it must have the method `weights`")
        if budget is not None and budget < 1:
            raise PlanError.out_of_range(self, "budget", "1 or more tokens")
        if max_epochs is not None and max_epochs <= 0:
            raise PlanError.out_of_range(self, "max_epochs", "above 0")


def run(context: Context, mix: Mix, supply: dict[str, int], unit: str) -> MixturePlan:
    """Weights, then epochs by source under the cap.

    Args:
        context: Where and with what.
        mix: The mixer.
        supply: Tokens, or bytes, that each source has.
        unit: `tokens` or `bytes`: what `supply` counts.
    """
    budget = mix.budget if mix.budget is not None else sum(supply.values())
    weights = mix.mixer.weights(supply, budget)
    mixture = plan(weights, supply, budget, mix.max_epochs)
    facts: dict[str, Any] = {
        "version": VERSION,
        "mixer": name_of(mix.mixer),
        "unit": unit,
        "plan": asdict(mixture),
    }
    commit_step(context, STEP, {**facts, "fingerprint": manifest.fingerprint(facts)})
    return mixture
