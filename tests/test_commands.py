"""The command line as a person meets it."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests import making


def dataeff(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dataeff", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A folder with a corpus that the command made, and what it printed."""
    folder = tmp_path_factory.mktemp("commands")
    making.write_jsonl(folder / "in/a.jsonl", making.rows(50, seed=3, source="a"))
    (folder / "recipe.py").write_text(
        "from dataeff import Dedup, Filter, Pipeline, Read, Shard, Tokenize\n"
        "from dataeff.filters import Length\n"
        "from dataeff.formats import ArrowTokens, TextParquet, WebdatasetTar\n"
        "from dataeff.tokenizers import Utf8Bytes\n\n"
        "def recipe(inputs: str, min_words: int = 20) -> Pipeline:\n"
        "    return Pipeline(Read(inputs), Filter(Length(min_words=min_words)), Dedup(), Tokenize(Utf8Bytes()),\n"
        "                    Shard(ArrowTokens(sequence_length=64), WebdatasetTar(), TextParquet()))\n"
    )
    return folder, dataeff("run", "recipe.py", "--set", "inputs=in", "--out", "out", "--threads", "2", cwd=folder)


def test_run_ends_with_the_funnel_and_where_the_report_is(made):
    folder, done = made
    assert done.returncode == 0, done.stderr
    assert "duplicates" in done.stdout
    assert done.stdout.rstrip().endswith(f"Report: {folder / 'out/report.html'}")
    assert (folder / "out/report.html").stat().st_size > 10_000


def test_verify_finds_nothing_in_a_whole_corpus_and_names_what_is_damaged(made):
    folder, _ = made
    assert dataeff("verify", "out", cwd=folder).returncode == 0
    shard = next((folder / "out/shards/text_parquet").glob("*.parquet"))
    tokens = next((folder / "out/shards/arrow_tokens").glob("*.arrow"))
    original = {shard: shard.read_bytes(), tokens: tokens.read_bytes()}
    flipped = bytearray(original[shard])
    flipped[200] ^= 1
    shard.write_bytes(flipped)
    tokens.write_bytes(original[tokens][:-1])
    (folder / "out/removals.parquet").rename(folder / "out/gone")
    done = dataeff("verify", "out", cwd=folder)
    for path, content in original.items():
        path.write_bytes(content)
    (folder / "out/gone").rename(folder / "out/removals.parquet")
    assert done.returncode == 1
    assert f"{Path('out/shards/text_parquet') / shard.name} has the CRC-32C" in done.stderr
    assert f"{tokens.name} has {len(original[tokens]) - 1} bytes; its manifest says" in done.stderr
    assert "out/removals.parquet is missing" in done.stderr
    assert dataeff("verify", "out", cwd=folder).returncode == 0


def test_verify_says_what_a_directory_without_a_corpus_is(made):
    done = dataeff("verify", ".", cwd=made[0])
    assert done.returncode == 1
    assert "holds no finished corpus" in done.stderr


def test_errors_are_one_clear_sentence_without_a_traceback(made):
    folder, _ = made
    done = dataeff("run", "recipe.py", "--set", "inputs=in", "--set", "min_word=3", "--out", "new", cwd=folder)
    assert done.returncode == 1
    assert done.stderr.startswith("dataeff: the recipe recipe has no option 'min_word' (did you mean min_words?)")
    assert "Traceback" not in done.stderr
    assert not (folder / "new").exists()


def test_ctrl_c_says_that_what_is_done_is_kept_and_the_run_goes_on(made):
    folder, _ = made
    making.write_jsonl(folder / "many/a.jsonl", making.rows(400, seed=3, source="a"))
    command = [sys.executable, "-m", "dataeff", "run", "slow.py", "--out", "stopped"]
    (folder / "slow.py").write_text(
        "import time\nfrom dataclasses import dataclass\nfrom dataeff import Filter, Pipeline, Read\n"
        "from dataeff.filters import Bounds\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Slow:\n"
        "    def measure(self, segments):\n        time.sleep(0.05)\n"
        "        return {'n': segments.chars_per_row * 1.0}\n"
        "    def bounds(self):\n        return {'n': Bounds()}\n\n"
        "def recipe() -> Pipeline:\n"
        "    return Pipeline(Read('many', part_bytes=8_000, batch_bytes=4_000), Filter(Slow()))\n"
    )
    # A shell makes what it runs in the background deaf to Ctrl-C, and so whatever that runs.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heard
    )
    while process.poll() is None and not any((folder / "stopped/documents/_tasks").glob("*.json")):
        pass
    process.send_signal(signal.SIGINT)
    _, error = process.communicate()
    assert process.returncode == 130
    assert error.rstrip().endswith("dataeff: stopped; finished parts are kept, run the same command again to go on")
    assert "Traceback" not in error
    assert subprocess.run(command, cwd=folder, capture_output=True).returncode == 0


def test_list_shows_every_member_with_its_meaning_and_defaults(made):
    done = dataeff("list", cwd=made[0])
    assert done.returncode == 0
    for name in ("jsonl", "c4_lines", "gopher_quality", "min_words=50", "unimax", "trained_bpe", "arrow_tokens"):
        assert name in done.stdout
    wrong = dataeff("list", "filter", cwd=made[0])
    assert wrong.returncode == 1
    assert "did you mean filters?" in wrong.stderr
