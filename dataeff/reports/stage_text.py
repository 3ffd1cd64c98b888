"""A stage of a recipe as one reads it in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dataeff.reports.visible import one_line

_SECRET = frozenset({"storage_options"})
_MAX_CHARACTERS = 1200


def stage_text(stage: Any) -> str:
    """`Filter(filters=(Length(min_bytes=20),))` from the form that a manifest keeps; options of storage are left out,
    for they may hold credentials.
    """
    return one_line(_text(stage), _MAX_CHARACTERS)


def _text(node: Any) -> str:
    if isinstance(node, Mapping):
        if "function" in node:
            return str(node["function"])
        options = {name: entry for name, entry in node.items() if name != "class" and name not in _SECRET}
        if "class" in node:
            return f"{node['class']}({', '.join(f'{name}={_text(entry)}' for name, entry in options.items())})"
        return "{" + ", ".join(f"{name}: {_text(entry)}" for name, entry in options.items()) + "}"
    if isinstance(node, list):
        return "(" + ", ".join(_text(entry) for entry in node) + ("," if len(node) == 1 else "") + ")"
    return repr(node)
