"""Model FLOPs utilisation: what a model's arithmetic needs, over what the devices could do (PaLM, appendix B)."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from dataeff.errors import PlanError


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Dense bfloat16 arithmetic that a device can do."""

    device: str
    flops_per_s: float
    source: str


PEAKS = (
    Peak(device="A100", flops_per_s=312e12, source="NVIDIA A100 data sheet, dense bfloat16"),
    Peak(device="H100 SXM", flops_per_s=989e12, source="NVIDIA H100 data sheet, dense bfloat16"),
    Peak(device="H200", flops_per_s=989e12, source="NVIDIA H200 data sheet, dense bfloat16"),
)
"""Never the figure with sparsity, 1979e12 for an H100: no training run has such weights, and it halves the MFU."""
_OTHER_FORMS = {"PCIE", "NVL", "GH200"}
"""Of an H100 or H200, cards with another peak, which is not in the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A transformer's."""

    parameters: float
    """Without the embedding table, whose look-ups cost no arithmetic."""
    layers: int
    heads: int
    head_dim: int
    sequence_length: int

    @property
    def flops_per_token(self) -> float:
        """Forward and backward, without recomputation; attention counted whole, as is the convention, not causal."""
        attention = 12.0 * self.layers * self.heads * self.head_dim * self.sequence_length
        return 6.0 * self.parameters + attention


def mfu(tokens_per_s: float, flops_per_token: float, devices: int, peak_flops_per_s: float) -> float:
    """Model FLOPs utilisation, in [0, 1] unless something was counted wrong.

    Raises:
        PlanError: It is above 1, which no device can do: a peak or a count is wrong.
    """
    if devices < 1 or not peak_flops_per_s > 0:
        raise PlanError(f"{devices} devices of {peak_flops_per_s:g} FLOP/s: both must be more than 0")
    found = tokens_per_s * flops_per_token / (devices * peak_flops_per_s)
    if found > 1:
        raise PlanError(
            f"an MFU of {found:.2f} cannot be: check that {peak_flops_per_s:.4g} FLOP/s is the device's dense peak, "
            f"that there are {devices} devices, and that {tokens_per_s:.4g} tokens/s are those of all of them"
        )
    return found


def peak(device: str) -> Peak:
    """The peak of a device, by its name or by what it calls itself (`NVIDIA H100 80GB HBM3`).

    Raises:
        PlanError: It is not in the table; the message lists the nearest names.
    """
    words = set(filter(None, re.split(r"[^A-Z0-9]+", device.upper())))
    for known in PEAKS:
        if known.device.split()[0] in words and not words & _OTHER_FORMS:
            return known
    names = [known.device for known in PEAKS]
    nearest = difflib.get_close_matches(device, names, n=3, cutoff=0.3) or names
    raise PlanError(
        f"the peak of {device!r} is not known; known are {', '.join(nearest)}: give its dense bfloat16 FLOP/s instead"
    )
