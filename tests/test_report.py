"""The numbers, words and page that show a finished corpus."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import math
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataeff import Dedup, Filter, Mix, Pipeline, Read, Shard, Tokenize
from dataeff.engine import Engine
from dataeff.errors import FormatError, PlanError
from dataeff.filters import Bounds, GopherQuality, Length
from dataeff.formats import ArrowTokens
from dataeff.mixers import Natural
from dataeff.reports import clusters, quantities
from dataeff.reports.accounting import Amount, by_reason, cost, fates, mixture, total, with_others
from dataeff.reports.clusters import cluster_facts, overlap
from dataeff.reports.differences import difference
from dataeff.reports.finished import open_finished
from dataeff.reports.page import write_report
from dataeff.reports.samples import dropped_by, duplicates, rejected
from dataeff.reports.signals import distributions
from dataeff.reports.stage_text import stage_text
from dataeff.reports.visible import excerpt, one_line, visible
from dataeff.tokenizers import Utf8Bytes
from tests import finished_corpus, making
from tests.finished_corpus import HOSTILE, Document

RULES = {
    "zeta.words": Bounds(5, 1000),
    "alpha.ratio": Bounds(-math.inf, 0.5),
    "alpha.lines": Bounds(2, math.inf),
}


@pytest.fixture(scope="module")
def documents() -> list[list[Document]]:
    rng = np.random.default_rng(0)
    made: list[list[Document]] = [[], [], []]
    for number in range(300):
        signals = {
            "zeta.words": float(np.round(rng.lognormal(4, 2))),
            "alpha.ratio": float(rng.random() ** 2),
            "alpha.lines": float(rng.integers(0, 9)),
        }
        if number % 10 == 0:
            del signals["alpha.ratio"]
        source = ("web", "books", "<b>code</b>")[number % 3]
        text = " ".join(f"word{number + place}" for place in range(30))
        made[number % 3].append(Document(id=f"doc-{number}", text=text, source=source, signals=signals))
    kept = [place for place, document in enumerate(_all(made)) if _passes(document)]
    made[2] += [
        Document(
            id=f"copy-{number}",
            text=_all(made)[kept[number % 7]].text.replace("word", "Word", 1 + number % 2),
            source=("web", "forum")[number % 2],
            signals={"zeta.words": 30.0, "alpha.lines": 3.0},
            copy_of=kept[number % 7],
            jaccard=1.0 - number / 100,
        )
        for number in range(25)
    ]
    return made


def _all(parts: list[list[Document]]) -> list[Document]:
    return [document for documents in parts for document in documents]


def _passes(document: Document) -> bool:
    return all(
        not (document.signals.get(rule, math.nan) < b.low or document.signals.get(rule, math.nan) > b.high)
        for rule, b in RULES.items()
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, documents: list[list[Document]]) -> Path:
    reject = {"file": "in.jsonl", "position": 3, "reason": "broken JSON", "detail": HOSTILE}
    return finished_corpus.write(tmp_path_factory.mktemp("corpus") / "out", documents, RULES, [reject])


def test_every_document_and_byte_of_a_source_has_one_fate(corpus: Path) -> None:
    found = fates(open_finished(corpus).content)
    assert [fate.source for fate in found] == sorted(
        (fate.source for fate in found), key=lambda name: -next(f.read.num_bytes for f in found if f.source == name)
    )
    for fate in [*found, total(found)]:
        assert fate.filtered + fate.duplicates + fate.kept == fate.read
    assert total(found).read.documents == 325


def test_rules_stand_in_the_order_of_judgement_though_a_manifest_sorts_them(corpus: Path) -> None:
    finished = open_finished(corpus)
    assert list(finished.content["bounds"]) == sorted(RULES)
    assert finished.bounds == RULES
    assert list(finished.bounds) == list(RULES)
    reasons = [reason for reason, _ in by_reason(total(fates(finished.content)), finished.bounds)]
    assert reasons == [*RULES, "duplicates"]


def test_small_sources_are_shown_as_one_and_nothing_is_lost(corpus: Path) -> None:
    found = fates(open_finished(corpus).content)
    cut = with_others(found, 2)
    assert [fate.source for fate in cut] == [found[0].source, "3 others"]
    assert total(cut).read == total(found).read
    assert total(cut).dropped == total(found).dropped
    assert with_others(found, 4) == found


def test_a_distribution_counts_every_judged_document_and_those_outside_exactly(
    corpus: Path, documents: list[list[Document]]
) -> None:
    everything = _all(documents)
    for shown in distributions(open_finished(corpus)):
        values = np.array([document.signals.get(shown.rule, math.nan) for document in everything])
        values = values[~np.isnan(values)]
        assert shown.judged == len(values) == shown.all_documents.sum()
        assert shown.below == (values < RULES[shown.rule].low).sum()
        assert shown.above == (values > RULES[shown.rule].high).sum()
        assert (shown.low, shown.median, shown.high) == (values.min(), np.median(values), values.max())
        inside = np.histogram(np.clip(values, shown.edges[0], np.nextafter(shown.edges[-1], 0)), shown.edges)[0]
        np.testing.assert_array_equal(shown.all_documents, inside)
        assert (shown.kept_documents <= shown.all_documents).all()


def test_bins_suit_the_signal_and_cuts_stand_where_documents_change_sides(corpus: Path) -> None:
    words, ratio, lines = distributions(open_finished(corpus))
    assert (words.logarithmic, words.whole) == (True, False)
    assert (ratio.logarithmic, ratio.whole) == (False, False)
    assert (lines.logarithmic, lines.whole) == (False, True)
    assert lines.cuts == (1.5, None)
    assert ratio.cuts == (None, 0.5)
    assert lines.all_documents[lines.edges[:-1] < 1.5].sum() == lines.below


@pytest.mark.parametrize(
    "values",
    [[0.0] * 5, [3.5], [-2.0, -1.0], [1e300, -1e300, 0.0], [math.inf, 1.0], [1e-300, 2e-300], [0.1 + 0.2, 0.3] * 3],
)
def test_odd_signals_have_a_distribution(tmp_path: Path, values: list[float]) -> None:
    documents = [Document(id=str(n), text="a", signals={"odd.signal": value}) for n, value in enumerate(values)]
    out = finished_corpus.write(tmp_path / "out", [documents], {"odd.signal": Bounds(-5, 1e9)})
    (shown,) = distributions(open_finished(out))
    assert shown.all_documents.sum() == len(values)
    assert np.isfinite(shown.edges).all()
    assert (np.diff(shown.edges) > 0).all()
    write_report(out)


def test_a_signal_that_judged_nothing_has_no_distribution(tmp_path: Path) -> None:
    out = finished_corpus.write(tmp_path / "out", [[Document(id="a", text="a")], []], {"odd.signal": Bounds(1, 2)})
    assert distributions(open_finished(out)) == []
    write_report(out)


def test_zeros_have_a_bin_of_their_own_on_a_logarithmic_axis_and_a_threshold_of_zero_is_beside_it(
    tmp_path: Path,
) -> None:
    values = [0.0] * 40 + [float(2**power) for power in range(12)]
    documents = [Document(id=str(n), text="a", signals={"c4.brackets": value}) for n, value in enumerate(values)]
    out = finished_corpus.write(tmp_path / "out", [documents], {"c4.brackets": Bounds(high=0)})
    (shown,) = distributions(open_finished(out))
    assert shown.logarithmic
    assert shown.all_documents[0] == 40
    assert shown.kept_documents.sum() == shown.kept_documents[0] == 40
    assert shown.cuts == (None, shown.edges[1])
    assert 0 < shown.edges[1] < 1


@pytest.mark.parametrize("rows_in_memory", [1 << 23, 5])
def test_clusters_are_counted_right_in_one_pass_or_many(
    corpus: Path, rows_in_memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "_ROWS_IN_MEMORY", rows_in_memory)
    rows = pq.read_table(corpus / "clusters.parquet").to_pylist()
    sizes = Counter(row["cluster"] for row in rows)
    found = cluster_facts(corpus, 3)
    assert found.num_clusters == len(sizes) == sum(number for _, number in found.by_size)
    expected = sorted(sizes, key=lambda cluster: (-sizes[cluster], cluster))[:3]
    assert [(entry.cluster, entry.size) for entry in found.largest] == [(each, sizes[each]) for each in expected]
    for entry in found.largest:
        mine = [row for row in rows if row["cluster"] == entry.cluster]
        assert dict(entry.sources) == Counter(row["source"] for row in mine)
        assert entry.kept == sum(row["kept"] for row in mine) == 1
        assert entry.survivor_id == next(row["id"] for row in mine if row["kept"])


def test_overlap_counts_removals_by_both_sources(corpus: Path) -> None:
    rows = pq.read_table(corpus / "removals.parquet").to_pylist()
    assert overlap(corpus) == Counter((row["removed_source"], row["survivor_source"]) for row in rows)


def test_samples_of_a_rule_are_documents_that_it_dropped_with_the_value_that_decided(
    corpus: Path, documents: list[list[Document]]
) -> None:
    finished = open_finished(corpus)
    by_id = {document.id: document for document in _all(documents)}
    for rule, bounds in RULES.items():
        samples = dropped_by(finished, rule, finished.sources, 6)
        assert len(samples) == 6
        for sample in samples:
            assert sample.text == by_id[sample.id].text
            assert sample.value == by_id[sample.id].signals[rule]
            assert not bounds.low <= sample.value <= bounds.high
    only = dropped_by(finished, "zeta.words", ["books"], 100)
    assert {sample.source for sample in only} == {"books"}
    assert len(only) == finished.content["funnel"]["dropped"]["books"]["zeta.words"]["documents"]


def test_a_seed_chooses_samples_and_another_seed_others(corpus: Path) -> None:
    finished = open_finished(corpus)
    chosen = [
        [sample.id for sample in dropped_by(finished, "zeta.words", finished.sources, 5, seed)] for seed in (0, 0, 1)
    ]
    assert chosen[0] == chosen[1] != chosen[2]


def test_samples_of_duplicates_show_both_documents(corpus: Path, documents: list[list[Document]]) -> None:
    finished = open_finished(corpus)
    everything = _all(documents)
    by_id = {document.id: document for document in everything}
    samples = duplicates(finished, finished.sources, 25)
    assert len(samples) == 25
    for sample in samples:
        removed = by_id[sample.removed_id]
        assert removed.copy_of is not None
        assert sample.survivor_id == everything[removed.copy_of].id
        assert any(piece.differs for piece in sample.difference.removed)
    close = duplicates(finished, finished.sources, 25, jaccard=(0.9, 0.95))
    assert {sample.jaccard for sample in close} == {1 - number / 100 for number in range(5, 11)}
    assert {sample.removed_source for sample in duplicates(finished, ["forum"], 25)} == {"forum"}


def test_rejected_rows_are_sampled_with_their_place(corpus: Path) -> None:
    (found,) = rejected(open_finished(corpus), 5)
    assert (found.file, found.position, found.reason) == ("in.jsonl", 3, "broken JSON")


def test_an_unknown_rule_or_source_is_an_error_that_lists_what_there_is(corpus: Path) -> None:
    finished = open_finished(corpus)
    with pytest.raises(PlanError, match=r"zeta\.words, alpha\.ratio, alpha\.lines"):
        finished.rule_number("words")
    with pytest.raises(PlanError, match="books, forum, web"):
        finished.matching("nowhere*")
    assert finished.matching("*b*") == ["<b>code</b>", "books", "web"]


def test_a_directory_that_is_not_a_finished_corpus_is_named_as_what_it_is(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="does not exist"):
        open_finished(tmp_path / "nowhere")
    with pytest.raises(FormatError, match="was not made by"):
        open_finished(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(FormatError, match="is a file"):
        open_finished(tmp_path / "file")
    (tmp_path / ".dataeff").write_text("")
    with pytest.raises(FormatError, match="has not ended"):
        open_finished(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"version": 999}))
    with pytest.raises(FormatError, match="version 999"):
        open_finished(tmp_path)


@given(st.text(max_size=200))
def test_a_difference_shows_all_of_equal_short_texts(text: str) -> None:
    shown = difference(text, f"  {text}\n")
    assert shown.equal == (shown.removed == shown.survivor)
    assert not any(piece.differs for piece in shown.removed) or not shown.equal


@given(
    st.lists(st.sampled_from(["a", "b", "c", "dd"]), max_size=30),
    st.lists(st.sampled_from(["a", "b", "c"]), max_size=30),
)
def test_what_is_not_marked_as_different_is_common_to_both_sides(left: list[str], right: list[str]) -> None:
    shown = difference(" ".join(left), " ".join(right))
    sides = [
        "".join(piece.text for piece in pieces if not piece.differs).replace(" ", "").replace("…", "")
        for pieces in (shown.removed, shown.survivor)
    ]
    assert sides[0] == sides[1]
    assert shown.equal == (left == right)


def test_a_difference_far_inside_long_texts_is_found_and_short() -> None:
    words = [f"word{number}" for number in range(5000)]
    shown = difference(" ".join(words), " ".join([*words[:4000], "new", *words[4001:]]))
    assert [piece.text for piece in shown.removed if piece.differs] == ["word4000"]
    assert [piece.text for piece in shown.survivor if piece.differs] == ["new"]
    assert shown.removed[0].text == "… "
    assert sum(len(piece.text) for piece in shown.removed) < 2000


def test_what_an_insertion_moves_out_of_the_window_is_not_marked() -> None:
    words = [f"word{number}" for number in range(2000)]
    shown = difference(" ".join(words), " ".join(["new", "words", *words]))
    assert not any(piece.differs for piece in shown.removed)
    assert [piece.text for piece in shown.survivor if piece.differs] == ["new words "]
    assert shown.removed[-1].text.endswith("…")


def test_a_difference_in_text_without_spaces_is_one_character() -> None:
    shown = difference("去年今日此门中，人面桃花相映红", "去年今日此門中，人面桃花相映红")
    assert [piece.text for piece in shown.removed if piece.differs] == ["门"]


@given(st.text(alphabet=st.characters(), max_size=300))
def test_visible_text_steers_nothing(text: str) -> None:
    shown = visible(text)
    assert not [char for char in shown if unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\t"]
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u2028\u2029")
    assert visible(shown) == shown
    shown.encode()


def test_an_escape_sequence_becomes_one_mark() -> None:
    assert visible("a\x1b[1;31mb\x1b]0;title\x07c\x9b2Jd\x1bce\x1b") == "a␛b␛c␛d␛e␛"
    assert one_line("a\n  b\tc" * 10, 9) == "a b ca b…"
    assert excerpt("x" * 30, 10) == "x" * 9 + "…"


def test_numbers_read_as_people_write_them() -> None:
    assert [quantities.count(n) for n in (0, 9_999_999, 12_345_678, 999_999_999, 1.5e12)] == [
        "0",
        "9,999,999",
        "12.3 M",
        "1.00 B",
        "1.50 T",
    ]
    assert [quantities.size(n) for n in (0, 999, 1500, 123_456_789, 2.5e12)] == [
        "0 B",
        "999 B",
        "1.50 kB",
        "123 MB",
        "2.50 TB",
    ]
    shares = [quantities.share(*pair) for pair in ((0, 5), (1, 1e6), (1, 3), (999_999, 1e6), (5, 5), (0, 0))]
    assert shares == ["0 %", "<0.1 %", "33.3 %", ">99.9 %", "100 %", "–"]
    assert [quantities.short(n) for n in (999_999, 7_262_749, 12_345_678)] == ["999,999", "7.26 M", "12.3 M"]
    assert [quantities.cpu_hours(s) for s in (0, 0.1, 5, 7200)] == ["0.0000", "<0.0001", "0.0014", "2.0000"]
    assert [quantities.duration(s) for s in (0.01, 0.5, 59.4, 61, 7265)] == [
        "<0.1 s",
        "0.5 s",
        "59 s",
        "1 min 01 s",
        "2 h 01 min",
    ]
    assert [quantities.value(v) for v in (50.0, -0.12345, math.inf, math.nan, 1e5)] == [
        "50",
        "−0.1235",
        "∞",
        "not judged",
        "100,000",
    ]
    passes = [quantities.passes(*b) for b in ((1, math.inf), (-math.inf, 0.3), (1, 2), (-math.inf, math.inf), (0, 0))]
    assert passes == ["at least 1", "at most 0.3", "1 to 2", "anything", "exactly 0"]


def test_cost_sums_the_runs_by_step_and_passes_over_a_torn_line(tmp_path: Path) -> None:
    assert cost(tmp_path) is None
    finished_corpus.log(tmp_path, ("documents", 2, 3, 100), ("dedup/edges", 1, 1, 0))
    finished_corpus.log(tmp_path, ("dedup/small-star-1", 1, 0.5, 0), run="b")
    with (tmp_path / "run_log.jsonl").open("a") as log:
        log.write('{"run": "b", "st')
    took = cost(tmp_path)
    assert took is not None
    assert (took.runs, took.wall_s, took.cpu_s) == (2, 4, 4.5)
    assert [(step.step, step.tasks, step.wall_s) for step in took.steps] == [("documents", 1, 2), ("dedup", 2, 2)]


def test_a_stage_is_told_without_what_may_be_secret() -> None:
    stage = {"class": "Read", "inputs": ["s3://a/*"], "storage_options": {"key": "SECRET"}, "source": None}
    assert stage_text(stage) == "Read(inputs=('s3://a/*',), source=None)"


class _Elements(html.parser.HTMLParser):
    """Collects tags, attributes and the contents of scripts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.scripts: list[str] = []
        self.policy = ""
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")
        if dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs)["content"] or ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def hostile_corpus(out: Path) -> Path:
    """Every place where input reaches the page holds the hostile text."""
    rule = "evil<script>.rule"
    sources = ["<script>window.HACKED=3</script>", "$$x$$", "[red]r[/]"]
    long = HOSTILE + " some more words" * 60
    documents = [
        Document(id=HOSTILE + str(number), text=long, source=sources[number % 3], signals={rule: float(number % 5)})
        for number in range(30)
    ]
    copies = [
        Document(
            id=f"{HOSTILE} copy {number}",
            text=long + HOSTILE,
            source=sources[number],
            copy_of=6,
            jaccard=0.85 + number / 20,
        )
        for number in range(3)
    ]
    reject = {"file": HOSTILE, "position": 1, "reason": HOSTILE, "detail": HOSTILE}
    shard = {"file": HOSTILE, "rows": 1, "documents": 1, "tokens": 9, "padding_tokens": 1, "num_bytes": 9}
    return finished_corpus.write(
        out,
        [documents, copies],
        {rule: Bounds(1, 3)},
        [reject],
        mixture=finished_corpus.mixture({source: 100 + len(source) for source in sources}, unreachable=5),
        recipe={"name": HOSTILE, "options": {HOSTILE: HOSTILE}},
        stages=[{"class": "Read", "inputs": [HOSTILE]}, {"class": "Dedup"}],
        shards={HOSTILE: [shard]},
        unit="tokens",
    )


