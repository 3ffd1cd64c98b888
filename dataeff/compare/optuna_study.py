"""A comparison as an Optuna study, for its dashboard, its plots and whatever else reads studies.

Optuna compares trials by their last value, so the study leaves nothing in that would make such a comparison wrong:
only runs of the deciding proxy that came to the full budget at a constant learning rate are complete, and runs of a
smaller one have no value. It knows no tokens to target; what each candidate was found to need is among the study's
attributes, for programs, and in a note that its dashboard shows, for people.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from dataeff.compare.outcome import NS_PER_HOUR, Outcome, Row, Trial
from dataeff.compare.tables import ended, losses_of, shown, span_ns
from dataeff.errors import FormatError, PlanError, StorageError
from dataeff.manifest import storage_errors

_MARK = "dataeff"
_METRIC = "validation loss"
_NOTE_CHARS = 2045
"""Optuna Dashboard reads a note in pieces of so many characters, from the study's own attributes."""


def export_study(found: Outcome, storage: str) -> str:
    """Write a comparison as a study; one of the same comparison that is there is replaced.

    A trial is a candidate, seed and size. Its parameters are the corpus and the weight of each source, its value is
    the last validation loss (nats a token, domains weighed) where its proxy is the deciding one, its intermediate
    values are losses by tokens. Its state is FAIL where it diverged or died, COMPLETE where the deciding proxy came to
    the full budget, RUNNING where the comparison is to go on with it, and else PRUNED: its candidate was stopped, or
    its proxy is a smaller one. The last losses of annealed branches are an attribute of the trial that they branch off.

    The best trial is the luckiest run, not what the comparison found: that is in the study's attribute `candidates`
    and in its note.

    Args:
        found: A comparison.
        storage: URL of a database, such as `sqlite:///study.db`, or else the path of a journal file.

    Returns:
        The study's name, the same for the same comparison.

    Raises:
        PlanError: Optuna is not installed, the URL names no database that it knows, or a study of that name is not
            ours.
        StorageError: The storage cannot be opened or written.
        FormatError: The file is no journal of Optuna's.
    """
    optuna = _optuna()
    name = f"dataeff-{found.plan['fingerprint'][:12]}"
    with _quiet(optuna), _explained(storage):
        trials = [_frozen(optuna, found, trial) for trial in found.trials if not trial.annealed]
        opened = _open(optuna, storage)
        if name in optuna.get_all_study_names(opened):
            _remove(optuna, name, opened, found.plan["fingerprint"])
        study = optuna.create_study(storage=opened, study_name=name, direction="minimize")
        for key, value in _attributes(found, len(trials)).items():
            study.set_user_attr(key, value)
        study.set_metric_names([_METRIC])
        _attach_note(opened, opened.get_study_id_from_name(name), note(found))
        study.add_trials(trials)
    return name


def _optuna() -> ModuleType:
    try:
        import optuna
    except ImportError as error:
        raise PlanError(
            "a study needs Optuna, which is not installed: install the extra with `pip install 'dataeff[optuna]'`"
        ) from error
    found: ModuleType = optuna
    return found


@contextmanager
def _quiet(optuna: ModuleType) -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            # Names of metrics may change in a later version of Optuna.
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


@contextmanager
def _explained(storage: str) -> Iterator[None]:
    from optuna.exceptions import OptunaError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except ImportError as error:
        raise PlanError(f"{shown(storage)} needs a database driver that is not installed ({error})") from error
    except (OptunaError, SQLAlchemyError) as error:
        why = shown(str(error).splitlines()[0])  # the rest is SQL
        raise StorageError(
            f"the study cannot be written to {shown(storage)} ({why}): give a URL such as sqlite:///study.db, in a "
            "folder that is there, or the path of a journal file"
        ) from error


def _open(optuna: ModuleType, storage: str) -> Any:
    if "://" in storage:
        return optuna.storages.RDBStorage(storage)
    path = Path(storage)
    if path.is_dir():
        raise StorageError(f"{path} is a folder: give the path of a journal file, or the URL of a database")
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file() and path.stat().st_size:
            _check_journal(path)
        backend = optuna.storages.journal.JournalFileBackend(str(path))
        return optuna.storages.JournalStorage(backend)


def _check_journal(path: Path) -> None:
    """Refuse other files: Optuna would append to them."""
    with path.open("rb") as file:
        line = file.readline()
    try:
        known = "op_code" in json.loads(line)
    except (ValueError, TypeError):
        known = False
    if not known:
        raise FormatError(f"{path} is not a journal file of Optuna's: give the path of one, or of a new file")


def _remove(optuna: ModuleType, name: str, storage: Any, fingerprint: str) -> None:
    study = optuna.load_study(study_name=name, storage=storage)
    if study.user_attrs.get(_MARK) != fingerprint:
        raise PlanError(f"the storage holds a study {name!r} that is not of this comparison: give another storage")
    optuna.delete_study(study_name=name, storage=storage)


def _attributes(found: Outcome, num_trials: int) -> dict[str, Any]:
    plan = found.plan
    return {
        _MARK: plan["fingerprint"],
        "num_trials": num_trials,
        "baseline": found.baseline.candidate,
        "budget_tokens": plan["budget_tokens"],
        "deciding_size": _deciding(found),
        "target": found.target,
        "annealed_target": found.annealed_target,
        "team": plan["team"],
        "project": plan["project"],
        "candidates": {row.candidate: _judged(row) for row in found.rows},
    }


