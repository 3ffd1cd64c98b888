"""What a training run is told: checked once, kept beside its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dataeff.errors import PlanError


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """How a model is trained; its shape is `dataeff.train.model.ModelSettings`."""

    steps: int = 100
    """Optimizer steps."""
    batch_size: int = 8
    """Rows a micro-batch of one rank."""
    accumulate: int = 1
    """Micro-batches a step."""
    learning_rate: float = 3e-3
    warmup_steps: int = 10
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """After warm-up; the last two fall to a tenth at the last step."""
    anneal_steps: int = 0
    """Last steps of a constant schedule, in which the rate falls to nothing; a run may be read at any step before."""
    weight_decay: float = 0.1
    """Of matrices only."""
    betas: tuple[float, float] = (0.9, 0.95)
    clip_norm: float = 1.0
    """Largest norm of the gradient; 0 for no limit."""
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of matrix products; `auto` is bfloat16 where a CUDA device has it, else float32."""
    compile: bool = False
    num_workers: int = 0
    weights: Mapping[str, float] | None = None
    """Share of each source; the corpus's own mixture if not given."""
    rows_share: float = 1.0
    """Of each source's rows, those that are used: a short run that repeats sources as often as a long one would."""
    holdout_rows: int = 8
    """Rows of each source that are kept for validation; 0 for none."""
    validation: str = ""
    """A validation set made by `dataeff compare`, in place of rows that are kept."""
    validate_every: int = 0
    """Steps between validations; 0 for one at the end only."""
    checkpoint_every: int = 0
    """Steps between checkpoints; 0 for one at the end only."""
    keep_checkpoints: int = 2
    log_every: int = 10
    """Steps between looks at the loss, each of which waits for the device."""
    skip_rows: int = 0
    """Rows of all ranks to leave out when this run resumes, for instance after a spike of the loss."""
    team: str = ""
    project: str = ""
    run: str = ""
    """Its name in the ledger; that of its directory if not given."""
    candidate: str = ""
    """Which of several compared runs this is."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "accumulate", "keep_checkpoints", "log_every"):
            if getattr(self, name) < 1:
                raise PlanError.out_of_range(self, name, "1 or more")
        names = ("warmup_steps", "num_workers", "holdout_rows", "validate_every", "checkpoint_every", "skip_rows")
        for name in (*names, "anneal_steps", "weight_decay", "clip_norm"):
            if getattr(self, name) < 0:
                raise PlanError.out_of_range(self, name, "0 or more")
        if not 0 < self.learning_rate < 10:
            raise PlanError.out_of_range(self, "learning_rate", "in (0, 10)")
        if not 0 < self.rows_share <= 1:
            raise PlanError.out_of_range(self, "rows_share", "in (0, 1]")
        if self.anneal_steps and self.schedule != "constant":
            raise PlanError(f"anneal_steps ends a constant schedule, and schedule is {self.schedule!r}: give one")
        if self.validation and self.holdout_rows:
            raise PlanError("validation takes the place of holdout_rows: set holdout_rows to 0")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise PlanError.out_of_range(self, "betas", "two numbers in [0, 1)")
        for name, known in (
            ("schedule", "constant cosine linear"),
            ("device", "auto cpu cuda"),
            ("dtype", "auto float32 bfloat16"),
        ):
            if getattr(self, name) not in known.split():
                raise PlanError.out_of_range(self, name, "one of " + ", ".join(known.split()))
