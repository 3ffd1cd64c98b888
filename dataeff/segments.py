"""A batch's characters, words, lines and paragraphs: found once, when first asked for, and shared by all filters."""

from __future__ import annotations

import functools
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa

from dataeff.arrow import F64, I64, text_views
from dataeff.kernel import segment, text_marks
from dataeff.kernel.segment import Lines, Words

WordSplit: TypeAlias = Literal["whitespace", "regex"]
"""How words are told apart: `whitespace` as `str.split()`; `regex` also takes every punctuation mark as a word."""
WORD_SPLITS = ("whitespace", "regex")


class Segments:
    """Segments of one large_string array without nulls.

    Args:
        text: A few megabytes at a time, so that what is found stays in cache; or one longer document.
    """

    def __init__(self, text: pa.Array) -> None:
        self.text = text
        self.data, self.offsets = text_views(text)
        self.rows = len(text)

    @functools.cached_property
    def chars_per_row(self) -> I64:
        """Code points of each row, shape (rows,)."""
        return segment.count_chars(self.data, self.offsets)

    @functools.cached_property
    def _whitespace_words(self) -> Words:
        return segment.find_words(self.data, self.offsets, regex=False)

    @functools.cached_property
    def _regex_words(self) -> Words:
        return segment.find_words(self.data, self.offsets, regex=True)

    def words(self, split: WordSplit = "whitespace") -> Words:
        """All words."""
        return self._regex_words if split == "regex" else self._whitespace_words

    def words_per_row(self, split: WordSplit = "whitespace") -> I64:
        """Words of each row, shape (rows,)."""
        return np.diff(self.words(split).rows)

    @functools.cached_property
    def lines(self) -> Lines:
        """All lines, as `str.split` at line feeds."""
        return segment.find_lines(self.data, self.offsets)

    @functools.cached_property
    def paragraphs(self) -> Lines:
        """All paragraphs, as `re.split` at two or more line feeds of the text without white space at its ends."""
        return segment.find_paragraphs(self.data, self.offsets)

    @functools.cached_property
    def marks(self) -> text_marks.Marks:
        """Counts of signs that filters look for."""
        return text_marks.count_marks(self.data, self.offsets)

    def line_share(self, kind: int) -> F64:
        """Share of each row's lines that are of a kind of `dataeff.kernel.segment`, in [0, 1]; the end is no line."""
        lines = self.lines
        counted = self.counted_lines
        return share(per_row(counted & (lines.kinds & kind > 0), lines.rows), per_row(counted, lines.rows))

    @functools.cached_property
    def counted_lines(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Lines that `str.splitlines` would give: all but an empty one after the last line feed."""
        lines = self.lines
        counted = np.ones(len(lines.starts), np.bool_)
        last = lines.rows[1:] - 1
        counted[last[lines.lengths[last] == 0]] = False
        return counted


def per_row(flags: np.ndarray[tuple[int], np.dtype[np.bool_]] | I64, rows: I64) -> I64:
    """Sum of an element's numbers over each row.

    Args:
        flags: A number or flag an element.
        rows: Row boundaries into the elements, shape (rows + 1,).
    """
    total = np.concatenate([[0], np.cumsum(flags, dtype=np.int64)])
    sums: I64 = total[rows[1:]] - total[rows[:-1]]
    return sums


def share(part: I64 | F64, whole: I64 | F64) -> F64:
    """`part / whole`, 0 where there is no whole."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=np.asarray(whole) > 0)
