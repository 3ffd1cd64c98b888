"""A finished output directory, opened for looking: its manifest, its parts, and text by document number."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from dataeff import manifest
from dataeff.arrays import mapped_array
from dataeff.arrow import PART_SHIFT
from dataeff.errors import FormatError, PlanError
from dataeff.filters import Bounds
from dataeff.stages import documents, survivors, verdicts
from dataeff.stages.documents import StoredPart
from dataeff.stages.tasks import STEP_MANIFEST, read_outcome

MANIFEST = "manifest.json"
VERSION = 1
_NEEDED = ("funnel", "bounds", "shards", "stages", "seed", "unit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What a run left behind."""

    directory: Path
    content: dict[str, Any]
    """The manifest of the corpus."""
    parts: tuple[StoredPart, ...]
    bounds: dict[str, Bounds]
    """What passes, by rule `filter.signal`, in order of judgement."""

    @property
    def sources(self) -> list[str]:
        """Sources that were read, sorted."""
        return sorted(self.content["funnel"]["read"])

    def verdict(self, part: StoredPart) -> npt.NDArray[np.int16]:
        """The number of the rule that each document of a part failed first, or -1, memory-mapped, shape (rows,)."""
        return cast("npt.NDArray[np.int16]", self._column(verdicts.STEP, part))

    def kept(self, part: StoredPart) -> npt.NDArray[np.bool_]:
        """Whether each document of a part is in the corpus, memory-mapped, shape (rows,)."""
        return cast("npt.NDArray[np.bool_]", self._column(survivors.STEP, part))

    def rule_number(self, rule: str) -> int:
        """Place of a rule in the order of judgement.

        Raises:
            PlanError: There is no such rule; the message lists them.
        """
        rules = list(self.bounds)
        if rule in rules:
            return rules.index(rule)
        if not rules:
            raise PlanError(f"{rule!r} is not a rule of this corpus: its recipe has no Filter")
        raise PlanError(f"{rule!r} is not a rule of this corpus; its rules are {', '.join(rules)}")

    def matching(self, pattern: str | None) -> list[str]:
        """Sources that match a shell-style pattern, or all.

        Raises:
            PlanError: None matches; the message lists the sources.
        """
        found = [name for name in self.sources if pattern is None or fnmatch.fnmatchcase(name, pattern)]
        if not found:
            some = ", ".join(self.sources[:20]) + (" ..." if len(self.sources) > 20 else "")
            raise PlanError(f"no source of this corpus matches {pattern!r}; its sources are {some}")
        return found

    def texts(self, docs: Iterable[int], limit: int) -> dict[int, str]:
        """Text of a few documents after edits, by document number.

        Args:
            docs: Document numbers, part << 32 | row.
            limit: Characters of each text to return, from its start.
        """
        rows: dict[int, list[int]] = {}
        for doc in sorted(set(docs)):
            rows.setdefault(doc >> PART_SHIFT, []).append(doc & ((1 << PART_SHIFT) - 1))
        found: dict[int, str] = {}
        for number, wanted in rows.items():
            part = self.parts[number]
            chosen = np.zeros(sum(part.batch_rows), bool)
            chosen[wanted] = True
            for places, batch in part.text_batches(chosen, text_only=True):
                for place, text in zip(places.tolist(), batch.column("text"), strict=True):
                    found[number << PART_SHIFT | place] = text.as_py()[:limit]
        return found

    def _column(self, step: str, part: StoredPart) -> npt.NDArray[Any]:
        path = self.directory / step / f"{part.name}.npy"
        try:
            return mapped_array(path)
        except (OSError, ValueError, EOFError) as error:
            raise FormatError(f"{path} cannot be read ({error}); run the recipe again with the same --out") from error


def open_finished(directory: Path) -> Finished:
    """Open the output directory of a run that ended.

    Raises:
        FormatError: It is not one, or the run has not ended, or it is of another version, or a part is missing.
    """
    content = manifest.read(directory / MANIFEST)
    if content is None:
        raise FormatError(_why_not(directory))
    if content.get("version") != VERSION or any(name not in content for name in _NEEDED):
        raise FormatError(
            f"{directory / MANIFEST} is of version {content.get('version')!r}; this dataeff reads version {VERSION}: "
            "run the recipe again with the same --out"
        )
    steps = manifest.read(directory / documents.STEP / STEP_MANIFEST)
    if steps is None:
        raise FormatError(
            f"{directory / documents.STEP} is gone, so no document can be shown; run the recipe again with the same "
            "--out"
        )
    parts = tuple(_part(directory, number, name) for number, name in enumerate(steps["parts"]))
    return Finished(directory=directory, content=content, parts=parts, bounds=_bounds(content["bounds"], parts))


def _bounds(stated: dict[str, dict[str, Any]], parts: tuple[StoredPart, ...]) -> dict[str, Bounds]:
    """Bounds in the order of judgement, which is that of the columns: a manifest sorts its keys."""
    order = [name for name in parts[0].columns().column_names if name in stated] if stated else []
    if len(order) != len(stated):
        raise FormatError(
            f"{parts[0].folder} lacks signals that the manifest names; run the recipe again with the same --out"
        )
    return {rule: Bounds(float(stated[rule]["low"]), float(stated[rule]["high"])) for rule in order}


def _part(directory: Path, number: int, name: str) -> StoredPart:
    found = read_outcome(directory / documents.STEP, name)
    if found is None:
        raise FormatError(
            f"the manifest of {name} in {directory / documents.STEP} is missing; run the recipe again with the same "
            "--out"
        )
    outcome = found[1]
    return StoredPart(
        folder=directory / documents.STEP,
        number=number,
        name=name,
        digest=outcome.digest,
        batch_rows=tuple(outcome.facts["batch_rows"]),
        text_bytes=sum(outcome.facts["text_bytes"].values()),
        facts={key: value for key, value in outcome.facts.items() if key != "batch_rows"},
    )


def _why_not(directory: Path) -> str:
    if not directory.exists():
        return f"{directory} does not exist; give the --out of a `dataeff run`"
    if not directory.is_dir():
        return f"{directory} is a file; give the directory that was the --out of a `dataeff run`"
    if (directory / documents.STEP).is_dir() or (directory / ".dataeff").exists():
        return (
            f"the run into {directory} has not ended (no {MANIFEST}): run the same command again, it goes on from there"
        )
    return f"{directory} was not made by `dataeff run` (no {MANIFEST}); give the --out of a run that ended"
