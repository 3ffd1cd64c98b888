"""How each signal is distributed, and how many documents lie outside what passes; columns are streamed by part."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dataeff.arrow import F64, I64
from dataeff.filters import Bounds
from dataeff.reports.finished import Finished

NUM_BINS = 48
_SAMPLE_DOCUMENTS = 100_000
_LOG_RATIO = 30.0
"""A signal whose usual values span more than this is shown on a logarithmic axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """One signal over all documents that it was measured on."""

    rule: str
    bounds: Bounds
    edges: F64
    """Edges of the bins, shape (bins + 1,). Values outside are counted in the first or last bin."""
    logarithmic: bool
    """The edges are even in the logarithm; where there are zeros, the first bin is theirs."""
    whole: bool
    """Every value is a whole number with a bin of its own, edges half way between."""
    all_documents: I64
    """Documents by bin, shape (bins,)."""
    kept_documents: I64
    """Those of them that are in the corpus, shape (bins,)."""
    judged: int
    """Documents with a value; a rule judges its own sources only."""
    below: int
    """Documents below what passes, exact."""
    above: int
    """Documents above what passes, exact."""
    dropped: int
    """Documents that failed this rule and no earlier one."""
    low: float
    median: float
    high: float
    """Smallest and largest value, exact; the median is that of an even sample of up to 100,000 documents."""

    @property
    def cuts(self) -> tuple[float | None, float | None]:
        """Where the axis is cut by the lower and the upper threshold: between bins where values are whole numbers,
        for a threshold passes itself. None where there is no such threshold, or not on this axis.
        """
        return self._cut(self.bounds.low, -1), self._cut(self.bounds.high, 1)

    def _cut(self, threshold: float, side: int) -> float | None:
        if not math.isfinite(threshold):
            return None
        if self.whole:
            threshold = (math.ceil(threshold) if side < 0 else math.floor(threshold)) + 0.5 * side
        if self.logarithmic and self.low == 0 and 0 <= threshold < self.edges[1] and (side > 0 or threshold > 0):
            threshold = float(self.edges[1])
        return threshold if self.edges[0] <= threshold <= self.edges[-1] else None


@dataclass(frozen=True, slots=True)
class _Range:
    edges: F64
    logarithmic: bool
    whole: bool
    low: float
    median: float
    high: float


def distributions(finished: Finished) -> list[Distribution]:
    """Of every signal, in order of judgement. Two passes: where values lie, then how many lie where."""
    ranges = _ranges(finished)
    total = {rule: np.zeros((2, len(found.edges) - 1), np.int64) for rule, found in ranges.items()}
    beyond = {rule: np.zeros(4, np.int64) for rule in ranges}
    for number, rule, values, kept, verdict in _columns(finished):
        if rule not in ranges:
            continue
        bounds = finished.bounds[rule]
        judged = ~np.isnan(values)
        bins = _bins(values[judged], ranges[rule].edges)
        num_bins = total[rule].shape[1]
        total[rule][0] += np.bincount(bins, minlength=num_bins)
        total[rule][1] += np.bincount(bins[kept[judged]], minlength=num_bins)
        below, above = values < bounds.low, values > bounds.high
        beyond[rule] += [judged.sum(), below.sum(), above.sum(), (verdict == number).sum()]
    return [
        Distribution(
            rule=rule,
            bounds=finished.bounds[rule],
            edges=found.edges,
            logarithmic=found.logarithmic,
            whole=found.whole,
            all_documents=total[rule][0],
            kept_documents=total[rule][1],
            judged=int(beyond[rule][0]),
            below=int(beyond[rule][1]),
            above=int(beyond[rule][2]),
            dropped=int(beyond[rule][3]),
            low=found.low,
            median=found.median,
            high=found.high,
        )
        for rule, found in ranges.items()
    ]


def _columns(
    finished: Finished,
) -> Iterator[tuple[int, str, F64, npt.NDArray[np.bool_], npt.NDArray[np.int16]]]:
    for part in finished.parts:
        columns, kept, verdict = part.columns(), finished.kept(part), finished.verdict(part)
        for number, rule in enumerate(finished.bounds):
            yield number, rule, columns.column(rule).to_numpy(), kept, verdict


def _ranges(finished: Finished) -> dict[str, _Range]:
    """Bins of each signal that has a value at all."""
    num_documents = sum(sum(part.batch_rows) for part in finished.parts)
    step = max(1, num_documents // _SAMPLE_DOCUMENTS)
    samples: dict[str, list[F64]] = {rule: [] for rule in finished.bounds}
    ends: dict[str, tuple[float, float]] = {}
    for _, rule, values, _, _ in _columns(finished):
        numbers = values[np.isfinite(values)]
        if len(numbers):
            low, high = ends.get(rule, (math.inf, -math.inf))
            ends[rule] = (min(low, float(numbers.min())), max(high, float(numbers.max())))
            samples[rule].append(numbers[::step].copy())
    return {rule: _range(np.concatenate(samples[rule]), *ends[rule], finished.bounds[rule]) for rule in ends}


def _range(sample: F64, low: float, high: float, bounds: Bounds) -> _Range:
    """Bins over the middle 99.8 % of a sample, widened to show a threshold that is not far outside."""
    first, usual_low, median, usual_high, last = np.quantile(sample, [0.001, 0.05, 0.5, 0.95, 0.999]).tolist()
    positive = sample[sample > 0]
    small = float(np.quantile(positive, 0.02)) if len(positive) else 0.0
    thresholds = [edge for edge in (bounds.low, bounds.high) if math.isfinite(edge)]
    logarithmic = low >= 0 and small > 0 and usual_high > 1 and usual_high / small > _LOG_RATIO
    if logarithmic:
        start = min([small, *(edge for edge in thresholds if small / 20 <= edge < small)]) / 1.3
        stop = max([last, *(edge for edge in thresholds if last < edge <= last * 20)]) * 1.3
        edges = np.geomspace(start, stop, NUM_BINS + (low > 0))
        if low == 0:
            edges = np.concatenate([edges[:1] ** 2 / edges[1], edges])
        return _Range(edges, logarithmic, False, low, median, high)
    spread = max(last - first, usual_high - usual_low, 1e-9)
    start = min([first, *(edge for edge in thresholds if first - 4 * spread <= edge < first)])
    stop = max([last, *(edge for edge in thresholds if last < edge <= last + 4 * spread)])
    whole = bool((sample == np.floor(sample)).all()) and stop - start < NUM_BINS and abs(stop) < 1e9
    if whole:
        edges = np.arange(math.floor(start) - 0.5, math.ceil(stop) + 1.0)
        return _Range(edges, logarithmic, whole, low, median, high)
    if stop - start < 1e-9 * max(abs(start), abs(stop), 1e-9):
        stop = start + max(abs(start), 1.0)
    margin = 0.02 * (stop - start)
    edges = np.linspace(start - (margin if start < 0 else min(margin, start)), stop + margin, NUM_BINS + 1)
    return _Range(edges, logarithmic, whole, low, median, high)


def _bins(values: F64, edges: F64) -> npt.NDArray[np.intp]:
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
