"""A batch's characters, words, lines and marks: found once, when first asked for, and shared by all filters."""

from __future__ import annotations

import functools
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa

from dataeff.arrow import F64, I64, text_views
from dataeff.errors import PlanError
from dataeff.kernel import lines, segment, text_marks

WordSplit: TypeAlias = Literal["whitespace", "regex"]
"""What a word is: `whitespace`, what `str.split()` gives; `regex`, what `re.findall(r"\\w+|[^\\w\\s]", text)` gives."""
WORD_SPLITS = ("whitespace", "regex")


def check_split(owner: object, field: str) -> None:
    """Check that `owner.field` is a `WordSplit`.

    Raises:
        PlanError: It is not.
    """
    if getattr(owner, field) not in WORD_SPLITS:
        raise PlanError.out_of_range(owner, field, f"one of {', '.join(map(repr, WORD_SPLITS))}")


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
    def _whitespace_words(self) -> segment.Words:
        return segment.find_words(self.data, self.offsets, regex=False)

    @functools.cached_property
    def _regex_words(self) -> segment.Words:
        return segment.find_words(self.data, self.offsets, regex=True)

    def words(self, split: WordSplit = "whitespace") -> segment.Words:
        """All words.

        Raises:
            InputError: The batch has 2 GiB of text or more.
        """
        return self._regex_words if split == "regex" else self._whitespace_words

    def words_per_row(self, split: WordSplit = "whitespace") -> I64:
        """Words of each row, shape (rows,)."""
        return np.diff(self.words(split).rows)

    @functools.cached_property
    def lines(self) -> lines.Lines:
        """All lines, as `str.split` at line feeds."""
        return lines.find_lines(self.data, self.offsets)

    @functools.cached_property
    def marks(self) -> text_marks.Marks:
        """Counts of signs that filters look for."""
        return text_marks.count_marks(self.data, self.offsets)


def share(part: I64 | F64, whole: I64 | F64) -> F64:
    """`part / whole`, 0 where there is no whole."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=np.asarray(whole) > 0)
