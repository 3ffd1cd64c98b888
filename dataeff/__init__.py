"""dataeff: what does the data cost us, and how do we pay less?

Importing this costs nothing; a name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataeff.compare.comparison import Candidate, Comparison, Proxy
    from dataeff.dedup.minhash import MinHash
    from dataeff.pipeline import Pipeline
    from dataeff.stages.dedup import Dedup
    from dataeff.stages.edit import Edit
    from dataeff.stages.filter import Filter
    from dataeff.stages.mix import Mix
    from dataeff.stages.read import Read
    from dataeff.stages.shard import Shard
    from dataeff.stages.tokenize import Tokenize

__all__ = [
    "Candidate",
    "Comparison",
    "Dedup",
    "Edit",
    "Filter",
    "MinHash",
    "Mix",
    "Pipeline",
    "Proxy",
    "Read",
    "Shard",
    "Tokenize",
]

_HOMES = {
    "Candidate": "dataeff.compare.comparison",
    "Comparison": "dataeff.compare.comparison",
    "Proxy": "dataeff.compare.comparison",
    "Dedup": "dataeff.stages.dedup",
    "Edit": "dataeff.stages.edit",
    "Filter": "dataeff.stages.filter",
    "MinHash": "dataeff.dedup.minhash",
    "Mix": "dataeff.stages.mix",
    "Pipeline": "dataeff.pipeline",
    "Read": "dataeff.stages.read",
    "Shard": "dataeff.stages.shard",
    "Tokenize": "dataeff.stages.tokenize",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dataeff' has no attribute {name!r}")
    import_module("dataeff.engine")  # Before Arrow is loaded, whose memory it sets.
    return getattr(import_module(_HOMES[name]), name)
