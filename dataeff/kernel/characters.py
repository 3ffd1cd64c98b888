"""What quality rules ask of a character: flags by code point, from Python's own Unicode data.

The two sets of marks are those of datatrove 0.10.1 (`utils/text.py`): 159 that end a sentence, and 281 that are
punctuation, among them all ASCII punctuation, control characters, and the marks that end a sentence.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dataeff.kernel.compiled import compiled, inlined
from dataeff.kernel.words import decode

U16: TypeAlias = npt.NDArray[np.uint16]

SPACE = 1
"""White space as `str.isspace()`, `str.split()` and `str.strip()` see it."""
BREAK = 2
"""Ends a line for `str.splitlines()`."""
LETTER = 4
"""`str.isalpha()`."""
WORD = 8
r"""Matches `\w`."""
SYMBOL = 16
"""One of datatrove's punctuation marks."""
TERMINAL = 32
"""One of datatrove's marks that end a sentence."""
PUNCTUATION = 64
"""Unicode category P."""
WIDE_TERMINAL = 128
"""Ends a sentence though no white space follows, as East Asian text has it."""
DIGIT = 256
r"""Matches `\d`."""

TERMINAL_MARKS = """
0021 002E 003F 0589 061D-061F 06D4 0700-0702 07F9 0837 0839 083D-083E 0964-0965 104A-104B 1362 1367-1368 166E
1735-1736 17D4-17D6 17D9-17DA 1803 1809 1944-1945 1AA8-1AAB 1B5A-1B5B 1B5E-1B5F 1B7D-1B7E 1C3B-1C3C 1C7E-1C7F
203C-203D 2047-2049 2E2E 2E3C 2E53-2E54 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9 AA5D-AA5F
AAF0-AAF1 ABEB FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59 10F86-10F89 11047-11048 110BE-110C1
11141-11143 111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C 112A9 1144B-1144C 115C2-115C3 115C9-115D7
11641-11642 1173C-1173E 11944 11946 11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5
16B37-16B38 16B44 16E98 1BC9F 1DA88
"""
OTHER_MARKS = """
0000-0008 000B-001F 0022-002D 002F 003A-003E 0040 005B-0060 007B-009F 00AB 00B4 00BB 2013-2014 2019 201C-201E 2026
2236 2501 25BA 3001 3008-300D 3010-3011 FF05 FF08-FF09 FF0C FF11 FF1A-FF1B FF5E
"""
_WIDE = (0x3002, 0xFF01, 0xFF0E, 0xFF1F, 0xFF61)
_BREAKS = (0x0A, 0x0B, 0x0C, 0x0D, 0x1C, 0x1D, 0x1E, 0x85, 0x2028, 0x2029)
_ASSIGNED = 0x33480
"""No character from here on has any of the flags."""
_LIMIT = 0x110000


class Characters(NamedTuple):
    """A table in two stages: `flags[block[code >> 8] << 8 | code & 255]`; the first block stands first."""

    block: U16
    """Shape (0x1100,)."""
    flags: U16


def marks(spans: str) -> Iterator[int]:
    """Code points of spans such as `0021 0700-0702`."""
    for span in spans.split():
        first, _, last = span.partition("-")
        yield from range(int(first, 16), int(last or first, 16) + 1)


@functools.cache
def characters() -> Characters:
    """The table; made once a process."""
    everything = "".join(map(chr, range(_ASSIGNED)))
    flags = np.zeros(_LIMIT, np.uint16)
    flags[:_ASSIGNED] = LETTER * np.fromiter(map(str.isalpha, everything), np.uint16, _ASSIGNED)
    flags[:_ASSIGNED] |= PUNCTUATION * np.fromiter(
        (kind[0] == "P" for kind in map(unicodedata.category, everything)), np.uint16, _ASSIGNED
    )
    for pattern, flag in ((r"\s+", SPACE), (r"\w+", WORD), (r"\d+", DIGIT)):
        for found in re.finditer(pattern, everything):
            flags[found.start() : found.end()] |= flag
    for codes, flag in (
        (_BREAKS, BREAK),
        (marks(TERMINAL_MARKS), TERMINAL | SYMBOL),
        (marks(OTHER_MARKS), SYMBOL),
        (_WIDE, WIDE_TERMINAL),
    ):
        flags[list(codes)] |= flag
    rows, seen, block = np.unique(flags.reshape(-1, 256), axis=0, return_index=True, return_inverse=True)
    order = np.argsort(seen)
    made = Characters(np.argsort(order)[block.reshape(-1)].astype(np.uint16), rows[order].reshape(-1))
    for table in made:
        table.flags.writeable = False
    return made


@inlined
def flags_of(table, code):
    """Flags of a code point."""
    return np.int64(table.flags[np.int64(table.block[code >> 8]) << 8 | code & 255])


@compiled
def trim(data, start, stop, table):
    """`[start, stop)` without white space at both ends; empty at `start` where there is nothing else."""
    while start < stop:
        code, length = decode(data, start, stop)
        if flags_of(table, code) & SPACE == 0:
            break
        start += length
    while start < stop:
        last = last_start(data, start, stop)
        code, _ = decode(data, last, stop)
        if flags_of(table, code) & SPACE == 0:
            break
        stop = last
    return start, stop


@inlined
def last_start(data, start, stop):
    """Where the last character of `[start, stop)`, which is not empty, begins."""
    place = stop - 1
    while place > start and data[place] & 0xC0 == 0x80:
        place -= 1
    return place
