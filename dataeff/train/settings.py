"""What a training run is told: checked once, kept beside its checkpoints."""

from __future__ import annotations

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
    holdout_rows: int = 8
    """Rows of each source that are kept for validation; 0 for none."""
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

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "accumulate", "keep_checkpoints", "log_every"):
            if getattr(self, name) < 1:
                raise PlanError.out_of_range(self, name, "1 or more")
        names = ("warmup_steps", "num_workers", "holdout_rows", "validate_every", "checkpoint_every", "skip_rows")
        for name in (*names, "weight_decay", "clip_norm"):
            if getattr(self, name) < 0:
                raise PlanError.out_of_range(self, name, "0 or more")
        if not 0 < self.learning_rate < 10:
            raise PlanError.out_of_range(self, "learning_rate", "in (0, 10)")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise PlanError.out_of_range(self, "betas", "two numbers in [0, 1)")
        for name, known in (
            ("schedule", "constant cosine linear"),
            ("device", "auto cpu cuda"),
            ("dtype", "auto float32 bfloat16"),
        ):
            if getattr(self, name) not in known.split():
                raise PlanError.out_of_range(self, name, "one of " + ", ".join(known.split()))
