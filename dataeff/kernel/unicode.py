"""What the kernels know of Unicode: tables from Python's `unicodedata`, made when the first non-ASCII byte is met.

Each table is in two stages: a block number by the code point's upper bits, then 256 entries a block. `FLAGS` has the
class of a code point in its lower bits (`SEPARATOR`, `WORD`, `SOLO`, `MARK`) and single-bit properties above; `FOLD`
has the full case fold: the distance to the folded code point, or, below `EXPANDS`, the row of `EXPANSIONS`.

Whether text is in a normal form is told from the flags, as Unicode Standard Annex 15 (section 9) describes, and a
little more sharply: a character that can compose with others (Quick_Check "maybe": the vowel signs and dots of Indic
scripts, in every line of theirs) leaves the text normal after a starter that composes with nothing.
"""

from __future__ import annotations

import functools
import unicodedata
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dataeff.arrow import U32

UNICODE_VERSION = unicodedata.unidata_version
"""Version of the Unicode data; enters the fingerprint of whatever depends on it."""

SEPARATOR, WORD, SOLO, MARK = 0, 1, 2, 3
CLASS_MASK = 3
COMBINING_SHIFT = 8
NOT_NFC = 8
"""Never part of NFC text (NFC_Quick_Check no)."""
NOT_NFKC = 16
"""Never part of NFKC text."""
FOLDS = 32
"""Case folding changes it."""
FOLLOWS = 64
"""Composes with some starter before it (NFC_Quick_Check maybe)."""
LEADS = 128
"""A starter that some character composes with, or that is itself composed: what follows may change it."""
EXPANDS = -0x110000
"""A fold below this stands for row `EXPANDS - 1 - fold` of the expansions."""

_LIMIT = 0x110000
_UNIFORM = ((0x3400, 0x4DC0), (0x4E00, 0xA000), (0xAC00, 0xD7A4), (0x20000, 0x2F800), (0x2FA20, 0x40000))
"""Ideographs and Hangul syllables: each that is assigned is alike."""
_SOLO_NAMES = (
    "CJK UNIFIED IDEOGRAPH",
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
    "IDEOGRAPHIC",
)
I32: TypeAlias = npt.NDArray[np.int32]
U16: TypeAlias = npt.NDArray[np.uint16]


class Tables(NamedTuple):
    """Two-stage tables over all code points; entry `stage[block[cp >> 8] * 256 + (cp & 255)]`."""

    block: U16
    """Shape (0x1100,)."""
    flags: U16
    """Class and properties; the canonical combining class stands in the upper byte."""
    fold: I32
    """Distance to the code point that the full case fold gives, or a row of `expansions`."""
    expansions: U32
    """Folds of more than one code point, shape (rows, 3), zeros at the end."""


@functools.cache
def tables() -> Tables:
    """The tables; made once a process."""
    flags = np.zeros(_LIMIT, np.uint16)
    fold = np.arange(_LIMIT, dtype=np.int32)
    expansions: list[tuple[int, int, int]] = []
    leading, following = _composing()
    for code in _code_points():
        character = chr(code)
        flags[code] = _flags(character) | unicodedata.combining(character) << COMBINING_SHIFT
        folded = character.casefold()
        if folded == character:
            continue
        flags[code] |= FOLDS
        if len(folded) == 1:
            fold[code] = ord(folded)
        else:
            first, second, third = (*map(ord, folded), 0)[:3]
            expansions.append((first, second, third))
            fold[code] = -len(expansions)
    for start, stop in _UNIFORM:
        alike = [unicodedata.category(chr(code)) == "Lo" for code in range(start, stop)]
        flags[start:stop] = np.where(alike, SOLO, SEPARATOR)
    flags[leading] |= LEADS
    flags[following] |= FOLLOWS
    return _compressed(flags, fold, np.array(expansions, np.uint32))


def _code_points() -> list[int]:
    """All code points that may be assigned and are not in a uniform run."""
    spans = [(0, 0x3400), (0x4DC0, 0x4E00), (0xA000, 0xAC00), (0xD7A4, 0xD800), (0xE000, 0x20000)]
    spans += [(0x2F800, 0x2FA20), (0xE0000, 0xE0200)]
    return [code for start, stop in spans for code in range(start, stop) if unicodedata.category(chr(code)) != "Cn"]


def _composing() -> tuple[list[int], list[int]]:
    """Code points with the property `LEADS`, and those with `FOLLOWS`."""
    # Hangul composes by arithmetic: a leading consonant, a vowel, and a consonant that ends the syllable.
    leading = {*range(0x1100, 0x1113), *range(0xAC00, 0xD7A4)}
    following = {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}
    for code in _code_points():
        parts = unicodedata.decomposition(chr(code)).split()
        if parts and not parts[0].startswith("<"):
            leading.add(code)
            if len(parts) == 2 and unicodedata.normalize("NFC", chr(code)) == chr(code):
                leading.add(int(parts[0], 16))
                following.add(int(parts[1], 16))
    return sorted(leading), sorted(following)


def _flags(character: str) -> int:
    category = unicodedata.category(character)
    flags = SEPARATOR
    if category[0] == "M":
        flags = MARK
    elif category[0] == "L" and unicodedata.name(character, "").startswith(_SOLO_NAMES):
        flags = SOLO
    elif category[0] in "LN" or category == "Pc":
        flags = WORD
    if unicodedata.normalize("NFC", character) != character:
        flags |= NOT_NFC
    if unicodedata.normalize("NFKC", character) != character:
        flags |= NOT_NFKC
    return flags


def _compressed(flags: U16, fold: I32, expansions: U32) -> Tables:
    """Share equal blocks; a fold is kept as the distance to the folded code point, so that blocks are alike."""
    codes = np.arange(_LIMIT, dtype=np.int32)
    distance = np.where(fold < 0, fold + EXPANDS, fold - codes)
    rows = np.concatenate([part.reshape(-1, 256).astype(np.int32) for part in (flags, distance)], axis=1)
    _, first, block = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    picked = [part.reshape(-1, 256)[first].reshape(-1) for part in (flags, distance)]
    made = Tables(block.reshape(-1).astype(np.uint16), picked[0], picked[1].astype(np.int32), expansions)
    for table in made:
        table.flags.writeable = False
    return made
