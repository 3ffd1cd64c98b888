"""The training loop: every phase of a step is timed, and everything that is needed to go on is kept."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from dataeff.errors import MeasurementError, PlanError, StorageError
from dataeff.ledger import FILE, End, Ledger, Tags, read_ledger
from dataeff.loader.agreement import world_and_rank
from dataeff.loader.dataset import Batch
from dataeff.loader.loader import Loader, held_out
from dataeff.loader.validation import read_validation
from dataeff.manifest import committed
from dataeff.profile.profiler import Profiler
from dataeff.train.checkpoint import checkpoints, load, save
from dataeff.train.model import GPT, IGNORED, ModelSettings, flops_per_token, next_token_loss
from dataeff.train.parametrisation import parameter_groups
from dataeff.train.settings import TrainSettings

RUN_FILE = "train.json"
STOPPED = 128 + signal.SIGTERM
"""Exit code of a run that was asked to stop, and did so after a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run is."""

    step: int
    tokens: int
    """Of all ranks, in this attempt."""
    loss: float
    """Nats a token, of this rank's part of the step."""
    seconds: float
    """Since this attempt's first step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """How a run ended."""

    rank: int
    """Whose process this is."""
    step: int
    end: End
    losses: dict[str, float]
    """Nats a token on the held-out rows, by source; empty where none are held out or the run was stopped."""
    record: Path
    """What `dataeff diagnose` takes."""


def train(
    corpus: str,
    out: Path,
    shape: Mapping[str, Any],
    settings: TrainSettings,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Trained:
    """Train a model on a corpus, from the last checkpoint in `out` if there is one.

    Under torchrun, every process calls it. SIGTERM and SIGINT end the step, write a checkpoint and return.

    Args:
        corpus: What `Loader` takes.
        out: The run's directory.
        shape: Of the model: `ModelSettings` without `vocab_size` and `sequence_length`, which the corpus gives.
        settings: How to train.
        on_progress: Called on rank 0 every `log_every` steps.

    Raises:
        PlanError: The directory is of another corpus or model, or an option cannot work here.
        StorageError: The directory holds something else.
        MeasurementError: The loss is not finite any more.
    """
    place = world_and_rank(None, None)
    device = _device(settings, place["rank"])
    with _process_group(place["world"], device):
        run = _Run(corpus, out, shape, settings, device, place["rank"], place["world"])
        with _stop_signals(run):
            return run.train(on_progress)


class _Run:
    """One attempt of a run on one rank."""

    def __init__(
        self,
        corpus: str,
        out: Path,
        shape: Mapping[str, Any],
        settings: TrainSettings,
        device: torch.device,
        rank: int,
        world: int,
    ) -> None:
        self.corpus, self.out, self.settings, self.device = corpus, out, settings, device
        self.rank, self.world = rank, world
        self.stop_asked = False
        boundaries = bool(shape.get("mask_documents"))
        self.loader = Loader(
            corpus,
            batch_size=settings.batch_size,
            seed=settings.seed,
            num_workers=settings.num_workers,
            boundaries=boundaries,
            weights=settings.weights,
            rows_share=settings.rows_share,
            holdout_rows=settings.holdout_rows,
            pin_memory=device.type == "cuda" and settings.num_workers > 0,
        )
        self.shape = ModelSettings(
            vocab_size=self.loader.vocab_size, sequence_length=self.loader.sequence_length, **shape
        )
        attempt, done = _claim(out, self.shape, settings, rank)
        self.ledger = Ledger(
            out / FILE,
            Tags(
                run=settings.run or out.resolve().name,
                attempt=attempt,
                rank=rank,
                world=world,
                team=settings.team,
                project=settings.project,
                candidate=settings.candidate,
                accelerator=torch.cuda.get_device_name(device) if device.type == "cuda" else "",
            ),
        )
        self.validation = read_validation(Path(settings.validation)) if settings.validation else None
        self.steps_before = done
        self.record = out / f"record-{attempt:03d}"
        torch.manual_seed(settings.seed)
        self.model = GPT(self.shape).to(device)
        self.optimizer = _optimizer(self.model, settings, device)
        self.step = 0
        self._resume()
        self.wrapped: nn.Module = self.model
        if settings.compile:
            self.wrapped = torch.compile(self.wrapped)  # type: ignore[assignment]
        if world > 1:
            self.wrapped = DistributedDataParallel(
                self.wrapped, device_ids=[device.index] if device.type == "cuda" else None
            )

    def train(self, on_progress: Callable[[Progress], None]) -> Trained:
        """Until the last step, or until it is asked to stop."""
        settings = self.settings
        profiler = Profiler(
            self.record,
            rank=self.rank,
            world=self.world,
            command="dataeff train",
            sequence_length=self.shape.sequence_length,
            flops_per_token=flops_per_token(self.model),
            team=settings.team,
            project=settings.project,
        )
        end: End = "failed"
        losses: dict[str, float] = {}
        try:
            with profiler:
                batches = self._endless(profiler)
                first = True
                began_ns = self.ledger.now_ns()
                start = self.step
                while self.step < settings.steps and not self._stopping():
                    self.ledger.enter("compile" if first and settings.compile else self._bucket())
                    loss = self._one_step(batches, profiler)
                    self.step += 1
                    self.ledger.step = self.step
                    looked = self.step % settings.log_every == 0 or self.step == settings.steps
                    seen = self._look(loss, profiler) if looked else None
                    tokens = settings.batch_size * settings.accumulate * self.shape.sequence_length
                    profiler.step(tokens=tokens, samples=settings.batch_size * settings.accumulate, loss=seen)
                    if seen is not None:
                        seconds = (self.ledger.now_ns() - began_ns) / 1e9
                        done = (self.step - start) * tokens * self.world
                        if self.rank == 0:
                            on_progress(Progress(step=self.step, tokens=done, loss=seen, seconds=seconds))
                        self.ledger.write()
                    first = False
                    self._between_steps(profiler)
                end = "preempted" if self.step < settings.steps else "finished"
                self._save(profiler)
                if end == "finished":
                    losses = self._validate(profiler)
            return Trained(rank=self.rank, step=self.step, end=end, losses=losses, record=self.record)
        finally:
            self.ledger.write(end)

    def _endless(self, profiler: Profiler) -> Iterator[Batch]:
        epochs = profiler.watch(self.loader)
        while True:
            yield from epochs

    def _bucket(self) -> Any:
        return "lost_to_restart" if self.step < self.steps_before else "step"

    def _one_step(self, batches: Iterator[Batch], profiler: Profiler) -> Tensor:
        """Forward, backward and update; returns this rank's mean loss, on the device.

        Losses are summed and divided by the step's positions on all ranks, so that the gradient does not depend on how
        they were cut into micro-batches and ranks.
        """
        settings = self.settings
        total = torch.zeros((), device=self.device)
        positions = settings.batch_size * settings.accumulate * (self.shape.sequence_length - 1)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(settings, self.step) * group["lr_scale"]
        for number in range(settings.accumulate):
            with self.ledger.during("data_wait"):
                batch = next(batches)
            with profiler.copying() if self.device.type == "cuda" else contextlib.nullcontext():
                inputs = self._inputs(batch)
            last = number == settings.accumulate - 1
            wait = self.world > 1 and not last
            with self.wrapped.no_sync() if wait else contextlib.nullcontext():  # type: ignore[operator]
                with self._autocast():
                    loss, _ = next_token_loss(self.wrapped, *inputs)
                # DDP averages gradients over ranks, each of which has divided by its own positions: the mean of all.
                (loss / positions).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        if settings.clip_norm:
            nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total / positions

    def _inputs(self, batch: Batch) -> tuple[Tensor, ...]:
        names = ("tokens", "position_ids", "document_ids") if self.shape.mask_documents else ("tokens",)
        return tuple(batch[name].to(self.device, non_blocking=True) for name in names)

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if _dtype(self.settings, self.device) == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def _look(self, loss: Tensor, profiler: Profiler) -> float:
        """The loss as a number, which waits for the device.

        Raises:
            MeasurementError: It is not finite.
        """
        with profiler.synchronizing():
            seen = float(loss)
        if not math.isfinite(seen):
            kept = [path.name for path in checkpoints(self.out)]
            raise MeasurementError(
                f"the loss is {seen} at step {self.step}; the last checkpoint is {kept[-1] if kept else 'none'}: run "
                "again with --skip-rows to leave out the rows behind it, or begin anew with a smaller --learning-rate"
            )
        return seen

    def _between_steps(self, profiler: Profiler) -> None:
        settings = self.settings
        if self.step >= settings.steps:
            return
        if settings.checkpoint_every and self.step % settings.checkpoint_every == 0:
            self._save(profiler)
        if settings.validate_every and self.step % settings.validate_every == 0:
            self._validate(profiler)

    def _stopping(self) -> bool:
        """Whether any rank was asked to stop; with several, they talk about it only where they wait anyway."""
        if self.world == 1:
            return self.stop_asked
        if self.step % self.settings.log_every:
            return False
        flag = torch.tensor(float(self.stop_asked), device=self.device)
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag)

    def _save(self, profiler: Profiler) -> None:
        with self.ledger.during("checkpoint"), profiler.checkpointing():
            if self.rank == 0:
                content = {
                    "model": self.model.state_dict(),
                    "optimizer": self.optimizer.state_dict(),
                    "loader": self.loader.state_dict(),
                    "rng": torch.get_rng_state(),
                    "model_settings": dataclasses.asdict(self.shape),
                }
                save(self.out, self.step, content, self.settings.keep_checkpoints)
            if self.world > 1:
                dist.barrier()

    def _resume(self) -> None:
        found = checkpoints(self.out)
        if not found:
            return
        content = load(found[-1], self.shape)
        self.model.load_state_dict(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        self.loader.load_state_dict(content["loader"])
        torch.set_rng_state(content["rng"])
        self.step = self.ledger.step = content["step"]
        if self.settings.skip_rows:
            self.loader.skip_rows(self.settings.skip_rows)

    def _validate(self, profiler: Profiler) -> dict[str, float]:
        """Mean loss on the held-out rows of each source, in nats a token, and append it to `validation.jsonl`."""
        names = tuple(self.validation.sources) if self.validation else self.loader.sources
        if not self.validation and not self.settings.holdout_rows:
            return {}
        sums = torch.zeros(len(names), 2, dtype=torch.float64, device=self.device)
        with self.ledger.during("evaluation"), profiler.evaluating():
            self.model.eval()
            with torch.no_grad():
                for number, source in enumerate(names):
                    for index, batch in enumerate(self._held_out(source)):
                        if index % self.world == self.rank:
                            with self._autocast():
                                loss, count = self._counted_loss(batch)
                            sums[number] += torch.stack([loss.double(), count.double()])
            self.model.train()
            if self.world > 1:
                dist.all_reduce(sums)
        losses = {name: total / count for name, (total, count) in zip(names, sums.tolist(), strict=True) if count}
        if self.rank == 0:
            with (self.out / "validation.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": self.step, "position": self.loader.position, "losses": losses}) + "\n")
        return losses

    def _held_out(self, source: str) -> Iterator[Batch]:
        """Batches of a source's validation rows."""
        size = self.settings.batch_size
        if self.validation is None:
            rows, boundaries = self.settings.holdout_rows, self.shape.mask_documents
            yield from held_out(self.corpus, source, rows=rows, batch_size=size, boundaries=boundaries)
            return
        found = self.validation.sources[source]
        for start in range(0, len(found.tokens), size):
            tokens, counts = found.tokens[start : start + size], found.counts[start : start + size]
            yield {"tokens": torch.from_numpy(tokens.astype(np.int64)), "counts": torch.from_numpy(counts.copy())}

    def _counted_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sum of the losses of the tokens that count, and how many they are."""
        if "counts" not in batch:
            return next_token_loss(self.model, *self._inputs(batch))
        tokens, counts = batch["tokens"].to(self.device), batch["counts"].to(self.device)
        targets = tokens[:, 1:].masked_fill(~counts[:, 1:], IGNORED)
        logits = self.model(tokens)[:, :-1].flatten(0, 1).float()
        loss = functional.cross_entropy(logits, targets.flatten(), ignore_index=IGNORED, reduction="sum")
        return loss, (targets != IGNORED).sum()


def set_threads(threads: int) -> None:
    """Processors that torch may use in this process."""
    torch.set_num_threads(threads)


def learning_rate(settings: TrainSettings, step: int) -> float:
    """Of step `step`, counted from 0."""
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    share = (step - settings.warmup_steps) / max(1, settings.steps - settings.warmup_steps)
    falling = {"constant": 1.0, "linear": 1 - 0.9 * share, "cosine": 0.55 + 0.45 * math.cos(math.pi * share)}
    annealed = min(1.0, (settings.steps - step) / settings.anneal_steps) if settings.anneal_steps else 1.0
    return settings.learning_rate * falling[settings.schedule] * annealed


def _optimizer(model: GPT, settings: TrainSettings, device: torch.device) -> torch.optim.AdamW:
    groups = parameter_groups(model, settings.learning_rate, settings.weight_decay)
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas, fused=device.type == "cuda")


def _device(settings: TrainSettings, rank: int) -> torch.device:
    wanted = settings.device
    if wanted == "cuda" and not torch.cuda.is_available():
        raise PlanError(
            "device is 'cuda', but torch finds no CUDA device: give --device cpu, or a torch built for CUDA"
        )
    if wanted == "cuda" or (wanted == "auto" and torch.cuda.is_available()):
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank)))
        torch.cuda.set_device(device)
        return device
    return torch.device("cpu")


def _dtype(settings: TrainSettings, device: torch.device) -> torch.dtype:
    if settings.dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float32
    return torch.bfloat16 if settings.dtype == "bfloat16" else torch.float32


@contextlib.contextmanager
def _process_group(world: int, device: torch.device) -> Iterator[None]:
    """Join the other ranks, unless there are none or the caller did."""
    if world == 1 or dist.is_initialized():
        yield
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def _stop_signals(run: _Run) -> Iterator[None]:
    """Note SIGTERM and SIGINT instead of dying of them; a second one kills."""

    def ask(number: int, frame: Any) -> None:
        run.stop_asked = True
        signal.signal(number, before[number])

    before: dict[int, Any] = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _claim(out: Path, shape: ModelSettings, settings: TrainSettings, rank: int) -> tuple[int, int]:
    """Make the directory ours; the number of this attempt, and how many steps earlier ones had done.

    Raises:
        StorageError: It holds something that is no run.
        PlanError: It is of another model.
    """
    path = out / RUN_FILE
    # What a kill left half-written of this very file is ours.
    strange = [found for found in out.iterdir() if not found.match(f".{RUN_FILE}.*.tmp")] if out.is_dir() else []
    if strange and not path.is_file():
        raise StorageError(f"{out} is not empty and holds no training run: give --out a new directory")
    windows, _ = read_ledger(out / FILE)
    mine = [window for window in windows if window.tags.rank == rank]
    attempt = max((window.tags.attempt + 1 for window in windows), default=0)
    if dist.is_initialized():
        numbers: list[int] = [0] * dist.get_world_size()
        dist.all_gather_object(numbers, attempt)
        attempt = max(numbers)
    if rank == 0:
        with committed(path) as sink:
            content = {"model": dataclasses.asdict(shape), "settings": dataclasses.asdict(settings)}
            sink.write(json.dumps(content, indent=1).encode())
    return attempt, max((window.step for window in mine), default=0)
