"""Which rows of a batch a stage applies to: sources chosen by shell-style patterns."""

from __future__ import annotations

import fnmatch

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataeff.errors import PlanError


def check_patterns(owner: str, patterns: tuple[str, ...] | None) -> None:
    """Raise PlanError unless `patterns` is None or a tuple of text: a bare string would be read letter by letter."""
    if patterns is not None and (isinstance(patterns, str) or not all(isinstance(entry, str) for entry in patterns)):
        raise PlanError(f"{owner}(sources={patterns!r}): give a tuple of source names or patterns, such as ('web*',)")


def rows_of(source: pa.Array, patterns: tuple[str, ...] | None) -> npt.NDArray[np.bool_]:
    """True for each row whose source matches one of the patterns, or for all where there are none."""
    if patterns is None:
        return np.ones(len(source), bool)
    coded = source.dictionary_encode()
    chosen = [any(fnmatch.fnmatchcase(name, entry) for entry in patterns) for name in coded.dictionary.to_pylist()]
    rows: npt.NDArray[np.bool_] = np.asarray(chosen, bool)[coded.indices.to_numpy()]
    return rows
