"""Documents out of WebDataset shards: equally many for each rank, each once, checked before they are given."""

from __future__ import annotations

import json

import pytest
from torch.utils.data import DataLoader

from dataeff.errors import FormatError, InputError, PlanError
from dataeff.formats import WebdatasetTar
from dataeff.loader import TarDocuments
from dataeff.manifest import committed
from tests import shards

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
COUNTS = (5, 1, 9, 8)


@pytest.fixture
def corpus(tmp_path):
    entries, first = [], 0
    for number, count in enumerate(COUNTS):
        texts = [f"document {first + place}" for place in range(count)]
        data, _ = shards.written(WebdatasetTar(), [shards.text_batch(texts, first)], name=f"{number:06d}")
        with committed(tmp_path / "shards" / "webdataset_tar" / f"{number:06d}.tar") as sink:
            sink.write(data)
        entries.append({"file": f"{number:06d}.tar", "documents": count})
        first += count
    (tmp_path / "manifest.json").write_text(json.dumps({"shards": {"webdataset_tar": entries}}))
    return tmp_path


def docs(dataset, workers: int = 0) -> list[int]:
    loader = DataLoader(dataset, batch_size=None, num_workers=workers)
    found = []
    for document in loader:
        assert document["txt"] == f"document {document['json']['doc']}"
        found.append(document["json"]["doc"])
    return found


@pytest.mark.parametrize(("world", "workers"), [(1, 0), (2, 0), (3, 2), (5, 1)])
def test_ranks_have_equally_many_documents_and_none_comes_twice(corpus, world, workers):
    ranks = [TarDocuments(corpus, rank=rank, world=world) for rank in range(world)]
    found = [docs(dataset, workers) for dataset in ranks]
    assert {len(mine) for mine in found} == {len(ranks[0])} == {23 // world}
    everything = [doc for mine in found for doc in mine]
    assert len(set(everything)) == len(everything) == 23 - ranks[0].left_out


def test_another_epoch_takes_the_shards_in_another_order_and_the_same_one_in_the_same(corpus):
    dataset = TarDocuments(corpus, rank=0, world=1)
    orders = []
    for epoch in (0, 1, 2, 0):
        dataset.set_epoch(epoch)
        orders.append(docs(dataset))
    assert orders[0] == orders[3]
    assert len({tuple(order) for order in orders}) > 1
    assert all(sorted(order) == list(range(23)) for order in orders)


def test_damage_is_found_before_a_document_is_given(corpus):
    path = corpus / "shards" / "webdataset_tar" / "000002.tar"
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"000002\.tar: block 0 of 1"):
        docs(TarDocuments(corpus, rank=0, world=1))


def test_what_cannot_work_is_refused_at_the_start(corpus, tmp_path):
    with pytest.raises(PlanError, match="23 documents for 24 ranks"):
        TarDocuments(corpus, rank=0, world=24)
    (corpus / "shards" / "webdataset_tar" / "000001.tar").unlink()
    with pytest.raises(InputError, match=r"1 of 4 shards are missing, the first is .*000001\.tar"):
        TarDocuments(corpus)
    with pytest.raises(InputError, match="holds no finished corpus"):
        TarDocuments(tmp_path / "nowhere")
    (corpus / "manifest.json").write_text('{"shards": {}}')
    with pytest.raises(InputError, match="no WebDataset shards"):
        TarDocuments(corpus)


def test_a_manifest_that_counts_other_documents_is_told(corpus):
    content = json.loads((corpus / "manifest.json").read_text())
    content["shards"]["webdataset_tar"][1]["documents"] = 3
    (corpus / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(FormatError, match="holds 1 documents, but the manifest says 3"):
        docs(TarDocuments(corpus, rank=0, world=1))
