"""Quality rules in plain Python, written from datatrove 0.10.1's definitions with the words of `split`."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from dataeff.kernel.characters import OTHER_MARKS, TERMINAL_MARKS


def _marks(spans: str) -> set[str]:
    found = set()
    for span in spans.split():
        first, _, last = span.partition("-")
        found |= {chr(code) for code in range(int(first, 16), int(last or first, 16) + 1)}
    return found


TERMINAL = _marks(TERMINAL_MARKS)
PUNCTUATION = _marks(OTHER_MARKS) | TERMINAL
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")


def split(text: str, words: str) -> list[str]:
    return text.split() if words == "whitespace" else re.findall(r"\w+|[^\w\s]", text)


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def find_duplicates(elements: Sequence[str]) -> tuple[int, int]:
    seen: set[str] = set()
    count = chars = 0
    for element in elements:
        if element in seen:
            count += 1
            chars += len(element)
        seen.add(element)
    return count, chars


def top_ngram(words: list[str], n: int) -> int:
    grams = [" ".join(words[at : at + n]) for at in range(len(words) - n + 1)]
    if not grams:
        return 0
    gram, count = Counter(grams).most_common(1)[0]
    return len(gram) * count


def duplicate_ngrams(words: list[str], n: int) -> int:
    seen: set[str] = set()
    chars = at = 0
    while at < len(words) - n + 1:
        gram = "".join(words[at : at + n])
        if gram in seen:
            chars += len(gram)
            at += n
        else:
            seen.add(gram)
            at += 1
    return chars


def gopher_repetition(text: str, words: str = "whitespace") -> dict[str, float]:
    paragraphs = re.split(r"\n{2,}", text.strip())
    lines = re.split(r"\n+", text)
    found = {"empty": float(not text)}
    for name, elements in (("paragraph", paragraphs), ("line", lines)):
        count, chars = find_duplicates(elements)
        found[f"{name}_share"] = ratio(count, len(elements))
        found[f"{name}_char_share"] = ratio(chars, len(text))
    listed = split(text, words)
    found |= {f"top_{n}_gram_share": ratio(top_ngram(listed, n), len(text)) for n in (2, 3, 4)}
    found |= {f"duplicate_{n}_gram_share": ratio(duplicate_ngrams(listed, n), len(text)) for n in range(5, 11)}
    return found


def gopher_quality(text: str, words: str = "whitespace") -> dict[str, float]:
    listed = split(text, words)
    content = [word for word in listed if any(character not in PUNCTUATION for character in word)]
    lines = text.splitlines()
    return {
        "words": float(len(content)),
        "mean_word_chars": ratio(sum(map(len, content)), len(content)),
        "hashes_per_word": ratio(text.count("#"), len(listed)),
        "ellipses_per_word": ratio(text.count("...") + text.count("…"), len(listed)),
        "bullet_line_share": ratio(sum(line.lstrip().startswith(("•", "-")) for line in lines), len(lines)),
        "ellipsis_line_share": ratio(sum(line.rstrip().endswith(("...", "…")) for line in lines), len(lines)),
        "letter_word_share": ratio(sum(any(map(str.isalpha, word)) for word in listed), len(listed)),
        "stop_words": float(len(set(STOP_WORDS) & set(listed))),
    }


def fineweb_quality(text: str, words: str = "whitespace", short_line_chars: int = 30) -> dict[str, float]:
    lines = [line for line in text.split("\n") if line.strip()]
    return {
        "empty": float(not lines),
        "ended_line_share": ratio(sum(line.endswith(tuple(TERMINAL)) for line in lines), len(lines)),
        "short_line_share": ratio(sum(len(line) <= short_line_chars for line in lines), len(lines)),
        "duplicate_char_share": ratio(find_duplicates(lines)[1], len(text.replace("\n", ""))),
        "newlines_per_word": ratio(text.count("\n"), len(split(text, words))),
    }


def c4_quality(text: str) -> dict[str, float]:
    return {
        "lorem_ipsum": float(len(re.findall("lorem ipsum", text, re.IGNORECASE | re.ASCII))),
        "curly_brackets": float(text.count("{")),
        "sentences": float(sum(count_sentences(line) for line in text.splitlines())),
    }


def count_sentences(line: str) -> int:
    """Sentences begin with the line, with the first word of more than punctuation after an end, and within a word."""
    count = 0
    ended = False
    for number, word in enumerate(line.split()):
        if number == 0 or (ended and not all(map(_is_punctuation, word))):
            count += 1
            ended = False
        count += sum(not all(map(_is_punctuation, piece)) for piece in re.split("[。！．？｡]", word)[1:])
        tail = word[len(word.rstrip("".join(filter(_is_punctuation, word)))) :]
        ended = ended or any(character in TERMINAL for character in tail)
    return count


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character).startswith("P")
