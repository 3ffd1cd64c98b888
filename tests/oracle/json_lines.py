"""JSON Lines read the slow and obvious way: one line at a time, by Python's own decoder."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa

ARROWS_WORDS = ("-Infinity", "Infinity", "-Inf", "Inf", "-NaN", "NaN")
"""Numbers that Arrow's parser takes and JSON does not have, longest first."""


def rows(content: bytes, schema: pa.Schema) -> tuple[list[tuple[int, dict[str, Any]]], list[tuple[int, str]]]:
    """Offset and columns of each good line, offset and reason of each bad one; blank lines are neither."""
    good: list[tuple[int, dict[str, Any]]] = []
    bad: list[tuple[int, str]] = []
    offset = 0
    for number, line in enumerate(content.split(b"\n")):
        start, offset = offset, offset + len(line) + 1
        line = line.removesuffix(b"\r")
        if number == 0 and line.startswith(b"\xef\xbb\xbf"):
            start, line = 3, line[3:]
        if not line.strip(b" \t\r"):
            continue
        try:
            value = decoded(line.decode())
            if not isinstance(value, dict):
                raise TypeError("not_an_object")
            good.append((start, {field.name: typed(value.get(field.name), field.type) for field in schema}))
        except UnicodeError:
            bad.append((start, "invalid_utf8"))
        except ValueError:
            bad.append((start, "broken_json"))
        except TypeError as error:
            bad.append((start, str(error)))
    return good, bad


def decoded(text: str) -> Any:
    """The value of a line, Arrow's words for odd numbers allowed outside strings."""
    made, position = "", 0
    inside = False
    while position < len(text):
        word = next((word for word in ARROWS_WORDS if not inside and text.startswith(word, position)), None)
        if word:
            made += "NaN" if "NaN" in word else word.replace("Infinity", "Inf").replace("Inf", "Infinity")
            position += len(word)
            continue
        if text[position] == '"':
            inside = not inside
        width = 2 if inside and text[position] == "\\" else 1
        made += text[position : position + width]
        position += width
    return json.loads(made, parse_int=lambda digits: MinusZero() if digits == "-0" else int(digits))


class MinusZero(int):
    """The integer -0, whose sign only a double can keep."""


def typed(value: Any, kind: pa.DataType) -> Any:
    """The value where it is of the type; raises TypeError("wrong_type") or UnicodeError where it is not."""
    if value is None:
        return None
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {child.name: typed(value.get(child.name), child.type) for child in kind}
    if pa.types.is_list(kind) and isinstance(value, list):
        return [typed(item, kind.value_type) for item in value]
    if pa.types.is_large_string(kind) and isinstance(value, str):
        value.encode()
        return value
    if pa.types.is_boolean(kind) and isinstance(value, bool):
        return value
    if isinstance(value, MinusZero) and pa.types.is_float64(kind):
        return -0.0
    value = int(value) if isinstance(value, MinusZero) else value
    if pa.types.is_int64(kind) and type(value) is int and -(2**63) <= value < 2**63:
        return value
    if pa.types.is_float64(kind) and type(value) in (int, float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    raise TypeError("wrong_type")
