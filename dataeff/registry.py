"""Open sets of components: one member a file, found by its file name.

A member of `dataeff/filters/word_count.py` is the public class `WordCount` in it, known as `word_count`.
Third parties add members under the entry point group `dataeff.filters` (name = the member's name,
object = its class). Nothing is imported until a member is asked for.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import pkgutil
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from dataeff.errors import PlanError

KINDS = ("readers", "editors", "filters", "mixers", "tokenizers", "formats", "screeners", "surrogates")


@functools.cache
def _third_party(kind: str) -> tuple[EntryPoint, ...]:
    """Members that other packages add; looked up once a process, since every installed package is asked."""
    return tuple(entry_points(group=f"dataeff.{kind}"))


def names(kind: str) -> list[str]:
    """Names of all members of `kind`, sorted, without importing them."""
    package = importlib.import_module(f"dataeff.{kind}")
    built_in = {module.name for module in pkgutil.iter_modules(package.__path__)}
    return sorted(built_in | {point.name for point in _third_party(kind)})


def member(kind: str, name: str) -> type[Any]:
    """The class called `name` in `kind`.

    Raises:
        PlanError: No such member; the message lists the nearest names.
    """
    for point in _third_party(kind):
        if point.name == name:
            loaded: type[Any] = point.load()
            return loaded
    known = names(kind)
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known
        raise PlanError(f"no {kind[:-1]} is called {name!r}; there is {', '.join(nearest)} (`dataeff list {kind}`)")
    module = importlib.import_module(f"dataeff.{kind}.{name}")
    wanted = name.replace("_", "")
    for attribute, value in vars(module).items():
        if isinstance(value, type) and attribute.lower() == wanted:
            return value
    raise PlanError(f"dataeff/{kind}/{name}.py holds no class {name!r}: name it in CamelCase")


def by_class_name(kind: str, class_name: str) -> type[Any] | None:
    """The member of `kind` whose class is called `class_name`, or None. Serves `from dataeff.filters import X`."""
    wanted = class_name.lower()
    for name in names(kind):
        if name.replace("_", "") == wanted:
            return member(kind, name)
    return None


def name_of(component: object) -> str:
    """The registry name of a member's class or instance: `WordCount` gives `word_count`."""
    cls = component if isinstance(component, type) else type(component)
    if cls.__module__.startswith("dataeff."):
        return cls.__module__.rpartition(".")[2]
    for kind in KINDS:
        for point in _third_party(kind):
            if point.value.replace(":", ".") == f"{cls.__module__}.{cls.__qualname__}":
                return point.name
    return f"{cls.__module__}.{cls.__qualname__}"


def meaning(cls: type[Any]) -> str:
    """The first line of a member's docstring."""
    return (cls.__doc__ or "").strip().partition("\n")[0]


def defaults(cls: type[Any]) -> dict[str, Any]:
    """A member's options with their defaults; a required one maps to `dataclasses.MISSING`."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if field.init:
            factory = field.default_factory
            found[field.name] = field.default if factory is dataclasses.MISSING else factory()
    return found