def test_no_text_of_the_corpus_becomes_part_of_the_page(tmp_path: Path) -> None:
    out = hostile_corpus(tmp_path / "out")
    plain = finished_corpus.write(tmp_path / "plain", [[Document(id="a", text="b")]])
    finished_corpus.log(out, ("documents", 1, 1, 1), (HOSTILE, 1, 1, 1))
    pages = [_Elements(), _Elements()]
    raw = [write_report(directory).read_text(encoding="utf-8") for directory in (out, plain)]
    for elements, text in zip(pages, raw, strict=True):
        elements.feed(text)
    assert pages[0].tags["script"] == pages[1].tags["script"] == 3
    assert pages[0].tags["img"] == 0
    assert not [name for name in pages[0].attributes if name.startswith("on")]
    assert "<script>window.HACKED" not in raw[0]
    controls = set("\x00\x1b\x07\x9b\x7f\u202e\u2028")
    assert set(raw[0]) & controls == set(raw[1]) & controls
    assert "{{ 7*7 }}" in raw[0]


def test_the_page_lets_only_its_own_scripts_run_and_fetches_nothing(corpus: Path) -> None:
    elements = _Elements()
    elements.feed(write_report(corpus).read_text(encoding="utf-8"))
    allowed = re.findall(r"'sha256-([^']+)'", elements.policy)
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in elements.scripts[1:]]
    assert allowed == hashes
    assert "default-src 'none'" in elements.policy
    assert "unsafe-eval" not in elements.policy
    assert not elements.tags["link"] + elements.tags["iframe"] + elements.tags["object"]


