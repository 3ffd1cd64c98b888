"""Where two near-duplicates differ, word by word, short enough to show."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from dataeff.reports.visible import visible

MAX_CHARACTERS = 200_000
"""How far into a text a difference is looked for."""
_CONTEXT_WORDS = 12
_MAX_WORDS = 140
_NO_SPACES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(rf"\s+|[{_NO_SPACES}]|[^\W{_NO_SPACES}]{{1,40}}|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Piece:
    """Adjacent words of one side."""

    text: str
    differs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Both sides around the first place where they differ."""

    removed: tuple[Piece, ...]
    survivor: tuple[Piece, ...]
    equal: bool
    """No difference was found, in the first `MAX_CHARACTERS` of each."""


def difference(removed: str, survivor: str) -> Difference:
    """Compare two texts, white space as one blank.

    What they share at the beginning is left out but for a dozen words; from there, up to 140 words of each are
    aligned by the longest common blocks (`difflib`).
    """
    left, right = _words(removed), _words(survivor)
    same = _common_start(left, right)
    if same == len(left) == len(right):
        shown = (Piece(_joined(left[:_MAX_WORDS], cut=len(left) > _MAX_WORDS), differs=False),)
        return Difference(removed=shown, survivor=shown, equal=True)
    start = max(0, same - 2 * _CONTEXT_WORDS)
    mine, other = left[start : start + 2 * _MAX_WORDS], right[start : start + 2 * _MAX_WORDS]
    blocks = difflib.SequenceMatcher(None, mine, other, autojunk=False).get_opcodes()
    if (
        len(blocks) > 1
        and blocks[-1][0] != "equal"
        and (len(left) > start + len(mine) or len(right) > start + len(other))
    ):
        # What ends one side may stand behind the end of the other: it is cut, not different.
        mine, other = mine[: blocks[-1][1]], other[: blocks[-1][3]]
        blocks.pop()
    return Difference(
        removed=_pieces(mine, [(tag, low, high) for tag, low, high, _, _ in blocks], start, len(left)),
        survivor=_pieces(other, [(tag, low, high) for tag, _, _, low, high in blocks], start, len(right)),
        equal=False,
    )


def _words(text: str) -> list[str]:
    return [" " if word.isspace() else word for word in _WORD.findall(text[:MAX_CHARACTERS].strip())]


def _common_start(left: list[str], right: list[str]) -> int:
    for place, (mine, other) in enumerate(zip(left, right, strict=False)):
        if mine != other:
            return place
    return min(len(left), len(right))


def _pieces(words: list[str], blocks: list[tuple[str, int, int]], start: int, total: int) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    for tag, low, high in blocks:
        text = visible("".join(words[low:high]))
        differs = tag != "equal" or (bool(pieces) and pieces[-1].differs and text.isspace())
        if pieces and pieces[-1].differs == differs:
            pieces[-1] = Piece(pieces[-1].text + text, differs)
        elif text:
            pieces.append(Piece(text, differs))
    if start:
        pieces.insert(0, Piece("… ", differs=False))
    if start + len(words) < total:
        pieces.append(Piece(" …", differs=False))
    return tuple(pieces)


def _joined(words: list[str], *, cut: bool) -> str:
    return visible("".join(words)) + (" …" if cut else "")
