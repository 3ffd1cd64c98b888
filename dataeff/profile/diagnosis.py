"""Is it the data, which part of it, what to change, what that gains, and what it is worth."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataeff.arrow import F64
from dataeff.errors import MeasurementError
from dataeff.prices import Price
from dataeff.profile.replay import Settings, Workload, step_times
from dataeff.profile.stalls import Interval, Stalls, block_means, check, column, interval, measure, own_ns
from dataeff.profile.stragglers import Stragglers, stragglers
from dataeff.steps import RunInfo, RunRecord

MIN_GAIN_SHARE = 0.01
"""What a change must take off the step time to be recommended."""
MAX_RECOMMENDATIONS = 3
BOUND_SHARE, BADLY_BOUND_SHARE = 0.10, 0.20
"""From where on a run is bound by its data, and badly so; TraceML's thresholds for input-bound runs."""
_WORKERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_PREFETCH = (2, 4, 8, 16)
_ENOUGH = 0.005
"""Of the step time: a larger setting must gain so much more than a smaller one to be preferred."""
_HANDOVER_NS, _HANDOVER_NS_PER_BYTE = 1.0e6, 0.75e6 / 2**20
"""What torch takes to hand a batch from a worker to the loop, measured on CPUs for 64 KiB to 1 MiB."""
_WAKE_NS = 0.75e6
"""Linux lets a process run for this long at least before it gives its processor to one that woke."""
_RANKS_A_MACHINE = 8
_MIN_STAMPED, _MIN_HANDED_OVER = 16, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What another setting would do."""

    change: str
    """What is changed: workers, prefetch, batch, pinning, storage, cache, shards."""
    setting: str
    """To what, in words."""
    settings: Settings
    step_s: Interval
    """Time of a step with as many samples as now."""
    gain_share: float
    """What it takes off the step time, in [0, 1]; negative where it is slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """A change worth making."""

    prediction: Prediction
    advice: str
    """What to do, as an order."""
    evidence: str
    """The measured figures that speak for it."""
    gain_share: Interval
    """What it takes off the step time."""
    usd_per_day: Interval | None
    """What the whole run, at its price, wastes less in a day; None without a price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The record as a workload, and how well replaying the run's own settings gives its measured step time."""

    rank: int
    """Whose batches were replayed: the rank that stalled most."""
    workload: Workload
    settings: Settings
    measured_s: float
    replayed_s: float
    assumptions: tuple[str, ...]
    """What the record does not say."""

    @property
    def error_share(self) -> float:
        """How far the replay of the run's own settings is off; predictions are scaled by it."""
        return self.replayed_s / self.measured_s - 1

    def predict(self, change: str, setting: str, settings: Settings, *, seed: int = 0) -> Prediction:
        """Step time under other settings, with the replay's own error taken off and added to the interval."""
        times = step_times(self.workload, settings) / settings.batch_scale / 1e9
        scale = self.measured_s / self.replayed_s
        drawn = interval(float(times.mean()), block_means(times[None], seed=seed)[:, 0])
        margin = abs(self.error_share)
        step_s = Interval(
            value=drawn.value * scale, low=drawn.low * scale * (1 - margin), high=drawn.high * scale * (1 + margin)
        )
        return Prediction(
            change=change,
            setting=setting,
            settings=settings,
            step_s=step_s,
            gain_share=1 - step_s.value / self.measured_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadroomCheck:
    """A run without data cost beside what the replay said of it."""

    measured_s: Interval
    """Step time with batches that were there already."""
    predicted_s: float
    error_share: float
    """How far the prediction is off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The answer."""

    info: RunInfo
    stalls: Stalls
    verdict: str
    """One sentence: is it the data."""
    model: Model | None
    predictions: tuple[Prediction, ...]
    """Everything that was tried, in order of gain."""
    recommendations: tuple[Recommendation, ...]
    ceiling_s: Interval | None
    """Step time if data cost nothing."""
    headroom: HeadroomCheck | None
    stragglers: Stragglers
    price: Price | None
    stall_usd_per_day: Interval | None
    """What all accelerators cost while they wait for data, in a day."""
    notes: tuple[str, ...]
    """What is missing or odd in the record, and what could not be told for that."""


def diagnose(
    record: RunRecord,
    *,
    headroom: RunRecord | None = None,
    price: Price | None = None,
    cores: float | None = None,
    loop_processor_share: float = 1.0,
    seed: int = 0,
) -> Diagnosis:
    """Diagnose a recorded run.

    Args:
        record: The run.
        headroom: The same run with its loader wrapped in `dataeff.profile.headroom.Headroom`.
        price: Of an hour of one of its accelerators.
        cores: Processors that a rank's loop and its workers have; those of this machine if not given.
        loop_processor_share: Of the loop's own time, the share in which it needs a processor.
        seed: Of the bootstrap.

    Raises:
        EmptyError: It has no steps.
        FormatError: It cannot be right; see `stalls.check`.
        MeasurementError: It has too few steady steps.
    """
    notes = check(record)
    stalls = measure(record, seed=seed)
    model: Model | None = None
    try:
        model = model_of(record, cores=cores, loop_processor_share=loop_processor_share)
    except MeasurementError as error:
        notes.append(str(error))
    predictions: tuple[Prediction, ...] = ()
    if model is not None:
        copy_ns = stalls.causes["copy"].value * model.measured_s * 1e9 / model.workload.batches_per_step
        predictions = _predictions(model, record.info, copy_ns, seed)
    ceiling = _ceiling(model, seed) if model else None
    stall_usd = _usd_per_day(stalls.share, record.info.world, price)
    return Diagnosis(
        info=record.info,
        stalls=stalls,
        verdict=_verdict(stalls, predictions),
        model=model,
        predictions=tuple(sorted(predictions, key=lambda found: -found.gain_share)),
        recommendations=tuple(_recommendations(model, stalls, predictions, record.info, price)) if model else (),
        ceiling_s=ceiling,
        headroom=_headroom(headroom, ceiling, seed) if headroom else None,
        stragglers=stragglers(record),
        price=price,
        stall_usd_per_day=stall_usd,
        notes=tuple(notes),
    )


def model_of(record: RunRecord, *, cores: float | None = None, loop_processor_share: float = 1.0) -> Model:
    """The workload of the rank that stalled most, and the replay of its own settings.

    Raises:
        MeasurementError: Its batches carry no stamps, or the loader's settings were not recorded.
    """
    info = record.info
    if info.num_workers is None:
        raise MeasurementError(
            "the loader's settings were not recorded, so nothing is predicted: record a run that iterates over a "
            "torch DataLoader"
        )
    rank = max(record.steps, key=lambda number: int(column(record.steps[number], "stall_ns").sum()))
    assumptions = []
    cores = cores or info.cores
    if cores is None:
        here, ranks = os.cpu_count() or 1, min(info.world, _RANKS_A_MACHINE)
        cores = here / ranks
        shared = f", which {ranks} ranks share" if ranks > 1 else ""
        assumptions.append(
            f"the run's machine has as many processors as this one ({here}){shared}: --cores says otherwise"
        )
    settings = Settings(
        num_workers=info.num_workers,
        prefetch_factor=info.prefetch_factor or 2,
        pin_memory=bool(info.pin_memory) and info.num_workers > 0,
        cores=cores,
        loop_processor_share=loop_processor_share,
        wake_ns=_WAKE_NS,
    )
    workload, measured_s = _workload(record, rank, settings, assumptions)
    replayed_s = float(step_times(workload, settings).mean()) / 1e9
    return Model(
        rank=rank,
        workload=workload,
        settings=settings,
        measured_s=measured_s,
        replayed_s=replayed_s,
        assumptions=tuple(assumptions),
    )


def _workload(record: RunRecord, rank: int, settings: Settings, assumptions: list[str]) -> tuple[Workload, float]:
    """Times of the batches of steady steps, and the measured mean time of those steps in seconds."""
    steps, batches = record.steps[rank], record.batches.get(rank)
    numbers = column(steps, "step")
    steady = steps.column("steady").to_numpy()
    if batches is None or not steady.any():
        raise MeasurementError(
            f"rank {rank}, which stalls most, left no batches of steady steps, so nothing is predicted: copy its files "
            "from batches/ beside those of the others"
        )
    belongs = np.isin(column(batches, "step"), numbers[steady])
    stamped = belongs & batches.column("fetch_stop_ns").is_valid().to_numpy()
    stamped &= batches.column("collate_stop_ns").is_valid().to_numpy()
    if stamped.sum() < _MIN_STAMPED:
        raise MeasurementError(
            f"{int(stamped.sum())} batches of rank {rank} carry a worker's stamps; a prediction needs {_MIN_STAMPED} "
            "or more: record a run that iterates over a torch DataLoader"
        )
    table = batches.filter(pa.array(stamped))
    place = np.searchsorted(numbers, column(table, "step"))
    per_step = np.maximum(np.bincount(np.searchsorted(numbers, column(batches.filter(pa.array(belongs)), "step"))), 1)
    # Waiting that the device noticed, in a step; what was copied stays with the loop.
    exposed = column(steps, "stall_ns") - column(steps, "stall_copy_ns")
    loop = np.maximum(own_ns(steps) - exposed, 0)[place] / per_step[place]
    fetch = (column(table, "fetch_stop_ns") - column(table, "fetch_start_ns")).astype(np.float64)
    collate = (column(table, "collate_stop_ns") - column(table, "collate_start_ns")).astype(np.float64)
    work = np.minimum(_filled(table, "fetch_cpu_ns", fetch), fetch)
    span = float(column(table, "wait_stop_ns")[-1] - column(table, "wait_start_ns")[0]) or 1.0
    stretch = _stretch(float((work + collate).sum() + settings.loop_processor_share * loop.sum()) / span, settings)
    hidden = np.maximum(column(steps, "wait_ns") - exposed, 0)[steady]
    stalled = exposed[steady] > 0
    slack = 0.0
    if record.info.clock == "cuda" and hidden.size:
        # Where the device ran dry, what it did not notice is all the work that it had queued; else at least that.
        slack = float(np.median(hidden[stalled]) if stalled.any() else hidden.max()) / max(1, int(np.median(per_step)))
    send, receive, inline = _handover(table, settings, assumptions)
    workload = Workload(
        storage_ns=np.maximum(fetch - work * stretch, 0.0),
        decode_ns=work,
        collate_ns=collate / stretch,
        loop_ns=loop,
        send_ns=send,
        receive_ns=receive,
        inline_ns=inline,
        hidden_ns=slack,
        batches_per_step=float(per_step[np.flatnonzero(steady)[np.flatnonzero(steady) < len(per_step)]].mean()),
    )
    return workload, float(own_ns(steps)[steady].mean()) / 1e9


def _filled(table: pa.Table, name: str, otherwise: F64) -> F64:
    """A column with its nulls replaced."""
    found = table.column(name)
    values = found.fill_null(0).to_numpy().astype(np.float64)
    return np.where(found.is_valid().to_numpy(), values, otherwise)


def _stretch(busy: float, settings: Settings) -> float:
    """How much longer work took in the record than it would alone: processes that wanted a processor, over those."""
    return max(1.0, busy / settings.cores) if settings.num_workers else 1.0


def _handover(table: pa.Table, settings: Settings, assumptions: list[str]) -> tuple[float, float, float]:
    """Nanoseconds to send a batch, to receive it, and around a batch that the loop made itself."""
    asked, had = column(table, "wait_start_ns"), column(table, "wait_stop_ns")
    made = column(table, "collate_stop_ns")
    sizes = _filled(table, "num_bytes", np.zeros(len(made)))
    if settings.num_workers == 0:
        inside = made - column(table, "fetch_start_ns")
        assumptions.append("handing a batch from a worker to the loop takes 1 ms and 0.75 ms a MiB, as is usual")
        whole = _HANDOVER_NS + _HANDOVER_NS_PER_BYTE * float(sizes.mean())
        return 0.0, whole, max(0.0, float(np.median(had - asked - inside)))
    # Nearly all of it is the loop's: it asks the worker for the memory of the batch, and maps it. A batch that lay
    # ready says so too, unless the loop received it while it waited for an earlier one.
    ready, late = made < asked - _HANDOVER_NS * 5, made >= asked
    measured = [
        float(np.median(values))
        for values in ((had - made)[late], (had - asked)[ready])
        if len(values) >= _MIN_HANDED_OVER
    ]
    return 0.0, max(measured, default=_HANDOVER_NS), 0.0


def _ceiling(model: Model, seed: int) -> Interval:
    times = model.workload.loop_ns * model.workload.batches_per_step / 1e9
    return interval(float(times.mean()), block_means(times[None], seed=seed)[:, 0])


def _headroom(record: RunRecord, ceiling: Interval | None, seed: int) -> HeadroomCheck | None:
    check(record)
    measured = measure(record, seed=seed).step_s
    if ceiling is None:
        return None
    return HeadroomCheck(measured_s=measured, predicted_s=ceiling.value, error_share=ceiling.value / measured.value - 1)


def _predictions(model: Model, info: RunInfo, copy_ns: float, seed: int) -> tuple[Prediction, ...]:
    """One of each kind of change: of larger and larger settings, the smallest that gains about as much as any.

    Args:
        model: What to play.
        info: Of the run.
        copy_ns: What copies to the device cost it, a batch.
        seed: Of the bootstrap.
    """
    now = model.settings

    def tried(change: str, options: Iterable[tuple[str, Settings]]) -> list[Prediction]:
        found = [model.predict(change, setting, settings, seed=seed) for setting, settings in options]
        if not found:
            return []
        best = max(option.gain_share for option in found)
        return [next(option for option in found if option.gain_share >= best - _ENOUGH)]

    def other(**changes: float) -> Settings:
        return dataclasses.replace(now, **changes)  # type: ignore[arg-type]

    found = tried(
        "workers",
        [(_workers(number), other(num_workers=number)) for number in _WORKERS if number != now.num_workers],
    )
    if now.num_workers:
        found += tried(
            "prefetch",
            [
                (f"{number} batches ahead a worker", other(prefetch_factor=number))
                for number in _PREFETCH
                if number > now.prefetch_factor
            ],
        )
    found += tried("storage", [("storage twice as fast", other(storage_scale=0.5))])
    found += tried("cache", [("samples out of a cache in memory", other(storage_scale=0.0))])
    found += tried("shards", [("shards of finished tokens", other(decode_scale=0.0))])
    batch = f"{2 * info.batch_size} samples a batch" if info.batch_size else "batches twice as large"
    found += tried("batch", [(batch, other(batch_scale=2.0))])
    if info.clock == "cuda" and now.num_workers and not now.pin_memory:
        # Copies out of pinned memory go on beside the device's work, so at best none of their time is left.
        loop_ns = np.maximum(model.workload.loop_ns - copy_ns, 0.0)
        pinned = dataclasses.replace(model, workload=dataclasses.replace(model.workload, loop_ns=loop_ns))
        found.append(pinned.predict("pinning", "batches in pinned memory", other(pin_memory=True), seed=seed))
    return tuple(found)


def _workers(number: int) -> str:
    return "1 worker" if number == 1 else f"{number} workers"


_EFFORT = ("workers", "prefetch", "pinning", "storage", "cache", "shards", "batch")
_SAME = {"storage": "cache", "cache": "storage"}
"""Changes that remove the same waiting: of two, one is recommended."""


def _recommendations(
    model: Model, stalls: Stalls, predictions: tuple[Prediction, ...], info: RunInfo, price: Price | None
) -> Iterable[Recommendation]:
    worth = [
        found for found in predictions if found.gain_share >= MIN_GAIN_SHARE and stalls.share.value >= MIN_GAIN_SHARE
    ]
    # Of changes that gain the same, the one that is less work first.
    worth.sort(key=lambda found: (-round(found.gain_share, 3), _EFFORT.index(found.change)))
    chosen: list[Prediction] = []
    for found in worth:
        if _SAME.get(found.change) not in [other.change for other in chosen]:
            chosen.append(found)
    for found in chosen[:MAX_RECOMMENDATIONS]:
        gain = Interval(
            value=found.gain_share,
            low=max(0.0, 1 - found.step_s.high / model.measured_s),
            high=min(1.0, 1 - found.step_s.low / model.measured_s),
        )
        yield Recommendation(
            prediction=found,
            advice=_advice(found, info),
            evidence=_EVIDENCE[found.change](model, stalls),
            gain_share=gain,
            usd_per_day=_usd_per_day(gain, info.world, price),
        )


def _advice(found: Prediction, info: RunInfo) -> str:
    return {
        "workers": f"set num_workers to {found.settings.num_workers} (now {info.num_workers})",
        "prefetch": f"set prefetch_factor to {found.settings.prefetch_factor} (now {info.prefetch_factor or 2})",
        "pinning": "set pin_memory=True, and copy with non_blocking=True",
        "storage": "put the data on storage that is twice as fast",
        "cache": "keep the data in memory or on a local disk",
        "shards": "compute the samples before the run: write shards of finished tokens with `dataeff run`",
        "batch": f"take {found.setting}, if the training allows it",
    }[found.change]


def _rate(model: Model) -> str:
    makes, takes = _makes_per_s(model), 1e9 / float(model.workload.loop_ns.mean())
    who = _workers(model.settings.num_workers) if model.settings.num_workers else "the loop's own process"
    return f"{who} can make {makes:.3g} batches/s, the loop could take {takes:.3g}"


def _makes_per_s(model: Model) -> float:
    """Batches that the workers can make: as many wait for storage as there are, as many compute as there are cores."""
    work = model.workload
    computing_ns = float((work.decode_ns + work.collate_ns).mean())
    workers, cores = max(1, model.settings.num_workers), max(1.0, model.settings.cores)
    return min(workers / work.service_ns, cores / computing_ns if computing_ns else math.inf) * 1e9


def _spread(model: Model) -> str:
    service = model.workload.storage_ns + model.workload.decode_ns + model.workload.collate_ns
    low, high = np.quantile(service, [0.5, 0.95]) / 1e6
    return f"half of the batches take up to {low:.3g} ms to make, one in twenty more than {high:.3g} ms"


def _part(name: str, label: str) -> Callable[[Model, Stalls], str]:
    def told(model: Model, stalls: Stalls) -> str:
        part = float(getattr(model.workload, f"{name}_ns").mean()) / model.workload.service_ns
        waited = stalls.causes[name].value
        return f"{label} is {100 * part:.0f} % of the time to make a batch, and {100 * waited:.1f} % of the step time"

    return told


_EVIDENCE: dict[str, Callable[[Model, Stalls], str]] = {
    "workers": lambda model, stalls: _rate(model),
    "prefetch": lambda model, stalls: _spread(model),
    "pinning": lambda model, stalls: (
        f"copies out of pageable memory keep the device {100 * stalls.causes['copy'].value:.1f} % of the time"
    ),
    "storage": _part("storage", "waiting for storage"),
    "cache": _part("storage", "waiting for storage"),
    "shards": _part("decode", "computing samples"),
    "batch": lambda model, stalls: (
        f"handing over a batch costs {model.workload.receive_ns / 1e6:.3g} ms of the loop, however large it is"
    ),
}


def _verdict(stalls: Stalls, predictions: tuple[Prediction, ...]) -> str:
    percent = 100 * stalls.share.value
    if stalls.share.value < MIN_GAIN_SHARE:
        return f"It is not the data: the device waits {percent:.2g} % of the time for it. Leave the loader alone."
    most = max(stalls.causes, key=lambda cause: stalls.causes[cause].value)
    what = {
        "storage": "storage",
        "decode": "samples to be computed",
        "collate": "batches to be put together",
        "handover": "batches to be handed over",
        "copy": "batches to be copied to it",
        "sync": "batches that a synchronisation kept it from having ahead",
    }[most]
    how = (
        "It is the data"
        if stalls.share.value >= BADLY_BOUND_SHARE
        else "It is in part the data"
        if stalls.share.value >= BOUND_SHARE
        else "It is hardly the data"
    )
    alone = max((found.gain_share for found in predictions), default=1.0) < MIN_GAIN_SHARE
    tail = " No change of the loader would gain 1 %: leave it alone." if alone else ""
    return f"{how}: the device waits {percent:.1f} % of the time, mostly for {what}.{tail}"


def _usd_per_day(share: Interval, world: int, price: Price | None) -> Interval | None:
    if price is None:
        return None
    whole = world * price.usd_per_hour * 24
    return Interval(value=share.value * whole, low=share.low * whole, high=share.high * whole)
