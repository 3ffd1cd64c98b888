"""C4's line rules in plain Python."""

from __future__ import annotations

import re
from collections import Counter

POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")


def keep_lines(
    text: str, require_end: bool, min_words: int = 3, max_word_chars: int = 1000
) -> tuple[str, Counter[str]]:
    """The text that is left, and how many lines went for each reason."""
    kept = []
    removed: Counter[str] = Counter()
    for line in text.splitlines():
        line = line.strip()
        words = line.split()
        reason = ""
        if any(len(word) > max_word_chars for word in words):
            reason = "long_word"
        else:
            line, citations = re.subn(r"\[\d*]|\[edit]|\[citation needed]", "", line)
            removed["citations"] += citations
            lower = line.lower()
            if require_end and (not line.endswith((".", "?", "!", '"', "'")) or line.endswith("...")):
                reason = "no_terminal_punctuation"
            elif len(words) < min_words:
                reason = "few_words"
            elif "lorem ipsum" not in lower:
                if "javascript" in lower:
                    reason = "javascript"
                elif "{" not in line and any(phrase in lower for phrase in POLICIES):
                    reason = "policy"
        if reason:
            removed[reason] += 1
        else:
            kept.append(line)
    return "\n".join(kept).strip(), removed
