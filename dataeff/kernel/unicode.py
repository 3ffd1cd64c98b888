"""What the kernels know of Unicode: tables from Python's `unicodedata`, made when the first non-ASCII byte is met.

Each table is in two stages: a block number by the code point's upper bits, then 256 entries a block. `FLAGS` has the
class of a code point in its lower bits (`SEPARATOR`, `WORD`, `SOLO`, `MARK`) and single-bit properties above; `FOLD`
has the full case fold: the distance to the folded code point, or, below `EXPANDS`, the row of `EXPANSIONS`.
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
SPACE = 4
"""White space as `str.split()` sees it."""
NOT_NFC = 8
"""Never, or not always, part of NFC text (NFC_Quick_Check no or maybe)."""
NOT_NFKC = 16
"""Never, or not always, part of NFKC text."""
ALPHABETIC = 32
"""A letter as `str.isalpha()` sees it."""
SYMBOL = 64
"""Punctuation, a symbol or a control character (Unicode categories P, S, C)."""
TERMINAL = 128
"""Ends a sentence (property Sentence_Terminal of Unicode 15)."""
EXPANDS = -0x110000
"""A fold below this stands for row `EXPANDS - 1 - fold` of the expansions."""

_LIMIT = 0x110000
_UNIFORM = ((0x3400, 0x4DC0), (0x4E00, 0xA000), (0xAC00, 0xD7A4), (0x20000, 0x2F800), (0x2FA20, 0x40000))
"""Ideographs and Hangul syllables: each that is assigned is alike."""
_TERMINAL_SPANS = """
0021 002E 003F 0589 061D-061F 06D4 0700-0702 07F9 0837 0839 083D-083E 0964-0965 104A-104B 1362 1367-1368 166E
1735-1736 1803 1809 1944-1945 1AA8-1AAB 1B5A-1B5B 1B5E-1B5F 1B7D-1B7E 1C3B-1C3C 1C7E-1C7F 203C-203D 2047-2049 2E2E
2E3C 2E53-2E54 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9 AA5D-AA5F AAF0-AAF1 ABEB FE52
FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59 10F86-10F89 11047-11048 110BE-110C1 11141-11143 111C5-111C6
111CD 111DE-111DF 11238-11239 1123B-1123C 112A9 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642 1173C-1173E 11944
11946 11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 16A6E-16A6F 16AF5 16B37-16B38 16B44 16E98 1BC9F 1DA88
"""
_TERMINALS = frozenset(
    code
    for span in _TERMINAL_SPANS.split()
    for code in range(int(span.partition("-")[0], 16), int(span.rpartition("-")[2], 16) + 1)
)
_SOLO_NAMES = (
    "CJK UNIFIED IDEOGRAPH",
    "CJK COMPATIBILITY IDEOGRAPH",
    "HIRAGANA",
    "KATAKANA",
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
    seconds = _composing_seconds()
    for code in _code_points():
        character = chr(code)
        flags[code] = _flags(character, code in seconds) | unicodedata.combining(character) << 8
        folded = character.casefold()
        if len(folded) == 1:
            fold[code] = ord(folded)
        else:
            first, second, third = (*map(ord, folded), 0)[:3]
            expansions.append((first, second, third))
            fold[code] = -len(expansions)
    for start, stop in _UNIFORM:
        alike = [unicodedata.category(chr(code)) == "Lo" for code in range(start, stop)]
        flags[start:stop] = np.where(alike, SOLO | ALPHABETIC, SYMBOL)
    return _compressed(flags, fold, np.array(expansions, np.uint32))


def _code_points() -> list[int]:
    """All code points that may be assigned and are not in a uniform run."""
    spans = [(0, 0x3400), (0x4DC0, 0x4E00), (0xA000, 0xAC00), (0xD7A4, 0xD800), (0xE000, 0x20000)]
    spans += [(0x2F800, 0x2FA20), (0xE0000, 0xE0200)]
    return [code for start, stop in spans for code in range(start, stop) if unicodedata.category(chr(code)) != "Cn"]


def _composing_seconds() -> set[int]:
    """Code points that may combine with the one before them, whatever their combining class."""
    found = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    for code in _code_points():
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            found.add(int(parts[1], 16))
    return found


def _flags(character: str, composes: bool) -> int:
    category = unicodedata.category(character)
    flags = SEPARATOR
    if category[0] == "M":
        flags = MARK
    elif category[0] == "L" and unicodedata.name(character, "").startswith(_SOLO_NAMES):
        flags = SOLO
    elif category[0] in "LN" or category == "Pc":
        flags = WORD
    if character.isspace():
        flags |= SPACE
    if character.isalpha():
        flags |= ALPHABETIC
    if category[0] in "PSC":
        flags |= SYMBOL
    if ord(character) in _TERMINALS:
        flags |= TERMINAL
    if composes or unicodedata.normalize("NFC", character) != character:
        flags |= NOT_NFC
    if composes or unicodedata.normalize("NFKC", character) != character:
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