def test_the_page_is_the_same_in_every_process(corpus: Path) -> None:
    first = write_report(corpus).read_bytes()
    assert write_report(corpus).read_bytes() == first
    program = (
        "from pathlib import Path; import sys; from dataeff.reports.page import write_report as w; w(Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", program, str(corpus)], check=True)
    assert (corpus / "report.html").read_bytes() == first


def test_the_page_stays_small_however_many_sources_rules_and_characters_there_are(tmp_path: Path) -> None:
    rules = {f"filter{number}.signal": Bounds(0.2, 0.9) for number in range(90)}
    rng = np.random.default_rng(1)
    documents = [
        Document(
            id="i" * 5000 + str(number),
            text="t" * 20_000 + str(number),
            source="s" * 500 + str(number % 120),
            signals=dict(zip(rules, rng.random(90).tolist(), strict=True)),
            copy_of=None,
        )
        for number in range(240)
    ]
    out = finished_corpus.write(tmp_path / "out", [documents], rules)
    (smallest,) = [
        write_report(finished_corpus.write(tmp_path / "small", [[Document(id="a", text="b")]])).stat().st_size
    ]
    assert write_report(out).stat().st_size < smallest + 1_500_000


@pytest.mark.parametrize("kept", [True, False])
def test_a_corpus_of_one_document_has_a_page(tmp_path: Path, kept: bool) -> None:
    document = Document(id="", text="", source="", signals={"a.b": 1.0})
    out = finished_corpus.write(tmp_path / "out", [[document]], {"a.b": Bounds(high=1 if kept else 0)}, stages=[])
    text = write_report(out).read_text(encoding="utf-8")
    assert "(no name)" in text
    assert 'id="duplicates"' not in text
    assert 'id="cost"' not in text


