"""The mixture that proxy runs predict to be best."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from dataeff.errors import PlanError

if TYPE_CHECKING:
    from dataeff.mixture_fit import Model

AUTO = "auto"
_Key: TypeAlias = tuple[str, str, str, tuple[tuple[str, float], ...], int]
"""Path and digest of the table, surrogate, weights of domains, seed: all that the fits depend on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """Predict loss from mixture by small proxy runs, and take the mixture with the lowest prediction under a cap.

    The method of RegMix (Liu et al. 2024, arXiv:2407.01492) and Olmix. The table `runs` is CSV or, by its ending,
    Parquet, one row a proxy run: columns `weight:SOURCE` hold what it was trained on, 0 or more each and 1 together,
    columns `loss:DOMAIN` its final validation loss; other columns are left alone.

        weight:books,weight:web,loss:essays,loss:news
        0.25,0.75,3.41,3.02
        0.60,0.40,3.12,3.36
    """

    runs: str
    """Path of the table."""
    surrogate: str = AUTO
    """A member of `dataeff.surrogates`; `auto` takes that which ranks the runs best when they are held out."""
    domains: Mapping[str, float] = field(default_factory=dict)
    """Weight of each validation domain in the loss to minimise, divided by their sum; all alike if none is named."""
    max_epochs: float | None = 4.0
    """Most repetitions of a source, above 0; None for no cap, where `Mix` has one or data is plenty."""
    seed: int = 0
    """Of folds and draws."""
    content: str = field(init=False, repr=False)
    """Digest of the table when this was made: other runs are another mixer."""

    def __post_init__(self) -> None:
        if self.max_epochs is not None and not (math.isfinite(self.max_epochs) and self.max_epochs > 0):
            raise PlanError.out_of_range(self, "max_epochs", "a finite number above 0, or None for no cap")
        if self.surrogate != AUTO:
            from dataeff.registry import member

            member("surrogates", self.surrogate)
        object.__setattr__(self, "content", _digest(self.runs))

    def weights(self, tokens: Mapping[str, int], budget: int) -> dict[str, float]:
        """Shares in the order of `tokens`; a source of the runs that is not there gets none.

        Raises:
            PlanError: A source with tokens is in no run, the cap leaves too few tokens for the budget, no source has
                tokens, a domain is unknown, or the table has changed since.
            FormatError: The table is damaged.
            MeasurementError: It has too few runs.
        """
        from dataeff.mixture_optimum import caps

        if _digest(self.runs) != self.content:
            raise PlanError(f"{self.runs} has changed since this mixer was made: make it again")
        key = (self.runs, self.content, self.surrogate, tuple(sorted(self.domains.items())), self.seed)
        sources = _model(key).sources
        found = _optimum(key, tuple(caps(sources, tokens, budget, self.max_epochs).tolist()))
        shares = dict(zip(sources, found, strict=True))
        total = math.fsum(found)
        return {name: shares.get(name, 0.0) / total for name in tokens}


@functools.lru_cache(maxsize=4)
def _model(key: _Key) -> Model:
    """The fits, once a process for the same table content and options."""
    from dataeff.mixture_fit import choose, fit
    from dataeff.proxy_runs import domain_shares, read_runs

    path, _, surrogate, domains, seed = key
    runs = read_runs(Path(path))
    shares = domain_shares(runs.domains, dict(domains))
    if surrogate == AUTO:
        surrogate = choose(runs, shares, seed=seed).surrogate
    return fit(runs, shares, surrogate, seed)


@functools.lru_cache(maxsize=16)
def _optimum(key: _Key, limits: tuple[float, ...]) -> tuple[float, ...]:
    import numpy as np

    from dataeff.mixture_optimum import optimum

    return tuple(optimum(_model(key), np.array(limits), seed=key[-1]).tolist())


def _digest(path: str) -> str:
    try:
        return hashlib.blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        raise PlanError(
            f"no table of proxy runs at {path} ({error.strerror}); give a CSV or Parquet file with one row a run"
        ) from error
