"""The journal of a comparison: what was decided and what came out, a line each, appended and never changed.

A comparison that is killed reads it again and goes on. A line that a kill cut off is ignored: what it said is found
again in the trial's own readings, or done again from its checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from dataeff.contest import Job, Result
from dataeff.errors import FormatError
from dataeff.manifest import storage_errors

FILE = "journal.jsonl"
Phase: TypeAlias = Literal["baseline", "screen", "confirm", "anneal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What came out of a job."""

    phase: Phase
    job: Job
    loss: float | None
    """Nats a token, domains weighed; None: it failed."""
    losses: dict[str, float]
    """By source."""
    failure: str = ""

    @property
    def result(self) -> Result:
        """What a screener takes."""
        return Result(job=self.job, loss=self.loss)


class Journal:
    """Lines of one comparison.

    Args:
        path: The file; made if it is not there.
        fingerprint: Of all that determines results.

    Raises:
        FormatError: It is of another comparison.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self._path = path
        self.entries: list[Entry] = []
        self.facts: dict[str, Any] = {}
        """What was settled on the way, by name."""
        lines = list(_lines(path))
        if not lines:
            self._append({"comparison": fingerprint})
            return
        if lines[0].get("comparison") != fingerprint:
            raise FormatError(
                f"{path} is of another comparison: its corpora, candidates, proxies or settings differ from those "
                "asked for now; give another --out, or restore the recipe and its options"
            )
        for line in lines[1:]:
            if "fact" in line:
                self.facts[line["fact"]] = line["value"]
            else:
                self.entries.append(Entry(**{**line, "job": Job(**line["job"])}))

    def add(self, entry: Entry) -> None:
        """Append what came out of a job."""
        self.entries.append(entry)
        self._append(asdict(entry))

    def settle(self, name: str, value: Any) -> None:
        """Append a fact; the first of a name stands."""
        if name not in self.facts:
            self.facts[name] = value
            self._append({"fact": name, "value": value})

    def of(self, phase: Phase) -> list[Entry]:
        """Entries of a phase, in the order in which they came."""
        return [entry for entry in self.entries if entry.phase == phase]

    def _append(self, line: dict[str, Any]) -> None:
        with storage_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                if file.tell() and self._path.read_bytes()[-1:] != b"\n":
                    file.write(b"\n")
                file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """All lines that can be read."""
    for line in path.read_bytes().split(b"\n") if path.is_file() else ():
        # What a line that cannot be read said is found again: trials keep their own readings.
        with contextlib.suppress(ValueError):
            if line:
                yield json.loads(line)
