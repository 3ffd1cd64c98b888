"""A distribution as a drawing the size of a word, in SVG that takes its colours from the page."""

from __future__ import annotations

import math

import numpy as np
from markupsafe import Markup

from dataeff.arrow import F64, I64
from dataeff.reports.signals import Distribution

_WIDTH, _HEIGHT = 120.0, 26.0


def sparkline(distribution: Distribution) -> Markup:
    """All documents and kept ones by bin, heights logarithmic, a line at each threshold."""
    top = float(distribution.all_documents.max(initial=1))
    lines = "".join(
        f'<line x1="{place:.1f}" x2="{place:.1f}" y1="0" y2="{_HEIGHT:g}"/>'
        for place in (_place(distribution, cut) for cut in distribution.cuts if cut is not None)
    )
    return Markup(
        f'<svg class="spark" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="all" d="{_bars(distribution.all_documents, top)}"/>'
        f'<path class="kept" d="{_bars(distribution.kept_documents, top)}"/>{lines}</svg>'
    )


def _bars(documents: I64, top: float) -> str:
    heights: F64 = np.log1p(documents) / math.log1p(top) * _HEIGHT
    width = _WIDTH / len(documents)
    return "".join(
        f"M{number * width:.1f} {_HEIGHT:g}v-{height:.1f}h{width:.1f}v{height:.1f}z"
        for number, height in enumerate(heights.tolist())
        if height > 0
    )


def _place(distribution: Distribution, cut: float) -> float:
    ends = distribution.edges[[0, -1]].tolist()
    if distribution.logarithmic:
        cut, *ends = (math.log(number) for number in (cut, *ends))
    return float((cut - ends[0]) / (ends[1] - ends[0]) * _WIDTH)
