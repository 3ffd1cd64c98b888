"""The corpus lane on small corpora, through the real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataeff import Dedup, Edit, Filter, Mix, Pipeline, Read, Shard, Tokenize
from dataeff.dedup.minhash import MinHash
from dataeff.editors import C4Lines
from dataeff.engine import Engine
from dataeff.errors import PlanError, StorageError
from dataeff.filters import GopherQuality, Length
from dataeff.formats import ArrowTokens, TextParquet, WebdatasetTar
from dataeff.mixers import Explicit, Natural
from dataeff.tokenizers import TrainedBpe, Utf8Bytes
from dataeff.verify import problems
from tests import making


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(threads=2) as running:
        yield running


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    making.write_jsonl(folder / "web.jsonl", making.rows(60, seed=1, source="web"))
    making.write_jsonl(folder / "books.jsonl", making.rows(40, seed=2, source="books"))
    return folder


def whole_lane(corpus: Path, **read_options: object) -> Pipeline:
    return Pipeline(
        Read(str(corpus), **read_options),  # type: ignore[arg-type]
        Edit(C4Lines(), sources=("web",)),
        Filter(GopherQuality(), Length(min_words=20)),
        Dedup(prefer=("books", "web")),
        Tokenize(TrainedBpe(vocab_size=600)),
        Mix(Explicit(shares={"web": 0.7, "books": 0.3}), budget=60_000),
        Shard(ArrowTokens(sequence_length=128), WebdatasetTar(), TextParquet()),
        seed=3,
    )


def texts_of(out: Path) -> list[str]:
    found: list[str] = []
    for path in sorted((out / "shards" / "text_parquet").glob("*.parquet")):
        found += pq.read_table(path).column("text").to_pylist()
    return found


def test_the_whole_lane_keeps_fresh_documents_and_accounts_for_every_other(corpus, tmp_path, engine):
    content, _ = making.run_here(whole_lane(corpus), tmp_path / "out", engine)
    funnel = content["funnel"]
    assert {source: entry["documents"] for source, entry in funnel["read"].items()} == {"books": 40, "web": 60}
    for source, entry in funnel["read"].items():
        dropped = sum(rule["documents"] for rule in funnel["dropped"].get(source, {}).values())
        assert (
            entry["documents"]
            == dropped + funnel["duplicates"][source]["documents"] + funnel["kept"][source]["documents"]
        )
    kinds = [
        row["kind"]
        for source, num, seed in (("web", 60, 1), ("books", 40, 2))
        for row in making.rows(num, seed, source)
    ]
    assert sum(entry["documents"] for entry in funnel["duplicates"].values()) == len(kinds) - kinds.count("fresh")
    assert sum(entry["documents"] for entry in funnel["kept"].values()) == kinds.count("fresh")
    assert problems(tmp_path / "out", engine) == []


def test_the_ledger_names_the_survivor_and_the_proof_of_every_removal(corpus, tmp_path, engine):
    making.run_here(whole_lane(corpus), tmp_path / "out", engine)
    ledger = pq.read_table(tmp_path / "out" / "removals.parquet").to_pylist()
    texts = {
        row["id"]: row["text"]
        for source, num, seed in (("web", 60, 1), ("books", 40, 2))
        for row in making.rows(num, seed, source)
    }
    removed = {row["removed_id"] for row in ledger}
    assert ledger
    for row in ledger:
        assert row["survivor_id"] not in removed
        assert 0.8 <= row["jaccard"] <= row["containment"] <= 1
        if row["jaccard"] == 1:
            assert texts[row["removed_id"]].split() == texts[row["survivor_id"]].split()
    clusters = pq.read_table(tmp_path / "out" / "clusters.parquet").to_pylist()
    assert {row["id"] for row in clusters if not row["kept"]} == removed


def test_extra_columns_survive_to_the_shards(corpus, tmp_path, engine):
    pipeline = Pipeline(Read(str(corpus)), Dedup(), Shard(TextParquet()))
    making.run_here(pipeline, tmp_path / "out", engine)
    table = pq.read_table(tmp_path / "out/shards/text_parquet")
    ranks = {
        row["id"]: (row["rank"], row["kind"])
        for source, num, seed in (("web", 60, 1), ("books", 40, 2))
        for row in making.rows(num, seed, source)
    }
    assert {row["id"]: (row["rank"], row["kind"]) for row in table.to_pylist()}.items() <= ranks.items()


@pytest.mark.parametrize("threads", [1, 3])
def test_the_same_bytes_whatever_the_threads(corpus, tmp_path, engine, threads):
    making.run_here(whole_lane(corpus, part_bytes=20_000, batch_bytes=4_000), tmp_path / "two", engine)
    with Engine(threads=threads) as other:
        making.run_here(whole_lane(corpus, part_bytes=20_000, batch_bytes=4_000), tmp_path / "other", other)
    assert making.all_bytes(tmp_path / "two") == making.all_bytes(tmp_path / "other")


def test_token_rows_do_not_depend_on_how_parts_were_cut(corpus, tmp_path, engine):
    def shards(name: str, part_bytes: int) -> dict[str, list[object]]:
        pipeline = Pipeline(
            Read(str(corpus), part_bytes=part_bytes, batch_bytes=2_000),
            Tokenize(Utf8Bytes()),
            Shard(ArrowTokens(sequence_length=64)),
        )
        making.run_here(pipeline, tmp_path / name, engine)
        folder = tmp_path / name / "shards" / "arrow_tokens"
        return {
            path.name: pa.ipc.open_file(path).read_all().column("tokens").to_pylist()
            for path in sorted(folder.glob("*.arrow"))
        }

    assert shards("coarse", 1 << 25) == shards("fine", 5_000)


def test_a_changed_threshold_reads_no_text_and_a_changed_mixture_redoes_only_what_follows(corpus, tmp_path, engine):
    def pipeline(min_words: int, web: float) -> Pipeline:
        return Pipeline(
            Read(str(corpus)),
            Filter(Length(min_words=min_words)),
            Dedup(),
            Tokenize(Utf8Bytes()),
            Mix(Explicit(shares={"web": web, "books": 1 - web}), budget=10_000),
            Shard(TextParquet()),
        )

    out = tmp_path / "out"
    making.run_here(pipeline(20, 0.5), out, engine)
    _, again = making.run_here(pipeline(20, 0.5), out, engine)
    assert not any(again.done.values())
    _, mixed = making.run_here(pipeline(20, 0.6), out, engine)
    assert {step for step, count in mixed.done.items() if count} == {"shards/text_parquet"}
    content, judged = making.run_here(pipeline(140, 0.6), out, engine)
    assert judged.done["documents"] == 0
    assert judged.done["verdicts"] > 0
    assert any(content["funnel"]["dropped"].values())
    fresh, _ = making.run_here(pipeline(140, 0.6), tmp_path / "fresh", engine)
    assert fresh == content
    assert making.all_bytes(out) == making.all_bytes(tmp_path / "fresh")


def test_a_changed_input_file_redoes_its_parts_only(corpus, tmp_path, engine):
    pipeline = Pipeline(Read(str(corpus), part_bytes=8_000, batch_bytes=8_000), Dedup(), Shard(TextParquet()))
    _, first = making.run_here(pipeline, tmp_path / "out", engine)
    changed = making.rows(60, seed=1, source="web")
    changed[-1]["text"] = "Nothing like what was here before, and long enough to be read as a new document."
    making.write_jsonl(corpus / "web.jsonl", changed)
    _, second = making.run_here(pipeline, tmp_path / "out", engine)
    assert 0 < second.done["documents"] < first.done["documents"]
    assert changed[-1]["text"] in texts_of(tmp_path / "out")


def test_near_duplicates_survive_an_exact_only_dedup(corpus, tmp_path, engine):
    pipeline = Pipeline(Read(str(corpus)), Dedup(minhash=None), Shard(TextParquet()))
    content, _ = making.run_here(pipeline, tmp_path / "out", engine)
    every = [row for source, num, seed in (("web", 60, 1), ("books", 40, 2)) for row in making.rows(num, seed, source)]
    distinct = len({row["text"] for row in every})
    assert sum(entry["documents"] for entry in content["funnel"]["kept"].values()) == distinct


def test_the_preferred_source_survives(tmp_path, engine):
    shared = making.rows(4, seed=5, source="a")
    making.write_jsonl(tmp_path / "in/a.jsonl", shared)
    making.write_jsonl(tmp_path / "in/b.jsonl", [{**row, "id": f"b{row['id']}", "source": "b"} for row in shared])
    for prefer in ("a", "b"):
        pipeline = Pipeline(Read(str(tmp_path / "in")), Dedup(prefer=(prefer,)), Shard(TextParquet()))
        content, _ = making.run_here(pipeline, tmp_path / f"out-{prefer}", engine)
        assert {source for source, entry in content["funnel"]["kept"].items() if entry["documents"]} == {prefer}


def test_documents_repeat_as_the_mixture_says(tmp_path, engine):
    making.write_jsonl(tmp_path / "in/a.jsonl", making.rows(3, seed=5, source="a"))
    size = sum(len(row["text"].encode()) for row in making.rows(3, seed=5, source="a"))
    pipeline = Pipeline(
        Read(str(tmp_path / "in")), Mix(Natural(), budget=2 * size), Shard(TextParquet(), WebdatasetTar())
    )
    content, _ = making.run_here(pipeline, tmp_path / "out", engine)
    assert sorted(texts_of(tmp_path / "out")) == sorted([row["text"] for row in making.rows(3, seed=5, source="a")] * 2)
    assert sum(shard["documents"] for shard in content["shards"]["webdataset_tar"]) == 6


def test_dedup_in_bands_for_a_threshold(corpus, tmp_path, engine):
    minhash = MinHash.for_threshold(0.7, num_perm=64)
    making.run_here(Pipeline(Read(str(corpus)), Dedup(minhash=minhash)), tmp_path / "out", engine)
    ledger = pq.read_table(tmp_path / "out" / "removals.parquet")
    assert ledger.num_rows > 0
    assert min(ledger.column("jaccard").to_pylist()) >= 0.7


def test_stages_out_of_order_and_foreign_directories_are_refused(corpus, tmp_path, engine):
    with pytest.raises(PlanError, match="Filter stands at the wrong place"):
        Pipeline(Read("x"), Dedup(), Filter(Length()))
    with pytest.raises(PlanError, match="begins with Read"):
        Pipeline(Dedup())
    foreign = tmp_path / "mine"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("precious")
    with pytest.raises(StorageError, match="not empty and no dataeff run made it"):
        making.run_here(Pipeline(Read(str(corpus))), foreign, engine)
    assert [path.name for path in foreign.iterdir()] == ["thesis.tex"]
