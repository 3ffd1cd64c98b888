"""The loader: token rows to a training loop, in a global order that is a function of seed and position."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataeff.loader.audits import Audit, audit
    from dataeff.loader.dataset import TokenDataset
    from dataeff.loader.loader import Loader, held_out
    from dataeff.loader.tar_documents import TarDocuments

__all__ = ["Audit", "Loader", "TarDocuments", "TokenDataset", "audit", "held_out"]

_HOMES = {
    "Audit": "dataeff.loader.audits",
    "Loader": "dataeff.loader.loader",
    "TarDocuments": "dataeff.loader.tar_documents",
    "TokenDataset": "dataeff.loader.dataset",
    "audit": "dataeff.loader.audits",
    "held_out": "dataeff.loader.loader",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dataeff.loader' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        from dataeff.errors import PlanError

        raise PlanError("the loader needs torch, which is not installed: pip install 'dataeff[train]'") from error
