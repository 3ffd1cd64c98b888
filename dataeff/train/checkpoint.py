"""Checkpoints: whole or absent, refused where they are of another model or corpus."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import IO, Any, cast

import torch

from dataeff.errors import FormatError, PlanError
from dataeff.manifest import committed
from dataeff.train.model import ModelSettings

FOLDER = "checkpoints"
VERSION = 2


def save(directory: Path, step: int, content: dict[str, Any], keep: int) -> Path:
    """Write a checkpoint, then remove all but the last `keep`."""
    path = directory / FOLDER / f"step-{step:08d}.pt"
    with committed(path) as sink:
        torch.save({"version": VERSION, "step": step, **content}, cast("IO[bytes]", sink))
    for old in checkpoints(directory)[:-keep]:
        old.unlink(missing_ok=True)
    return path


def checkpoints(directory: Path) -> list[Path]:
    """Those that are there, by step."""
    return sorted(path for path in (directory / FOLDER).glob("step-*.pt") if re.fullmatch(r"step-\d+\.pt", path.name))


def load(path: Path, model: ModelSettings) -> dict[str, Any]:
    """What was saved.

    Raises:
        FormatError: It is damaged, or of another version.
        PlanError: It is of another model; the message names the difference.
    """
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        version = content["version"]
    except Exception as error:  # torch raises whatever unpickling does
        raise FormatError(f"{path} is damaged ({error}): remove it to go on from the one before") from error
    if version != VERSION:
        raise FormatError(f"{path} is version {version}; this dataeff reads {VERSION}: use the one that wrote it")
    here, there = dataclasses.asdict(model), content["model_settings"]
    differing = [
        f"{name}: {there.get(name)} there, {here[name]} here" for name in here if there.get(name) != here[name]
    ]
    if differing:
        raise PlanError(
            f"{path} is of another model ({'; '.join(differing)}): give the options that the run began with, or "
            "another --out"
        )
    return content
