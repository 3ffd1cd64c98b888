"""C4's line rules (Raffel et al. 2020, section 2.2): lines that do not read like prose go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataeff.editors import Edited
from dataeff.errors import PlanError

_REASONS = ("long_word", "no_terminal_punctuation", "few_words", "javascript", "policy")
_CITATIONS = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]")
_TERMINAL = (".", "?", "!", '"', "'")
_POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")


@dataclass(frozen=True, slots=True, kw_only=True)
class C4Lines:
    """Remove lines as C4 does: no end mark, few words, a huge word, javascript, policy phrases; and citation marks.

    Rules and their order are those of datatrove 0.10.1 (FineWeb uses it without `require_terminal_punctuation`).
    """

    require_terminal_punctuation: bool = True
    """Remove lines that do not end with . ? ! or a quote, or that end with three dots."""
    min_words: int = 3
    """Words between white space."""
    max_word_chars: int = 1000

    def __post_init__(self) -> None:
        if self.min_words < 0:
            raise PlanError.out_of_range(self, "min_words", "0 or more")
        if self.max_word_chars < 1:
            raise PlanError.out_of_range(self, "max_word_chars", "1 or more")

    def edit(self, text: pa.Array) -> Edited:
        """Keep the lines that pass, without white space at their ends, joined by line feeds."""
        removed = {reason: np.zeros(len(text)) for reason in _REASONS}
        kept = []
        for row, document in enumerate(text.to_pylist()):
            lines = []
            for line, reason in self._lines(document):
                if reason:
                    removed[reason][row] += 1
                else:
                    lines.append(line)
            kept.append("\n".join(lines).strip())
        return Edited(text=pa.array(kept, pa.large_string()), removed=removed)

    def _lines(self, document: str) -> Iterator[tuple[str, str]]:
        """Each line, cleaned, and why it goes: empty where it stays."""
        for raw in document.splitlines():
            line = raw.strip()
            words = line.split()
            if any(len(word) > self.max_word_chars for word in words):
                yield line, "long_word"
                continue
            line = _CITATIONS.sub("", line)
            lower = line.lower()
            if self.require_terminal_punctuation and (not line.endswith(_TERMINAL) or line.endswith("...")):
                yield line, "no_terminal_punctuation"
            elif len(words) < self.min_words:
                yield line, "few_words"
            elif "lorem ipsum" not in lower and "javascript" in lower:
                yield line, "javascript"
            elif "lorem ipsum" not in lower and "{" not in line and any(phrase in lower for phrase in _POLICIES):
                yield line, "policy"
            else:
                yield line, ""
