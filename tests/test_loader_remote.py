"""Shards that lie elsewhere: fetched whole, checked, and kept in a folder that does not grow beyond its bound."""

from __future__ import annotations

import fsspec
import pytest

from dataeff.errors import InputError, PlanError
from dataeff.loader import Loader
from dataeff.loader.cache import ShardCache
from tests.test_loader import take
from tests.token_corpus import shard_paths, whole_corpus, write_corpus

SHARDS = {"web": [20] * 6}


@pytest.fixture
def remote(tmp_path):
    """A corpus in another file system, by its URL, and the bytes of one shard."""
    corpus = write_corpus(tmp_path / "corpus", SHARDS, length=64)
    memory = fsspec.filesystem("memory")
    memory.put(str(corpus), "/bucket", recursive=True)
    yield "memory://bucket", max(path.stat().st_size for path in shard_paths(corpus))
    memory.rm("/bucket", recursive=True)


def files(folder) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.arrow"))


def test_a_remote_corpus_gives_what_the_local_one_gives(remote, tmp_path):
    url, _ = remote
    there, here = (Loader(place, batch_size=7, cache=tmp_path / "cache") for place in (url, tmp_path / "corpus"))
    assert take(there) == take(here)
    assert sorted(take(there))[:5] == whole_corpus(SHARDS)[:5]


def test_a_small_cache_holds_a_window_and_each_shard_is_fetched_once_an_epoch(remote, tmp_path):
    url, size = remote
    cache = tmp_path / "cache"
    loader = Loader(url, batch_size=5, window_shards=2, cache=cache, cache_bytes=3 * size)
    seen = []
    for number, batch in enumerate(loader):
        seen.append(batch)
        assert files(cache) <= 3 * size
        assert number < 24
    assert sorted(row for batch in seen for row in batch["row_ids"].tolist()) == [
        shard << 32 | row for shard, row in whole_corpus(SHARDS)
    ]
    # One more than there are shards at most: the first one, which tells how long rows are.
    assert loader.fetched <= len(SHARDS["web"]) + 1


def test_a_cache_below_a_window_is_refused_at_the_start(remote, tmp_path):
    url, size = remote
    with pytest.raises(PlanError, match=r"cache_bytes is .* window_shards below 6"):
        Loader(url, batch_size=5, cache=tmp_path / "cache", cache_bytes=3 * size)
    with pytest.raises(PlanError, match="cache_bytes is 0"):
        ShardCache(tmp_path / "cache", 0)


def test_what_arrives_damaged_is_fetched_again_and_then_refused(remote, tmp_path, monkeypatch):
    url, _ = remote
    monkeypatch.setattr("dataeff.loader.cache.time.sleep", lambda _: None)
    memory = fsspec.filesystem("memory")
    name = "/bucket/shards/arrow_tokens/web-00003.arrow"
    whole = memory.cat(name)
    memory.pipe(name, whole[:-1] + b"?")
    with pytest.raises(InputError, match=r"web-00003\.arrow cannot be fetched: .* its manifest says .* 3 times"):
        take(Loader(url, batch_size=7, cache=tmp_path / "cache"))
    assert not [path for path in (tmp_path / "cache").iterdir() if path.name.endswith(".tmp")]
    fetch, attempts = type(memory).get_file, []

    def flaky(self, remote, local, **options):
        attempts.append(remote)
        if remote.endswith("web-00003.arrow") and attempts.count(remote) == 1:
            raise ConnectionResetError("reset by peer")
        fetch(self, remote, local, **options)

    monkeypatch.setattr(type(memory), "get_file", flaky)
    memory.pipe(name, whole)
    assert len(take(Loader(url, batch_size=7, cache=tmp_path / "cache2", tail="short"))) == 120
    assert attempts.count(next(entry for entry in attempts if entry.endswith("web-00003.arrow"))) == 2


def test_a_file_cut_short_in_the_cache_is_fetched_again(remote, tmp_path):
    url, _ = remote
    wanted = take(Loader(url, batch_size=7, cache=tmp_path / "cache"))
    for path in (tmp_path / "cache").glob("*.arrow"):
        path.write_bytes(path.read_bytes()[:100])
    assert take(Loader(url, batch_size=7, cache=tmp_path / "cache")) == wanted
