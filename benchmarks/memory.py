"""Peak memory and time at once and ten times the corpora: neither may grow faster than the text."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import corpora
from benchmarks.harness import BenchmarkError, Figure, Report, say

TIMES = 10


def run() -> Report:
    """Run the whole lane to text shards in a fresh process at both sizes."""
    with tempfile.TemporaryDirectory() as folder:
        _measure(corpora.files("xquad", "udhr2"), Path(folder) / "warm")
        say("once the corpora")
        once = _measure(corpora.files(), Path(folder) / "once")
        many = corpora.repeated(TIMES)
        say(f"{TIMES} times the corpora")
        times = _measure(sorted(many.glob("*.parquet")), Path(folder) / "times")
    return Report(
        name="memory",
        figures=(
            Figure(name="peak RSS", value=once["rss_gib"], unit="GiB", at_most=1.5, note=f"{once['mb']:.0f} MB"),
            Figure(
                name=f"peak RSS at {TIMES} times",
                value=times["rss_gib"],
                unit="GiB",
                at_most=1.5,
                note=f"{times['mb']:.0f} MB",
            ),
            Figure(
                name=f"time at {TIMES} times",
                value=times["seconds"] / once["seconds"] * once["mb"] * TIMES / times["mb"],
                unit="times",
                at_most=10.5,
                note=f"{once['seconds']:.1f} s and {times['seconds']:.1f} s, scaled to {TIMES} times the bytes",
            ),
            Figure(name=f"kept at {TIMES} times", value=times["kept"], unit="share of documents"),
        ),
    )


def _measure(files: list[Path], out: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.memory", str(out), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=corpora.ROOT)
    if done.returncode:
        raise BenchmarkError(f"the measured process failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _peak_kib() -> int:
    """Peak RSS of this process; `getrusage` would carry the parent's over."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def _main() -> None:
    """In the measured process: run, then print seconds, sizes and the peak."""
    from benchmarks.running import run_pipeline
    from dataeff import Dedup, Filter, Pipeline, Read, Shard
    from dataeff.filters import GopherQuality, Length
    from dataeff.formats import TextParquet

    out, *files = sys.argv[1:]
    pipeline = Pipeline(
        Read(*files),
        Filter(GopherQuality(), sources=("sotu",)),
        Filter(Length(min_words=5)),
        Dedup(),
        Shard(TextParquet()),
    )
    seconds, content = run_pipeline(pipeline, Path(out))
    funnel = content["funnel"]
    read = sum(entry["documents"] for entry in funnel["read"].values())
    print(
        json.dumps(
            {
                "seconds": seconds,
                "mb": sum(entry["bytes"] for entry in funnel["read"].values()) / 1e6,
                "kept": sum(entry["documents"] for entry in funnel["kept"].values()) / read,
                "rss_gib": _peak_kib() / 2**20,
            }
        )
    )


if __name__ == "__main__":
    _main()
