"""`dataeff inspect`, as it is typed and as it is printed."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from dataeff.commands.inspect import inspect
from dataeff.errors import FormatError, PlanError
from dataeff.filters import Bounds
from dataeff.reports.finished import open_finished
from dataeff.reports.funnel import print_funnel, print_mixture, print_summary
from dataeff.reports.inspection import Question
from tests import finished_corpus
from tests.finished_corpus import HOSTILE, Document

RULES = {"length.words": Bounds(3, math.inf), "gopher_repetition.duplicate_line_character_fraction": Bounds(high=0.2)}
REPETITION = "gopher_repetition.duplicate_line_character_fraction"

app = typer.Typer()
app.command()(inspect)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    long = "one two three four five six seven eight nine ten eleven twelve"
    documents = [
        Document(id="short", text="Hi [bold]you[/bold]", source="web", signals={"length.words": 2.0}),
        Document(id="again", text="a\na\na", source="web", signals={"length.words": 3.0, REPETITION: 0.75}),
        Document(id="first", text=long, source="books", signals={"length.words": 12.0, REPETITION: 0.1}),
        Document(id=HOSTILE, text=HOSTILE * 3, source="[red]web[/red]", signals={"length.words": 1.0}),
        Document(id="second", text=long.replace("nine", "9"), source="web", copy_of=2, jaccard=0.875),
    ]
    reject = {"file": "data/in.jsonl.gz", "position": 17, "reason": "broken JSON", "detail": HOSTILE}
    tokens = {"books": 1200, "web": 300}
    out = finished_corpus.write(
        tmp_path_factory.mktemp("inspect") / "out",
        [documents],
        RULES,
        [reject],
        mixture=finished_corpus.mixture(tokens, unreachable=50),
        unit="tokens",
    )
    finished_corpus.log(out, ("documents", 2.0, 3600.0, 10))
    return out


def test_without_a_request_it_shows_funnel_mixture_clusters_and_cost(corpus: Path) -> None:
    shown = run(corpus)
    assert "1 of 5 documents kept (20.0 %)" in shown
    rows = [line.split() for line in shown.splitlines()]
    assert ["length.words", "−2", "40.0", "%"] in [row[:4] for row in rows]
    assert [REPETITION, "−1"] in [row[:2] for row in rows]
    assert ["duplicates", "−1"] in [row[:2] for row in rows]
    assert ["web", "3", "2", "1", "0", "0", "%"] in [row[:7] for row in rows]
    assert ["web", "50.0", "%", "20.0", "%", "1.00", "300", "at", "its", "cap"] in rows
    assert "50 of 1,550 tokens cannot be reached" in shown
    assert "2 documents, 1 kept  (books 1, web 1)" in shown
    assert "one two three four" in shown
    assert "1 CPU-hours" in shown
    assert "broken JSON 1" in shown


def test_a_rule_shows_what_it_dropped_with_the_value_and_what_passes(corpus: Path) -> None:
    shown = run(corpus, "--rule", REPETITION, "--rule", "length.words")
    assert f"dropped by {REPETITION}, which passes at most 0.2" in shown
    assert "0.75  again  (web, 5 B)" in shown
    assert "which passes at least 3" in shown
    assert "2  short" in shown


def test_a_duplicate_is_shown_with_the_kept_document_and_the_words_that_differ(corpus: Path) -> None:
    shown = run(corpus, "--duplicates")
    assert "Jaccard 0.875, containment 0.875" in shown
    assert "removed second  (web)" in shown
    assert "kept    first  (books)" in shown
    assert "[-9-]" in shown
    assert "{+nine+}" in shown


def test_rejected_rows_are_shown_with_file_row_and_reason(corpus: Path) -> None:
    assert "broken JSON  data/in.jsonl.gz:17" in run(corpus, "--rejected")


def test_one_source_can_be_looked_at_alone(corpus: Path) -> None:
    shown = run(corpus, "--source", "web", "--rule", "length.words")
    assert "0 of 3 documents kept" in shown
    assert "short" in shown
    assert "[red]web" not in shown


def test_json_holds_the_same_and_open_bounds_are_null(corpus: Path) -> None:
    shown = run(corpus, "--json", "--rule", REPETITION, "--duplicates", "--rejected")
    assert shown.isascii()
    content = json.loads(shown)
    assert content["rules"][REPETITION] == {"low": None, "high": 0.2}
    (sample,) = content["dropped_samples"][REPETITION]
    assert (sample["id"], sample["value"], sample["text"]) == ("again", 0.75, "a\na\na")
    (pair,) = content["duplicate_samples"]
    assert (pair["removed_id"], pair["survivor_id"], pair["jaccard"]) == ("second", "first", 0.875)
    (reject,) = content["rejected_samples"]
    assert reject["detail"] == HOSTILE
    assert sum(source["read"]["documents"] for source in content["sources"]) == 5
    assert "clusters" in json.loads(run(corpus, "--json"))


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_no_control_character_of_a_document_reaches_the_terminal(corpus: Path, extra: list[str]) -> None:
    for request in ([], ["--rule", "length.words"], ["--duplicates"], ["--rejected"]):
        shown = run(corpus, *request, *extra)
        assert not [char for char in shown if ord(char) < 32 and char != "\n"]
        assert not set(shown) & {*map(chr, range(0x7F, 0xA0)), "\u202e", "\u2028"}


def test_markup_in_a_document_is_text(corpus: Path) -> None:
    assert "Hi [bold]you[/bold]" in run(corpus, "--rule", "length.words")
    assert "[red]web[/red]" in run(corpus)


def test_eighty_columns_hold_every_line_and_every_name(corpus: Path) -> None:
    finished = open_finished(corpus)
    for width in (60, 80):
        screen = io.StringIO()
        console = Console(file=screen, width=width, force_terminal=False, highlight=False)
        print_funnel(console, finished, finished.sources)
        print_mixture(console, finished, finished.sources)
        lines = screen.getvalue().splitlines()
        assert max(map(len, lines)) <= width
        assert "…" not in screen.getvalue()


def test_large_numbers_fit_eighty_columns(tmp_path: Path) -> None:
    amount = {"documents": 9_999_999, "bytes": 987_654_321_000, "tokens": 999_999_999_999}
    funnel = {
        "read": dict.fromkeys(("a-rather-long-source-name-of-a-crawl", "b"), amount),
        "kept": dict.fromkeys(("a-rather-long-source-name-of-a-crawl", "b"), amount),
        "duplicates": dict.fromkeys(("a-rather-long-source-name-of-a-crawl", "b"), amount),
        "dropped": {},
        "rejected": {},
        "newlines": {},
        "edited": {},
    }
    finished = open_finished(finished_corpus.write(tmp_path / "out", [[Document(id="a", text="b")]], funnel=funnel))
    screen = io.StringIO()
    print_funnel(Console(file=screen, width=80, highlight=False), finished, finished.sources)
    assert max(map(len, screen.getvalue().splitlines())) <= 80
    assert "9,999,999" in screen.getvalue()
    assert "1.00 T" in screen.getvalue()


def test_the_summary_at_the_end_of_a_run_is_the_funnel_and_the_mixture(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_summary(corpus)
    shown = capsys.readouterr().out
    assert "1 of 5 documents kept" in shown
    assert "at its cap" in shown
    assert "\x1b" not in shown


def test_what_cannot_be_shown_is_an_error_that_says_why(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"'words' is not a rule of this corpus; its rules are length\.words"):
        run(corpus, "--rule", "words")
    with pytest.raises(PlanError, match="no source of this corpus matches 'news'"):
        run(corpus, "--source", "news")
    with pytest.raises(FormatError, match="was not made by"):
        run(tmp_path)
    with pytest.raises(PlanError, match=r"samples is 0; it must be 1 or more"):
        Question(samples=0)


def test_a_corpus_without_filters_says_so(tmp_path: Path) -> None:
    out = finished_corpus.write(tmp_path / "out", [[Document(id="a", text="b")]])
    with pytest.raises(PlanError, match="its recipe has no Filter"):
        run(out, "--rule", "length.words")
    shown = run(out, "--duplicates", "--rejected")
    assert shown.count("nothing") == 2


def test_a_damaged_table_is_an_error_that_names_it(tmp_path: Path) -> None:
    out = finished_corpus.write(tmp_path / "out", [[Document(id="a", text="b")]], {"length.words": Bounds(1)})
    (out / "removals.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(FormatError, match=r"removals\.parquet cannot be read"):
        run(out, "--duplicates")
    (out / "verdicts" / "part-000000.npy").write_bytes(b"")
    with pytest.raises(FormatError, match=r"part-000000\.npy cannot be read"):
        run(out, "--rule", "length.words")
