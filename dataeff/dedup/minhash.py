"""What counts as a near-duplicate, and how candidates for one are found."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal, Self

import pyarrow as pa

from dataeff.arrow import I64, U8, U32, U64, text_views
from dataeff.dedup.bands import detection_probability, optimal
from dataeff.errors import PlanError
from dataeff.kernel import minhash, shingles
from dataeff.kernel.unicode import UNICODE_VERSION

SCHEME = "affine32"
"""Permutation scheme of the signatures, as datasketch 2.x calls it; mixing schemes is an error."""

_LEAST_DETECTION = 0.1
"""Bands that find fewer of the pairs at the threshold are taken for a mistake, such as bands and rows swapped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MinHash:
    """Near-duplicates: shingle sets whose exact Jaccard similarity reaches a threshold.

    Candidates share all `rows` signature values of at least one of `bands` bands (Broder 1997; the banding of
    Leskovec, Rajaraman, Ullman, Mining of Massive Datasets, section 3.4); 14 x 8 over word 5-grams is what
    FineWeb used. A candidate is only removed once its exact similarity to a kept document is known.
    """

    threshold: float = 0.8
    """Least similarity at which a document is removed."""
    measure: Literal["jaccard", "containment"] = "jaccard"
    """`jaccard`: shared shingles / all shingles of both; `containment`: shared / those of the removed one."""
    unit: Literal["word", "char"] = "word"
    """What a shingle is made of: words (each Han, Kana, Hangul, Thai, Lao, Khmer, Myanmar letter is one), or
    code points."""
    ngram: int = 5
    """Units a shingle."""
    form: Literal["NFC", "NFKC"] = "NFC"
    """Unicode normalisation before case folding."""
    bands: int = 14
    rows: int = 8
    seed: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise PlanError.out_of_range(self, "threshold", "in (0, 1]")
        if not 1 <= self.ngram <= 64:
            raise PlanError.out_of_range(self, "ngram", "in [1, 64]")
        if not 1 <= self.bands <= 256:
            raise PlanError.out_of_range(self, "bands", "in [1, 256]")
        if not 1 <= self.rows <= 64:
            raise PlanError.out_of_range(self, "rows", "in [1, 64]")
        for field, allowed in (
            ("measure", ("jaccard", "containment")),
            ("unit", ("word", "char")),
            ("form", ("NFC", "NFKC")),
        ):
            if getattr(self, field) not in allowed:
                raise PlanError.out_of_range(self, field, f"one of {', '.join(allowed)}")
        found = detection_probability(self.threshold, self.bands, self.rows)
        if found < _LEAST_DETECTION:
            raise PlanError(
                f"{self.bands} bands of {self.rows} rows find only {found:.1%} of the pairs at similarity "
                f"{self.threshold}: use more bands or fewer rows, or `MinHash.for_threshold({self.threshold})`"
            )

    @classmethod
    def for_threshold(cls, threshold: float, *, num_perm: int = 128, **others: Any) -> Self:
        """With the bands and rows that datasketch 2.x finds best for a threshold and a signature size."""
        bands, rows = optimal(threshold, num_perm)
        return cls(threshold=threshold, bands=bands, rows=rows, **others)

    @property
    def num_perm(self) -> int:
        """Permutations, that is, values a signature."""
        return self.bands * self.rows

    def definition(self) -> dict[str, Any]:
        """What determines signatures: everything but the threshold, the measure and how values fall into bands."""
        names = ("unit", "ngram", "form", "num_perm", "seed")
        return {**{name: getattr(self, name) for name in names}, "scheme": SCHEME, "unicode": UNICODE_VERSION}

    def sketch(self, data: U8, offsets: I64, form: str | None = None) -> tuple[U32, I64]:
        """Signatures, shape (rows, num_perm), and the number of shingles of each row, repeats included.

        Args:
            data: UTF-8 bytes of all rows.
            offsets: Row boundaries into `data`, shape (rows + 1,).
            form: The normal form that they are known to be in.
        """
        a, b = _permutations(self.num_perm, self.seed)
        signatures, num_shingles = shingles.sketch(
            data, offsets, unit=self.unit, n=self.ngram, form=None if form == self.form else self.form, a=a, b=b
        )
        return signatures, num_shingles

    def shingle_sets(self, text: pa.Array) -> tuple[U64, I64]:
        """Sorted distinct shingle hashes of each row, and row boundaries into them."""
        data, offsets = text_views(text)
        return shingles.shingle_sets(data, offsets, unit=self.unit, n=self.ngram, form=self.form)


@functools.lru_cache(maxsize=8)
def _permutations(num_perm: int, seed: int) -> tuple[U32, U32]:
    return minhash.permutations(num_perm, seed)
