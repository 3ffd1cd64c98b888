"""Words and shingles of a text, letter by letter."""

from __future__ import annotations

import unicodedata
from typing import Literal

SOLO = (
    "CJK UNIFIED",
    "CJK COMPATIBILITY IDEOGRAPH",
    "HIRAGANA",
    "KATAKANA",
    "HALFWIDTH KATAKANA",
    "HENTAIGANA",
    "VERTICAL KANA",
    "HANGUL SYLLABLE",
    "THAI",
    "LAO",
    "KHMER",
    "MYANMAR",
)


def is_solo(character: str) -> bool:
    """Whether a letter is a word of its own: Han, Hiragana, Katakana, Hangul, Thai, Lao, Khmer, Myanmar."""
    if unicodedata.category(character)[0] != "L":
        return False
    name = unicodedata.name(character, "")
    return name.startswith(SOLO) or name.startswith("IDEOGRAPHIC")


def words(text: str, form: Literal["NFC", "NFKC"]) -> list[str]:
    """Folded words of a text."""
    found: list[str] = []
    current = ""
    alone = False
    for character in unicodedata.normalize(form, text).casefold():
        category = unicodedata.category(character)
        if category[0] == "M":
            current += character
        elif is_solo(character) or category[0] in "LN" or category == "Pc":
            if current and (is_solo(character) or alone):
                found.append(current)
                current = ""
            current += character
            alone = is_solo(character)
        elif current:
            found.append(current)
            current = ""
        if not current:
            alone = False
    return [*found, current] if current else found


def shingles(text: str, unit: Literal["word", "char"], n: int, form: Literal["NFC", "NFKC"]) -> list[tuple[str, ...]]:
    """All shingles of a text, in order."""
    units = words(text, form)
    if unit == "char":
        units = list("".join(units))
    if not units:
        return []
    return [tuple(units[at : at + n]) for at in range(max(1, len(units) - n + 1))]
