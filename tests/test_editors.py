"""Editors against plain Python, and cases worked out by hand."""

from __future__ import annotations

import ipaddress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataeff.editors import C4Lines, Edited, MaskPersonalData
from dataeff.errors import PlanError
from dataeff.kernel.personal import SPECIAL
from tests.oracle import c4, personal
from tests.oracle.texts import HOSTILE, texts

_PIECES = ["Terms of Use", "javascript", "JavaScript is on", "use cooKies", "We use of Cookies.", "privacy policy"]
_PIECES += ["cookie policy.", "uses cookies!", "lorem Ipsum", "{", "[12]", "[]", "[edit]", "[citation needed]", "[१२]"]
_PIECES += ["[12", "[edit", "[", "]", "word", "ends.", "ends...", 'said "yes"', "x" * 30, "字" * 12, "\n", "\r\n", "\v"]
_PIECES += [" ", " ", "\u3000", "\u2028", "İ", "K", "⁂", "use coo"]
lines = st.lists(st.sampled_from(_PIECES), max_size=25).map(" ".join) | st.lists(st.sampled_from(_PIECES)).map("".join)


def edited(editor, *rows: str) -> tuple[list[str], dict[str, list[float]]]:
    result: Edited = editor.edit(pa.array(rows, pa.large_string()))
    result.text.validate(full=True)
    return result.text.to_pylist(), {name: counts.tolist() for name, counts in result.removed.items()}


def check_c4(rows: list[str], **options: int) -> None:
    for require_end in (True, False):
        kept, removed = edited(C4Lines(require_terminal_punctuation=require_end, **options), *rows)  # type: ignore[arg-type]
        for number, row in enumerate(rows):
            expected, counts = c4.keep_lines(row, require_end, **options)
            assert kept[number] == expected
            counts["bytes"] = len(row.encode()) - len(expected.encode())
            assert {name: values[number] for name, values in removed.items()} == {
                name: counts[name] for name in removed
            }


@settings(deadline=None, max_examples=400)
@given(st.lists(lines | texts, max_size=3))
def test_c4_keeps_the_lines_that_plain_python_keeps(rows):
    check_c4(rows)
    check_c4(rows, min_words=1, max_word_chars=10)


