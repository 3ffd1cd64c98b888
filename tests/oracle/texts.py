"""Texts that go wrong: a hypothesis strategy, and a list that every filter and editor is run on."""

from __future__ import annotations

from hypothesis import strategies as st

_WORDS = ["the", "of", "to", "and", "a", "ab", "c", "bc", "12", "#", "...", "..", "…", "•", "-", ".", "!?", '"Yes."']
_WORDS += [
    "Lorem",
    "ipsum",
    "{",
    "}",
    "don't",
    "naïve",
    "Straße",
    "e\u0301te",
    "字",
    "你好。世界！",
    "ไทย",
    "한국",
    "x" * 17,
]
_WORDS += [
    "longerthaneightbytes",
    "(end.)",
    "\u00a0",
    "\0",
    "𝒳",
    "😀",
    "日本語",
    "。",
    "İ",
    "K",
    "_",
    "²",
    "Ⅷ",
    "\ue000",
]
_GAPS = [" ", " ", " ", "\n", "\n\n", "\n \n", "  ", "\t", "\r\n", "\r", "\v", "\f", "\x1c", "\x1e", "\x85", "\u2028"]
_GAPS += ["\u2029", "\u00a0", "\u3000", "\u1680", "\u200b", "\x1f", "", "\n\n\n"]

texts = st.lists(st.tuples(st.sampled_from(_WORDS), st.sampled_from(_GAPS)), max_size=60).map(
    lambda parts: "".join(word + gap for word, gap in parts)
) | st.text(max_size=80)
"""Words, marks and gaps of many kinds, often repeated; and any text."""

HOSTILE = {
    "empty": "",
    "one space": " ",
    "white space": " \n\t\u3000\u2028 \r\n",
    "line feeds": "\n\n\n",
    "one character": "x",
    "one word often": "word " * 5000,
    "one word": "x" * 70_000,
    "one line often": "the same line\n" * 3000,
    "no spaces": "".join(chr(97 + number * 7 % 26) for number in range(30_000)),
    "punctuation": "!?.,;" * 2000,
    "chinese": "他们在北京大学学习中文已经三年了，每天都去图书馆看书。" * 40,
    "thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ " * 30,
    "marks alone": "\u0301\u0302" * 400,
    "composed and not": "é e\u0301 " * 200,
    "nul": "a\0b \0 \0\0\n" * 100,
    "crlf": "One line.\r\nAnother line.\r\n\r\n" * 40,
    "all breaks": "a\nb\vc\fd\x1ce\x1df\x1eg\x85h\u2028i\u2029j\r\nk\rl" * 20,
    "outside the plane": "𝒳𝒴 😀\u200d😀 " * 100,
    "private and unassigned": "\ue000 \U000f0000 \U0010ffff \u0378 " * 50,
    "joined alike": "ab c d e f a bc d e f ab c d e f " * 3,
}
