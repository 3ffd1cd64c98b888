"""What is compared: candidates, what they are trained with, and what decides. Checked once, at birth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from dataeff.errors import PlanError
from dataeff.mixers import Mixer
from dataeff.mixers.natural import Natural
from dataeff.pipeline import Pipeline
from dataeff.screeners import Screener
from dataeff.screeners.successive_halving import SuccessiveHalving
from dataeff.stages.edit import Edit
from dataeff.stages.filter import Filter
from dataeff.stages.mix import Mix
from dataeff.stages.read import Read
from dataeff.stages.shard import Shard
from dataeff.stages.tokenize import Tokenize
from dataeff.tokenizers import Tokenizer, TrainedBpe


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Something that the next run could train on."""

    corpus: str
    """A name in `Comparison.corpora`."""
    mixer: Mixer = field(default_factory=Natural)
    """How its sources are weighed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """A small model that stands for the real one.

    With `base_width`, its hyper-parameters are those found at that width, carried over by muP (Yang et al. 2022).
    """

    width: int = 128
    layers: int = 4
    heads: int = 4
    base_width: int = 0
    """0: the parametrisation that torch has by itself."""

    @property
    def shape(self) -> dict[str, object]:
        """What `dataeff.train` takes."""
        shape: dict[str, object] = {"width": self.width, "layers": self.layers, "heads": self.heads}
        if self.base_width:
            shape |= {"parametrisation": "mup", "base_width": self.base_width}
        return shape

    @property
    def cost(self) -> float:
        """Of a token, relative to other proxies': weights of the blocks, which is what grows."""
        return float(self.layers * self.width**2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Which of several candidates reaches a validation loss with the fewest tokens.

    All are trained with the same schedule, warm-up and then a constant rate, so that a run can be read at any point;
    annealed runs of the finalists follow. They share a tokenizer and a validation set, held out of every corpus by
    content, of which whatever any candidate trains on does not count.
    """

    corpora: Mapping[str, Pipeline]
    """By name: Read, Edit, Filter, Dedup. Tokenizing and sharding are the same for all and added here."""
    candidates: Mapping[str, Candidate]
    baseline: str
    """What the next run would use if nothing were compared."""
    proxies: Mapping[str, Proxy] = field(default_factory=lambda: {"full": Proxy()})
    """Models by name, from the smallest to the one that decides."""
    tokens: int = 2_000_000
    """Training tokens of a whole trial; rounded up to whole steps."""
    batch_rows: int = 16
    sequence_length: int = 256
    tokenizer: Tokenizer = field(default_factory=lambda: TrainedBpe(vocab_size=2048))
    """Trained, if it is trained, on the baseline's corpus."""
    learning_rate: float = 3e-3
    warmup_share: float = 0.05
    """Of the trial's tokens."""
    evaluations: int = 27
    """Points of a trial's curve; a power of the screener's `eta` puts its rungs on them."""
    seeds: int = 3
    fresh_seeds: int = 3
    """For the finalists, so that the winner is not whoever was lucky; 0 for none."""
    finalists: int = 1
    """Best candidates that are trained again with fresh seeds, beside the baseline."""
    annealed: tuple[float, ...] = (0.5, 0.75, 1.0)
    """Shares of the budget at which the finalists are also annealed, over the last fifth; empty for never."""
    screener: Screener = field(default_factory=SuccessiveHalving)
    target: float | None = None
    """Validation loss to reach, nats a token; None takes what the baseline reaches (its median, two sigmas above)."""
    domains: Mapping[str, float] | None = None
    """Weight of each source's validation loss; None weighs all alike."""
    holdout_share: float = 0.02
    """Of documents."""
    validation_rows: int = 32
    """Rows of each source at most."""
    passage_tokens: int = 32
    """A stretch of validation text so long that also stands in a corpus does not count. With a vocabulary of a few
    thousand ids, 32 are some 15 words, near the 13 that are usual (Brown et al. 2020, appendix C)."""
    max_overlap: float = 0.5
    """A source of whose validation text more is in some corpus is refused."""
    real_tokens: int | None = None
    """Tokens of the run that is planned: each source is cut down so that trials repeat it as often as that run will."""
    seed: int = 0
    team: str = ""
    project: str = ""

    def __post_init__(self) -> None:
        if self.baseline not in self.candidates or len(self.candidates) < 2:
            raise PlanError(
                f"the baseline {self.baseline!r} must be one of two candidates or more; they are "
                f"{', '.join(self.candidates) or 'none'}"
            )
        for name, candidate in self.candidates.items():
            if candidate.corpus not in self.corpora:
                raise PlanError(
                    f"candidate {name!r} is of the corpus {candidate.corpus!r}; the corpora are "
                    f"{', '.join(self.corpora)}"
                )
        for name in (*self.corpora, *self.candidates, *self.proxies):
            if not name or "/" in name or name.startswith("."):
                raise PlanError(f"{name!r} names a folder too: it must not be empty, begin with a dot or have a slash")
        for name, pipeline in self.corpora.items():
            ready = [kind.__name__ for kind in (Tokenize, Mix, Shard) if pipeline.one_of(kind)]
            if ready:
                raise PlanError(
                    f"the corpus {name!r} has {', '.join(ready)}; a comparison tokenizes, mixes and shards all corpora "
                    "alike: leave it out"
                )
        for name in ("tokens", "batch_rows", "sequence_length", "evaluations", "seeds", "finalists", "validation_rows"):
            if getattr(self, name) < 1:
                raise PlanError.out_of_range(self, name, "1 or more")
        if self.fresh_seeds < 0:
            raise PlanError.out_of_range(self, "fresh_seeds", "0 or more")
        if not self.proxies:
            raise PlanError("a comparison needs a proxy: a model to train")
        if self.passage_tokens < 4:
            raise PlanError.out_of_range(self, "passage_tokens", "4 or more: shorter stretches are everywhere")
        if not 0 <= self.max_overlap <= 1:
            raise PlanError.out_of_range(self, "max_overlap", "in [0, 1]")
        if not all(0 < share <= 1 for share in self.annealed) or list(self.annealed) != sorted(set(self.annealed)):
            raise PlanError.out_of_range(self, "annealed", "rising shares in (0, 1]")
        if not 0 <= self.warmup_share < 1:
            raise PlanError.out_of_range(self, "warmup_share", "in [0, 1)")
        if self.target is not None and not (math.isfinite(self.target) and self.target > 0):
            raise PlanError.out_of_range(self, "target", "a loss above 0")
        if self.real_tokens is not None and self.real_tokens < self.budget_tokens:
            raise PlanError.out_of_range(self, "real_tokens", f"a trial's tokens or more ({self.budget_tokens:,})")

    @property
    def step_tokens(self) -> int:
        """Of one optimizer step."""
        return self.batch_rows * self.sequence_length

    @property
    def steps(self) -> int:
        """Of a whole trial: a multiple of `evaluations`."""
        return self.evaluations * max(1, -(-self.tokens // (self.step_tokens * self.evaluations)))

    @property
    def budget_tokens(self) -> int:
        """Of a whole trial."""
        return self.steps * self.step_tokens

    @property
    def rows_share(self) -> float:
        """Of each source's rows, those that a trial uses."""
        return 1.0 if self.real_tokens is None else self.budget_tokens / self.real_tokens

    def reads(self) -> tuple[Read, ...]:
        """Where validation text comes from: what the baseline reads."""
        return self.corpora[self.candidates[self.baseline].corpus].all_of(Read)

    def steps_of(self, corpus: str) -> tuple[Edit | Filter, ...]:
        """What a corpus does to its text, in order."""
        return tuple(stage for stage in self.corpora[corpus].stages if isinstance(stage, (Edit, Filter)))