def test_c4_on_hostile_texts_is_plain_python():
    check_c4(list(HOSTILE.values()))


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["xquad", "udhr2", "python_doc", "spdx"])
def test_c4_on_real_text_is_plain_python(corpora, name):
    text = pq.read_table(corpora / f"{name}.parquet", columns=["text"]).column("text").to_pylist()
    check_c4([row[:20_000] for row in text[:: max(1, len(text) // 60)]])


def test_a_line_that_condemns_its_document_stays_for_the_filter():
    stays = "You need javascript for lorem ipsum here.\nOur privacy policy is {empty} today."
    kept, removed = edited(C4Lines(), stays + "\nBoth use cookies in javascript.")
    assert kept == [stays]
    assert removed["javascript"] == [1.0]


@pytest.mark.parametrize("options", [{"min_words": -1}, {"max_word_chars": 0}])
def test_c4_options_that_cannot_work_say_what_they_must_be(options):
    with pytest.raises(PlanError, match="must be"):
        C4Lines(**options)


_PARTS = [
    "foo",
    "bar.baz",
    "@",
    "@",
    ".",
    ".",
    "-",
    "com",
    "example",
    "co.uk",
    "8.8.8.8",
    "1.2.3",
    "255",
    "256",
    "01",
    "0",
]
_PARTS += [
    "10.0.0.1",
    "v",
    "version ",
    "OID: ",
    "section",
    " ",
    " ",
    "=",
    ">=",
    "==",
    "~",
    "+",
    "_",
    "%",
    "/",
    "2x",
    "png",
]
_PARTS += ["xn--p1ai", "bücher", "。", "谢谢", "<", ">", ",", "x" * 65, "a@b.io", "1.1.1.1", "\n", "é", "#", "("]
addresses = st.lists(st.sampled_from(_PARTS), max_size=14).map("".join)


@settings(deadline=None, max_examples=1000)
@given(st.lists(addresses | texts, max_size=3))
def test_personal_data_is_masked_as_plain_python_does(rows):
    masked, removed = edited(MaskPersonalData(), *rows)
    for number, row in enumerate(rows):
        expected = personal.mask(row, "<email>", "<ip>")
        assert (masked[number], removed["emails"][number], removed["ipv4_addresses"][number]) == expected


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["linux_doc", "ubuntu_irc", "cpython_stdlib", "manpages"])
def test_personal_data_in_real_text_is_masked_as_plain_python_does(corpora, name):
    text = pq.read_table(corpora / f"{name}.parquet", columns=["text"]).column("text").to_pylist()
    rows = [row[:8000] for row in text[:: max(1, len(text) // 150)]]
    masked, _ = edited(MaskPersonalData(), *rows)
    assert masked == [personal.mask(row, "<email>", "<ip>")[0] for row in rows]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Write to jane.doe+news@mail.example.co.uk.", "Write to <email>."),
        ("邮箱jane@example.com谢谢", "邮箱<email>谢谢"),
        ("<jane@bücher.example>, root@localhost", "<<email>>, root@localhost"),
        ("![](icon@2x.png) @decorator.name a@b", "![](icon@2x.png) @decorator.name a@b"),
        ("ping 8.8.8.8, then http://8.8.4.4:80/ or 9.9.9.9/32.", "ping <ip>, then http://<ip>:80/ or <ip>/32."),
        ("8.8.8.8-8.8.4.4", "<ip>-<ip>"),
        ("10.1.2.3 192.168.0.1 127.0.0.1 224.0.0.1 192.0.2.7", "10.1.2.3 192.168.0.1 127.0.0.1 224.0.0.1 192.0.2.7"),
        ("v8.1.2.3 version 8.1.2.3 lib-8.1.2.3.tar >=8.1.2.3", "v8.1.2.3 version 8.1.2.3 lib-8.1.2.3.tar >=8.1.2.3"),
        ("1.3.6.1.4.1 999.1.1.1 8.8.8 08.8.8.8 8.8.8.8-1", "1.3.6.1.4.1 999.1.1.1 8.8.8 08.8.8.8 8.8.8.8-1"),
    ],
)
def test_what_is_personal_data_and_what_only_looks_like_it(text, expected):
    assert edited(MaskPersonalData(), text)[0] == [expected]


def test_placeholders_may_be_anything_and_only_rows_with_addresses_change():
    rows = ["nothing here", "a@b.io and c@d.io", "", "8.8.8.8"]
    masked, removed = edited(MaskPersonalData(email="", ipv4="«адрес»"), *rows)
    assert masked == ["nothing here", " and ", "", "«адрес»"]
    assert removed == {"emails": [0, 2, 0, 0], "ipv4_addresses": [0, 0, 0, 1]}
    untouched = pa.array(["none at all"], pa.large_string())
    assert MaskPersonalData().edit(untouched).text is untouched


def test_addresses_are_public_where_python_says_so():
    edges = [int(address) + step for network in map(ipaddress.IPv4Network, SPECIAL) for address in
             (network[0], network[-1]) for step in (-1, 0, 1)]  # fmt: skip
    numbers = [number for number in edges if 0 <= number < 2**32]
    numbers += np.random.default_rng(3).integers(0, 2**32, 2000).tolist()
    rows = [str(ipaddress.IPv4Address(number)) for number in numbers]
    assert edited(MaskPersonalData(), *rows)[0] == [personal.mask(row, "", "<ip>")[0] for row in rows]


@pytest.mark.parametrize("text", ["a-" * 200_000, "a@" * 200_000, "1." * 200_000, "x@" + "a." * 200_000, "@" * 400_000])
def test_text_that_makes_regular_expressions_slow_is_left_as_it_is(text):
    assert edited(MaskPersonalData(), text)[0] == [text]


def test_a_placeholder_that_is_no_text_says_what_it_must_be():
    with pytest.raises(PlanError, match="must be"):
        MaskPersonalData(email="\ud800")


@pytest.mark.parametrize("editor", [C4Lines(), MaskPersonalData()])
def test_a_slice_and_no_rows_at_all_are_edited(editor):
    rows = pa.array(["x", "Write to a@b.io today.", "y"], pa.large_string())
    assert len(editor.edit(rows.slice(0, 0)).text) == 0
    assert editor.edit(rows.slice(1, 1)).text == editor.edit(rows).text.slice(1, 1)
