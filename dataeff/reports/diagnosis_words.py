"""What a diagnosis says, in words and numbers that the terminal and the page share."""

from __future__ import annotations

from dataeff.efficiency.mfu import mfu, peak
from dataeff.errors import PlanError
from dataeff.profile.diagnosis import Diagnosis
from dataeff.profile.stalls import Interval

LABELS = {
    "storage": "storage",
    "decode": "computing samples",
    "collate": "putting batches together",
    "handover": "handing over",
    "copy": "copying to the device",
    "sync": "exposed by a sync",
}
"""What the device waited for, in words; by cause of `steps.CAUSES`."""


def percent(found: Interval) -> str:
    """A share with its interval: `50.0 % (48.1 to 52.0)`."""
    return f"{100 * found.value:.1f} % ({100 * found.low:.1f} to {100 * found.high:.1f})"


def milliseconds(found: Interval) -> str:
    """A time with its interval: `12.3 ms (12.1 to 12.6)`."""
    return f"{1e3 * found.value:,.4g} ms ({1e3 * found.low:,.4g} to {1e3 * found.high:,.4g})"


def rate(number: float) -> str:
    """A number a second: `40,960`, `3.25`."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def dollars(found: Interval) -> str:
    """Money with its interval: `$1,234 (1,200 to 1,260)`."""
    places = 0 if found.value >= 100 else 2
    return f"${found.value:,.{places}f} ({found.low:,.{places}f} to {found.high:,.{places}f})"


def facts(found: Diagnosis, peak_flops_per_s: float | None = None) -> list[str]:
    """What else there is to say, a sentence each."""
    stalls = found.stalls
    told = [f"a steady step takes {milliseconds(stalls.step_s)}, {rate(stalls.samples_per_s)} samples/s"]
    if stalls.tokens_per_s:
        told[0] += f", {rate(stalls.tokens_per_s)} tokens/s"
    if (used := _used(found, peak_flops_per_s)) is not None:
        told.append(used)
    if found.ceiling_s is not None:
        told.append(f"if data cost nothing, a step would take {milliseconds(found.ceiling_s)}")
    if found.headroom is not None:
        told.append(
            f"without data it took {milliseconds(found.headroom.measured_s)}: the prediction is "
            f"{100 * found.headroom.error_share:+.1f} % off"
        )
    told.append(
        f"charged apart from the share: {stalls.unsteady_s:.3g} s of first steps and the like "
        f"({stalls.unsteady_stall_s:.3g} s of it waiting), {stalls.evaluation_s:.3g} s of evaluations, "
        f"{stalls.checkpoint_s:.3g} s of checkpoints"
    )
    if found.info.world > 1:
        told.append(found.stragglers.sentence)
    if found.price is not None and found.stall_usd_per_day is not None:
        told.append(f"waiting costs {dollars(found.stall_usd_per_day)} a day; {found.price}")
    if found.model is not None:
        told.append(f"replaying the run's own settings is {100 * found.model.error_share:+.1f} % off its step time")
        told.extend(f"taken as given: {assumption}" for assumption in found.model.assumptions)
    return told


def _used(found: Diagnosis, peak_flops_per_s: float | None) -> str | None:
    """Model FLOPs utilisation, or why it cannot be told; None where the record does not know the model."""
    flops, tokens = found.info.flops_per_token, found.stalls.tokens_per_s
    if not flops or not tokens:
        return None
    try:
        known = peak(found.info.device) if peak_flops_per_s is None else None
        limit = known.flops_per_s if known else peak_flops_per_s or 0.0
        share = mfu(tokens, flops, found.info.world, limit)
    except PlanError as error:
        return f"no model FLOPs utilisation: {error} (--peak-flops)"
    source = known.source if known else "as given"
    return f"model FLOPs utilisation is {100 * share:.1f} % of {limit / 1e12:,.4g} TFLOP/s a device ({source})"
