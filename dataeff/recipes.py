"""Recipes: Python functions with typed parameters that return a `Pipeline` or a `Comparison`.

The parameters are the recipe's options.
"""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from dataeff.errors import PlanError

Made = TypeVar("Made")
_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(Generic[Made]):
    """A function that makes something of a kind."""

    name: str
    path: Path
    kind: type[Made]
    function: Callable[..., Made]
    parameters: Mapping[str, inspect.Parameter]
    types: Mapping[str, Any]

    def make(self, options: Sequence[str]) -> tuple[Made, dict[str, Any]]:
        """What it makes with options given as `name=value`, and all option values.

        Raises:
            PlanError: An option is unknown, of the wrong type, or a required one is missing; the valid ones are named.
        """
        values = {name: entry.default for name, entry in self.parameters.items() if entry.default is not entry.empty}
        for option in options:
            name, separator, text = option.partition("=")
            if not separator:
                raise PlanError(f"--set {option!r} must be name=value; {self._valid()}")
            if name not in self.parameters:
                nearest = difflib.get_close_matches(name, self.parameters, n=1)
                hint = f" (did you mean {nearest[0]}?)" if nearest else ""
                raise PlanError(f"the recipe {self.name} has no option {name!r}{hint}; {self._valid()}")
            values[name] = _convert(name, text, self.types[name])
        missing = [name for name in self.parameters if name not in values]
        if missing:
            raise PlanError(f"the recipe {self.name} needs --set {missing[0]}=...; {self._valid()}")
        made = self.function(**values)
        if not isinstance(made, self.kind):
            wanted = self.kind.__name__
            raise PlanError(f"the recipe {self.name} returned {type(made).__name__}; it must return a {wanted}")
        return made, values

    def _valid(self) -> str:
        if not self.parameters:
            return "it has no options"
        entries = []
        for name, entry in self.parameters.items():
            default = "required" if entry.default is entry.empty else repr(entry.default)
            entries.append(f"{name}: {_type_name(self.types[name])} = {default}")
        return "its options are " + ", ".join(entries)


def load(reference: str, kind: type[Made]) -> Recipe[Made]:
    """The recipe in a Python file, `FILE.py` or `FILE.py:function`.

    The file must define one function whose return annotation is `kind`, or the function must be named.

    Raises:
        PlanError: The file is not there, fails to import, or holds no such function.
    """
    file, _, wanted = reference.partition(":")
    path = Path(file)
    if not path.is_file():
        raise PlanError(f"no recipe at {file}; give the path of a Python file such as pipelines/web.py")
    module = _imported(path)
    found = {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
        and typing.get_type_hints(value).get("return") is kind
    }
    if wanted and wanted not in found:
        raise PlanError(f"{file} has no function {wanted}() -> {kind.__name__}; it has {', '.join(found) or 'none'}")
    if not wanted and len(found) != 1:
        raise PlanError(
            f"{file} has {len(found)} functions that are annotated to return {kind.__name__} "
            f"({', '.join(found) or 'none'}); it must have one, or name one as {file}:FUNCTION"
        )
    name = wanted or next(iter(found))
    function = found[name]
    hints = typing.get_type_hints(function)
    parameters = inspect.signature(function).parameters
    untyped = [entry for entry in parameters if entry not in hints]
    if untyped:
        raise PlanError(
            f"the parameter {untyped[0]!r} of the recipe {name} has no type; options are read by their types"
        )
    return Recipe(name=name, path=path, kind=kind, function=function, parameters=parameters, types=hints)


def _imported(path: Path) -> types.ModuleType:
    name = f"dataeff_recipe_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PlanError(f"{path} cannot be imported; a recipe is a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise PlanError(f"the recipe {path} fails on import: {type(error).__name__}: {error}") from error
    import cloudpickle

    # Workers elsewhere cannot import the recipe's file, so what it defines travels with the task.
    cloudpickle.register_pickle_by_value(module)
    return module


def _convert(name: str, text: str, wanted: Any) -> Any:
    """`text` as a value of the parameter's type."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        if type(None) in arguments and text.lower() in ("none", ""):
            return None
        for kind in (kind for kind in arguments if kind is not type(None)):
            try:
                return _convert(name, text, kind)
            except PlanError:
                continue
    elif origin is typing.Literal:
        for choice in arguments:
            if text == str(choice):
                return choice
    elif origin is tuple and arguments[-1:] == (Ellipsis,):
        return tuple(_convert(name, entry.strip(), arguments[0]) for entry in text.split(",") if entry.strip())
    elif wanted is bool:
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
    elif wanted in (int, float):
        try:
            return wanted(text.replace("_", ""))
        except ValueError:
            pass
    elif wanted in (str, Path):
        return wanted(text)
    raise PlanError(f"--set {name}={text!r}: must be {_type_name(wanted)}")


def _type_name(wanted: Any) -> str:
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is typing.Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin is tuple:
        return f"{_type_name(arguments[0])},..."
    if origin in (typing.Union, types.UnionType):
        return " or ".join("none" if kind is type(None) else _type_name(kind) for kind in arguments)
    return str(getattr(wanted, "__name__", wanted))
