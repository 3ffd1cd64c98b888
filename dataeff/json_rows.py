"""JSON objects as rows: a schema inferred from some, and values held to a schema as strictly as Arrow's parser does.

Numbers are not turned into text or text into numbers; an integer fits a column of doubles, and nothing else
crosses over. Fields that the schema lacks are ignored. Of a key that stands twice, the last counts. `NaN`, `Inf`,
`Infinity` and their negatives are numbers.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

MAX_DEPTH = 32
"""Values nested deeper have no column of their own."""
_LONGEST_INTEGER = 400
_CONSTANT = re.compile(r'"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity|Inf)\b', re.DOTALL)
_WORDS = {"NaN": "NaN", "-NaN": "NaN", "Inf": "Infinity", "-Inf": "-Infinity"}


class Unfit(Exception):  # noqa: N818
    """A line or a value that cannot be a row, with the reason to count it under."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def parse(line: bytes) -> dict[str, Any]:
    """The object that a line holds.

    Raises:
        Unfit: `invalid_utf8`, `broken_json`, or `not_an_object`.
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unfit("invalid_utf8", f"byte {error.start} of the line is not UTF-8 ({error.reason})") from error
    try:
        value = _DECODER.decode(text)
    except RecursionError as error:
        raise Unfit("broken_json", "the values are nested too deeply") from error
    except json.JSONDecodeError as error:
        try:
            value = _DECODER.decode(_CONSTANT.sub(lambda found: _WORDS.get(found[0], found[0]), text))
        except json.JSONDecodeError:
            near = text[max(0, error.pos - 20) : error.pos + 20]
            raise Unfit("broken_json", f"{error.msg} at character {error.pos}, near {near!r}") from error
    if not isinstance(value, dict):
        raise Unfit("not_an_object", f"the line holds {_kind(value)}, and must hold one JSON object")
    return value


class _NegativeZero(int):
    """The integer `-0`, which a column of doubles keeps the sign of."""


def _integer(digits: str) -> int | float:
    if digits == "-0":
        return _NegativeZero()
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float(digits)


_DECODER = json.JSONDecoder(parse_int=_integer)


def to_batch(objects: Sequence[dict[str, Any]], schema: pa.Schema) -> tuple[pa.RecordBatch, list[tuple[int, Unfit]]]:
    """Rows of `schema`, of JSON types only (see `json_types`), and the numbers of the objects that do not fit."""
    rows: list[dict[str, Any]] = []
    bad: list[tuple[int, Unfit]] = []
    for number, value in enumerate(objects):
        try:
            rows.append({column.name: _held(value.get(column.name), column.type, column.name) for column in schema})
        except Unfit as unfit:
            bad.append((number, unfit))
    return pa.RecordBatch.from_struct_array(pa.array(rows, pa.struct(list(schema)))), bad


def _held(value: Any, kind: pa.DataType, place: str) -> Any:
    """The value as a column of `kind` holds it."""
    if value is None or pa.types.is_null(kind):
        return None
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {child.name: _held(value.get(child.name), child.type, f"{place}.{child.name}") for child in kind}
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and isinstance(value, list):
        return [_held(item, kind.value_type, f"{place}[]") for item in value]
    if pa.types.is_large_string(kind) and isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Unfit("invalid_utf8", f"column {place!r} holds half a surrogate pair") from error
        return value
    if pa.types.is_boolean(kind) and isinstance(value, bool):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if pa.types.is_float64(kind):
            return _double(value)
        low, high = (0, (1 << 64) - 1) if pa.types.is_uint64(kind) else (-(1 << 63), (1 << 63) - 1)
        if pa.types.is_integer(kind) and isinstance(value, int) and low <= value <= high:
            return value
    raise Unfit("wrong_type", f"column {place!r} is {kind}, and this row has {_kind(value)}")


def _double(value: float) -> float:
    if isinstance(value, _NegativeZero):
        return -0.0
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _kind(value: Any) -> str:
    names = {str: "text", bool: "a boolean", dict: "an object", list: "a list", type(None): "null"}
    return names.get(type(value)) or f"the number {str(value)[:40]}"


def json_types(kind: pa.DataType) -> pa.DataType:
    """The type that JSON can hold a column of `kind` in: what casts to it once parsed."""
    if pa.types.is_null(kind) or pa.types.is_boolean(kind):
        return kind
    if pa.types.is_integer(kind):
        return pa.uint64() if pa.types.is_uint64(kind) else pa.int64()
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return pa.float64()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(child.name, json_types(child.type)) for child in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(json_types(kind.value_type))
    return pa.large_string()


def json_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of `schema` whose values count, in the types that JSON can hold them in."""
    return pa.schema(
        [pa.field(column.name, json_types(column.type)) for column in schema if not pa.types.is_null(column.type)]
    )


def infer(objects: Iterable[dict[str, Any]]) -> pa.Schema:
    """Columns of some objects, in order of first appearance; of several types, the one that most of them have."""
    seen = _Seen()
    for value in objects:
        seen.add(value, 0)
    return pa.schema([pa.field(name, inner.type()) for name, inner in seen.fields.items()])


@dataclass(slots=True)
class _Seen:
    """What values a place has had."""

    kinds: Counter[str] = field(default_factory=Counter)
    fields: dict[str, _Seen] = field(default_factory=dict)
    items: _Seen | None = None

    def add(self, value: Any, depth: int) -> None:
        if value is None or depth > MAX_DEPTH:
            return
        if isinstance(value, dict):
            self.kinds["object"] += 1
            for name, inner in value.items():
                if name.isascii() or _is_text(name):
                    self.fields.setdefault(name, _Seen()).add(inner, depth + 1)
        elif isinstance(value, list):
            self.kinds["list"] += 1
            self.items = self.items or _Seen()
            for item in value:
                self.items.add(item, depth + 1)
        elif isinstance(value, bool):
            self.kinds["boolean"] += 1
        elif isinstance(value, str):
            self.kinds["text"] += 1
        else:
            self.kinds["number"] += 1
            self.kinds[_number_kind(value)] += 1

    def type(self) -> pa.DataType:
        """The type that most of the values have."""
        kinds = ("text", "object", "list", "number", "boolean")
        most = max(kinds, key=lambda kind: self.kinds[kind])
        if not self.kinds[most]:
            return pa.null()
        if most == "object":
            return pa.struct([pa.field(name, inner.type()) for name, inner in self.fields.items()])
        if most == "list":
            return pa.list_(self.items.type() if self.items else pa.null())
        if most == "number":
            if self.kinds["double"]:
                return pa.float64()
            return pa.uint64() if self.kinds["uint64"] and not self.kinds["negative"] else pa.int64()
        return pa.large_string() if most == "text" else pa.bool_()


def _number_kind(value: float) -> str:
    if isinstance(value, float):
        return "double"
    if value < 0:
        return "negative"
    return "uint64" if (1 << 63) <= value < (1 << 64) else "int64"


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
