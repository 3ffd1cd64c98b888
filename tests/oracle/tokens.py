"""Slow, obvious tokenizers: one document at a time, one merge at a time."""

from __future__ import annotations

import itertools
import json
from typing import Any

import regex

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def byte_tokens(texts: list[str]) -> list[list[int]]:
    return [[*text.encode(), 256] for text in texts]


def byte_chars() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


def bpe_tokens(tokenizer_json: bytes, text: str) -> list[int]:
    """Byte-level BPE as its paper says it: merge the pair that was learnt first, until no pair is known."""
    model: dict[str, Any] = json.loads(tokenizer_json)["model"]
    rank = {tuple(pair): place for place, pair in enumerate(model["merges"])}
    chars = byte_chars()
    ids: list[int] = []
    for word in regex.findall(GPT2, text):
        parts = [chars[byte] for byte in word.encode()]
        while len(parts) > 1:
            pairs = list(itertools.pairwise(parts))
            first = min(pairs, key=lambda pair: rank.get(pair, len(rank)))
            if first not in rank:
                break
            place = pairs.index(first)
            parts[place : place + 2] = [first[0] + first[1]]
        ids += [model["vocab"][part] for part in parts]
    return ids
