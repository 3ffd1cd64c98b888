"""Cut a huge document where its tokenizer starts a new word anyway, so that the ids stay the same.

Tokenizers of the GPT family split text by one regular expression before they merge bytes. The expressions known
here have in common that whatever consumes a letter can go on only with letters, marks, or an apostrophe, looks at no
more than the one character that follows, and never looks back. So a letter before a space, a newline, a comma or a
full stop ends a word in all of them, and it does so as well where the text ends there. Both halves then split as
they did in the whole: equal ids are a matter of proof, not of luck.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

import numpy as np

from dataeff.arrow import I64, U8

CUT_BYTES = 1 << 18
"""Documents above this are cut into pieces of about this size where they can be."""
_WINDOW_BYTES = 1 << 12
_ENDS = re.compile(r"[^\W\d_](?=[ \n.,、。，])")
_OLD = unicodedata.ucd_3_2_0
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
PROVED_PATTERNS = frozenset(
    {
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACE}",
        rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACE}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
        rf"{_CONTRACTIONS}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACE}",
    }
)
"""Splitting expressions for which the proof holds: GPT-2, GPT-4 and Llama 3, Qwen 2, GPT-4o."""


def cuts(data: U8, piece_bytes: int = CUT_BYTES) -> I64:
    """Where to cut one document: offsets inside it, ascending, each behind a letter that ends a word.

    Args:
        data: UTF-8 of the document, shape (bytes,).
        piece_bytes: A cut is looked for at every multiple of it, and then further back.

    Returns:
        Shape (cuts,). Empty where the document is short, or has no such place: one word of any length, or digits.
    """
    found: list[int] = []
    low = 0
    for target in range(piece_bytes, len(data), piece_bytes):
        for high in range(target, low, -_WINDOW_BYTES):
            cut = _last_end(data, max(low, high - _WINDOW_BYTES), high)
            if cut is not None:
                found.append(cut)
                break
        low = target
    return np.asarray(found, np.int64)


def provable(config: dict[str, Any]) -> bool:
    """True where cutting as `cuts` does is proved to keep the ids of a tokenizer.

    Args:
        config: A tokenizer in the `tokenizers` library's JSON format, its special tokens taken as text.
    """
    return (
        config["model"]["type"] == "BPE"
        and (config.get("normalizer") or {"type": "NFC"}) == {"type": "NFC"}
        and _splits_like_gpt(config.get("pre_tokenizer"))
        and all(_harmless(token) for token in config.get("added_tokens") or () if not token["special"])
    )


def _last_end(data: U8, low: int, high: int) -> int | None:
    """The last cut in (low, high], judged from the text between them and the character that follows."""
    start, stop = low, min(high + 4, len(data))
    while start < stop and data[start] & 0xC0 == 0x80:
        start += 1
    window = data[start:stop].tobytes().decode("utf-8", "ignore")
    for match in reversed(list(_ENDS.finditer(window))):
        cut = start + len(window[: match.end()].encode())
        if cut <= high and _always_a_letter(match.group()):
            return cut
    return None


def _always_a_letter(char: str) -> bool:
    """A letter in every version of Unicode that a tokenizer may know, and unchanged by normalisation."""
    return (
        _OLD.category(char)[0] == "L"
        and unicodedata.category(char)[0] == "L"
        and unicodedata.is_normalized("NFC", char)
    )


def _splits_like_gpt(pre_tokenizer: dict[str, Any] | None) -> bool:
    steps = [pre_tokenizer or {}]
    if steps[0].get("type") == "Sequence":
        steps = steps[0]["pretokenizers"]
    if any(step.get("add_prefix_space") for step in steps):
        return False
    if [step.get("type") for step in steps] == ["ByteLevel"]:
        return bool(steps[0].get("use_regex", True))
    if [step.get("type") for step in steps] != ["Split", "ByteLevel"]:
        return False
    split, bytes_of = steps
    return (
        split["pattern"].get("Regex") in PROVED_PATTERNS
        and split["behavior"] == "Isolated"
        and not split["invert"]
        and not bytes_of.get("use_regex", True)
    )


def _harmless(token: dict[str, Any]) -> bool:
    """True for an added token that no cut can go through and that takes nothing of its surroundings."""
    takes = any(token.get(flag) for flag in ("single_word", "lstrip", "rstrip"))
    return not takes and token["content"].isascii() and _ENDS.search(token["content"]) is None


def parse(prepared: bytes) -> dict[str, Any]:
    """A tokenizer file's content as a dictionary."""
    config: dict[str, Any] = json.loads(prepared)
    return config