def _attach_note(storage: Any, study_id: int, text: str) -> None:
    """Write what the dashboard shows as the study's note; a program that knows no notes sees nothing of it."""
    storage.set_study_system_attr(study_id, "dashboard:note_ver", 1)
    for piece, start in enumerate(range(0, len(text), _NOTE_CHARS)):
        storage.set_study_system_attr(study_id, f"dashboard:note_str:{piece}", text[start : start + _NOTE_CHARS])


def note(found: Outcome) -> str:
    """What was found, in Markdown: a row a candidate, then how to read the trials."""
    lines = [f"## {len(found.rows)} candidates, of which {_plain(found.baseline.candidate)} is the baseline", ""]
    for target in (found.target, found.annealed_target):
        if target is not None:
            rule, phase = _plain(target["rule"]), _plain(target["phase"])
            lines += [f"Target, learning rate {phase}: a loss of {target['loss']:.4f} nats a token ({rule}).", ""]
    lines += [
        "| candidate | corpus | state | tokens to target | against the baseline | verdict |",
        "|---" * 6 + "|",
    ]
    for row in found.rows:
        read = row.headline
        figures = (read.described.words, read.ratio.words if read.ratio else "", read.verdict) if read else ("", "", "")
        cells = (row.candidate, row.corpus, f"{row.state}: {row.why}", *figures)
        lines.append("".join(f"| {_plain(cell)} " for cell in cells) + "|")
    lines += [
        "",
        f"Complete trials are runs of the proxy {_plain(_deciding(found))} that came to "
        f"{found.plan['budget_tokens']:,} tokens. A trial is pruned where its candidate was stopped, or its proxy is a "
        "smaller one, whose loss compares with none of the others' and is no value. The best trial is the luckiest "
        "run: the table says what was found.",
    ]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(text.split()))


def _judged(row: Row) -> dict[str, Any]:
    read = row.headline
    said: dict[str, Any] = {"state": row.state, "why": row.why, "verdict": read.verdict if read else None}
    if read is not None:
        said["tokens_to_target"] = read.described.mean_tokens
        said["tokens_interval"] = [_finite(read.described.low_tokens), _finite(read.described.high_tokens)]
        said["ratio"] = read.ratio.ratio if read.ratio else None
        said["ratio_interval"] = [_finite(read.ratio.low), _finite(read.ratio.high)] if read.ratio else None
        said["p_value"] = read.p_value
    return said


def _finite(value: float | None) -> float | None:
    """JSON has no infinity, though Python would write one."""
    return value if value is not None and math.isfinite(value) else None


def _frozen(optuna: ModuleType, found: Outcome, trial: Trial) -> Any:
    row = next(row for row in found.rows if row.candidate == trial.candidate)
    losses = losses_of(found, trial)
    state = _state(optuna, found, trial)
    params, distributions = _params(optuna, found, row)
    valued = state.name in ("COMPLETE", "PRUNED") and trial.size == _deciding(found) and losses
    annealed = _annealed(found, trial)
    frozen = optuna.trial.create_trial(
        state=state,
        value=losses[max(losses)] if valued else None,
        params=params,
        distributions=distributions,
        user_attrs={
            "candidate": trial.candidate,
            "seed": trial.seed,
            "size": trial.size,
            "corpus": row.corpus,
            "why": trial.failure or row.why,
            "device_hours": trial.device_ns / NS_PER_HOUR,
            **({"annealed_loss_by_tokens": annealed} if annealed else {}),
        },
        intermediate_values=losses,
    )
    span = span_ns(trial)
    if span is not None:
        # Optuna's times are local and without a zone.
        frozen.datetime_start = datetime.fromtimestamp(span[0] / 1e9)
        frozen.datetime_complete = datetime.fromtimestamp(span[1] / 1e9) if state.is_finished() else None
    return frozen


def _state(optuna: ModuleType, found: Outcome, trial: Trial) -> Any:
    states = optuna.trial.TrialState
    complete = states.COMPLETE if trial.size == _deciding(found) else states.PRUNED
    return {"failed": states.FAIL, "stopped": states.PRUNED, "paused": states.RUNNING, "complete": complete}[
        ended(found, trial)
    ]


def _deciding(found: Outcome) -> str:
    """The size of the proxy that decides: the last one."""
    return str(list(found.plan["proxies"])[-1])


def _params(optuna: ModuleType, found: Outcome, row: Row) -> tuple[dict[str, Any], dict[str, Any]]:
    """The corpus, and the weight of each source that any candidate has."""
    corpora = sorted({entry.corpus for entry in found.rows})
    params: dict[str, Any] = {"corpus": row.corpus}
    distributions: dict[str, Any] = {"corpus": optuna.distributions.CategoricalDistribution(corpora)}
    for source in dict.fromkeys(source for entry in found.rows for source in entry.weights):
        # Weights sum to 1 up to rounding, so that of an only source may be a hair above.
        params[f"weight.{source}"] = min(1.0, row.weights.get(source, 0.0))
        distributions[f"weight.{source}"] = optuna.distributions.FloatDistribution(0.0, 1.0)
    return params, distributions


def _annealed(found: Outcome, trial: Trial) -> dict[str, float]:
    """Last loss of each annealed branch, by its tokens as text: keys of JSON are."""
    ends = {}
    for branch in found.trials:
        same = (branch.candidate, branch.seed, branch.size) == (trial.candidate, trial.seed, trial.size)
        if same and branch.annealed and not branch.failure and branch.losses:
            tokens, loss = list(losses_of(found, branch).items())[-1]
            ends[tokens] = loss
    return {str(tokens): ends[tokens] for tokens in sorted(ends)}