def test_a_real_run_is_shown_as_it_was(tmp_path: Path) -> None:
    entries = {
        source: [{"id": f"{source}-{n}", "text": row["text"], "source": source} for n, row in enumerate(made)]
        for source, made in (("web", making.rows(60, seed=1)), ("books", making.rows(40, seed=2)))
    }
    entries["web"] += [{"id": f"bad-{n}", "text": HOSTILE * (n + 1), "source": "<script>"} for n in range(5)]
    for source, rows in entries.items():
        making.write_jsonl(tmp_path / "in" / f"{source}.jsonl", rows)
    with (tmp_path / "in" / "web.jsonl").open("a") as file:
        file.write("{broken\n")
    pipeline = Pipeline(
        Read(str(tmp_path / "in"), max_bad_share=0.5, part_bytes=20_000, batch_bytes=10_000),
        Filter(Length(min_words=30), GopherQuality(), sources=("web", "<*")),
        Dedup(),
        Tokenize(Utf8Bytes()),
        Mix(Natural()),
        Shard(ArrowTokens(sequence_length=64)),
    )
    with Engine(threads=2) as engine:
        making.run_here(pipeline, tmp_path / "out", engine)
    finished = open_finished(tmp_path / "out")
    whole = total(fates(finished.content))
    texts = {row["id"]: row["text"].replace("\r\n", "\n") for rows in entries.values() for row in rows}
    assert len(finished.parts) > 2
    assert whole.read.documents == len(texts)
    assert whole.filtered + whole.duplicates + whole.kept == whole.read
    assert whole.kept_tokens == whole.kept.num_bytes + whole.kept.documents
    assert next(iter(finished.bounds)).startswith("length.")
    for rule, amount in whole.dropped.items():
        samples = dropped_by(finished, rule, finished.sources, 100)
        assert len(samples) == amount.documents
        for sample in samples:
            assert not sample.bounds.low <= sample.value <= sample.bounds.high
            assert sample.text == texts[sample.id]
    pairs = duplicates(finished, finished.sources, 100)
    assert len(pairs) == whole.duplicates.documents > 10
    assert all(pair.jaccard >= 0.8 for pair in pairs)
    assert all(pair.difference.equal == (texts[pair.removed_id] == texts[pair.survivor_id]) for pair in pairs)
    assert all(shown.judged == 65 for shown in distributions(finished))
    assert len(rejected(finished, 5)) == 1
    took = cost(tmp_path / "out")
    assert took is not None
    assert {"documents", "tokens", "shards/arrow_tokens"} <= {step.step for step in took.steps}
    assert "MB/s" in write_report(tmp_path / "out").read_text(encoding="utf-8")


def test_mixture_is_empty_where_nothing_is_mixed() -> None:
    assert mixture({"mixture": None}) == []
    (one,) = mixture({"mixture": finished_corpus.mixture({"a": 5})})
    assert (one.source, one.used, one.capped) == ("a", 5, True)


def test_amounts_add_up() -> None:
    assert sum([Amount(1, 2), Amount(3, 4)], Amount()) == Amount(4, 6)
