"""C4's line rules (Raffel et al. 2020, section 2.2): lines that do not read like prose go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataeff.arrow import text_array, text_views
from dataeff.editors import Edited
from dataeff.errors import PlanError
from dataeff.kernel.c4 import REASONS, keep_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class C4Lines:
    """Remove lines as C4 does: a huge word, no end mark, few words, javascript, policy phrases; and citation marks.

    Rules and their order are those of datatrove 0.10.1's C4QualityFilter (FineWeb uses it without
    `require_terminal_punctuation`). A line that makes its document fail stays, so that the filter `c4_quality` after
    it sees what that one sees.
    """

    require_terminal_punctuation: bool = True
    """Remove lines that do not end with . ? ! or a straight quotation mark, or that end with three full stops."""
    min_words: int = 3
    """Words between white space, citation marks among them."""
    max_word_chars: int = 1000

    def __post_init__(self) -> None:
        if self.min_words < 0:
            raise PlanError.out_of_range(self, "min_words", "0 or more")
        if self.max_word_chars < 1:
            raise PlanError.out_of_range(self, "max_word_chars", "1 or more")

    def edit(self, text: pa.Array) -> Edited:
        """Keep the lines that pass, as `str.splitlines()` gives them, stripped and joined by line feeds."""
        data, offsets = text_views(text)
        kept, bounds, counts = keep_lines(
            data,
            offsets,
            require_end=self.require_terminal_punctuation,
            min_words=self.min_words,
            max_word_chars=self.max_word_chars,
        )
        removed = dict(zip((*REASONS, "citations"), counts.astype(np.float64), strict=True))
        removed["bytes"] = (np.diff(offsets) - np.diff(bounds)).astype(np.float64)
        return Edited(text=text_array(kept, bounds), removed=removed)
