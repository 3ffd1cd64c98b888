"""Check a finished corpus against its own manifests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from dataeff import manifest
from dataeff.engine import Engine
from dataeff.errors import FormatError
from dataeff.pipeline import FILES, MANIFEST
from dataeff.registry import member
from dataeff.stages import documents, shard, survivors, tokenize, verdicts
from dataeff.stages.tasks import committed_files


def problems(directory: Path, engine: Engine) -> list[str]:
    """What is wrong with a corpus, one sentence each, in order of file names; empty where nothing is.

    Every file that a manifest names is there, with its size and checksum; shards hold by their own evidence; and
    the counts of what was read, dropped, removed, kept and written add up.

    Raises:
        FormatError: The directory holds no finished corpus.
    """
    content = manifest.read(directory / MANIFEST)
    if content is None:
        raise FormatError(
            f"{directory} holds no finished corpus (no {MANIFEST}); give the --out of a `dataeff run` that ended"
        )
    checks: list[tuple[Path, manifest.FileRecord, str | None]] = []
    for name in FILES:
        checks.append((directory / name, manifest.FileRecord(**content["files"][name]), None))
    folders = [(directory / step, None) for step in (documents.STEP, verdicts.STEP, survivors.STEP, tokenize.STEP)]
    folders += [(directory / shard.STEP / name, name) for name in content["shards"]]
    for folder, form in folders:
        checks += [(path, record, form) for path, record in committed_files(folder)]
    found = sorted(engine.map(_check_file, checks))
    return [problem for _, mine in found for problem in mine] + _count_problems(content)


def _check_file(check: tuple[Path, manifest.FileRecord, str | None]) -> list[str]:
    path, record, form = check
    if not path.is_file():
        return [f"{path} is missing"]
    found = manifest.record_of(path)
    if found.num_bytes != record.num_bytes:
        return [f"{path} has {found.num_bytes} bytes; its manifest says {record.num_bytes}"]
    own = [f"{path}: {problem}" for problem in member("formats", form)().verify(path)] if form else []
    if found.crc32c != record.crc32c:
        return [f"{path} has the CRC-32C {found.crc32c}; its manifest says {record.crc32c}", *own]
    return own


def _count_problems(content: dict[str, Any]) -> list[str]:
    found = []
    funnel = content["funnel"]
    for source, read in funnel["read"].items():
        for unit in ("documents", "bytes"):
            parts = [entry[unit] for entry in funnel["dropped"].get(source, {}).values()]
            parts += [funnel["duplicates"][source][unit], funnel["kept"][source][unit]]
            if sum(parts) != read[unit] or min(parts) < 0:
                found.append(
                    f"{unit} of {source}: {read[unit]} were read, but what became of them adds up to {sum(parts)}"
                )
    for name, shards in content["shards"].items():
        if member("formats", name).grouping != "source":
            continue
        written: Counter[str] = Counter()
        for entry in shards:
            written[entry["source"]] += entry["tokens"]
        for source, kept in funnel["kept"].items():
            if written[source] != kept["tokens"]:
                found.append(f"{name} shards of {source} hold {written[source]} tokens; {kept['tokens']} were made")
    return found
