"""A share of the documents kept away from training, chosen by what they say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dataeff.errors import PlanError
from dataeff.filters import Bounds, Signals
from dataeff.kernel.content import content_hashes
from dataeff.kernel.words import normal_form
from dataeff.segments import Segments


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Keep the documents that are trained on, or else those held out for validation.

    Which side a document is on follows from the hash of its content alone (NFC, white space as single spaces), so
    copies go together, in every corpus and whatever else is filtered. Near-duplicates may part: `dataeff compare`
    leaves what a candidate trains on out of the validation set.
    """

    measured_by: ClassVar[tuple[str, ...]] = ()

    share: float = 0.02
    """Held out, of documents, in (0, 1)."""
    keep: Literal["training", "validation"] = "training"

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise PlanError.out_of_range(self, "share", "in (0, 1)")
        if self.keep not in ("training", "validation"):
            raise PlanError.out_of_range(self, "keep", "'training' or 'validation'")

    def measure(self, segments: Segments) -> Signals:
        """A number in [0, 1) drawn by the content of each row."""
        hashes = content_hashes(*normal_form(segments.data, segments.offsets, "NFC"))
        # The hash's halves are read elsewhere as they are; one more mixing makes the upper bits even.
        mixed = (hashes[:, 0] ^ np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xD6E8FEB86659FD93)
        mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xD6E8FEB86659FD93)
        return {"draw": (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53}

    def bounds(self) -> dict[str, Bounds]:
        """Below `share`: held out."""
        if self.keep == "training":
            return {"draw": Bounds(low=self.share)}
        return {"draw": Bounds(high=float(np.nextafter(self.share, 0)))}
