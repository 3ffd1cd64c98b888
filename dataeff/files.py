"""Input files: which there are, which reader takes each, and how their columns go together."""

from __future__ import annotations

import functools
import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dataeff import registry
from dataeff.columns import unify
from dataeff.errors import InputError
from dataeff.inputs import InputFile
from dataeff.streams import is_local

__all__ = ["InputFile", "find", "reader_for", "unify"]

_VERSION_KEYS = (
    "ETag",
    "etag",
    "version_id",
    "md5Hash",
    "mtime",
    "LastModified",
    "last_modified",
    "updated",
    "created",
)
_NEXT = "check its spelling, or give a file, a folder, a glob or an fsspec URL"


def find(patterns: Sequence[str], storage_options: Mapping[str, Any] | None = None) -> list[InputFile]:
    """Files that the patterns name, sorted by URL, each once.

    A pattern is a file, a folder, a glob or an fsspec URL of any of these. Of a folder, all files whose ending a
    reader knows are taken, at any depth; a folder that a glob matches is taken like a folder that was named. Files
    and folders whose name begins with a dot are passed over, unless they are named themselves. Local files have
    absolute paths as URLs.

    Args:
        patterns: What to look for, in any order.
        storage_options: Options for fsspec.

    Raises:
        InputError: A pattern matches nothing, or something it names is not there or cannot be looked at.
    """
    found: dict[str, InputFile] = {}
    for pattern in patterns:
        local = pattern.removeprefix("file://").removeprefix("local://")
        try:
            files = list(_local(local) if is_local(local) else _remote(pattern, dict(storage_options or {})))
        except (OSError, ValueError, ImportError) as error:
            raise InputError(f"{pattern} cannot be looked at: {error}; {_NEXT}") from error
        if not files:
            raise InputError(
                f"nothing matches {pattern}; it must match at least one file, and a folder must hold one that ends in "
                f"{', '.join(sorted(_suffixes()))}: {_NEXT}"
            )
        found.update((file.url, file) for file in files)
    return [found[url] for url in sorted(found)]


def reader_for(file: InputFile, name: str | None, storage_options: Mapping[str, Any] | None = None) -> Any:
    """The reader called `name`, or the one with the longest ending that fits the file.

    Raises:
        InputError: No reader knows the ending, or two claim it.
        PlanError: No reader is called `name`.
    """
    if name is None:
        lower = file.url.lower()
        fitting = [suffix for suffix in _suffixes() if lower.endswith(suffix)]
        if not fitting:
            raise InputError(
                f"no reader knows the ending of {file.url}; it must be one of {', '.join(sorted(_suffixes()))}: rename "
                "the file, or name its reader with `Read(reader=...)` (`dataeff list readers`)"
            )
        claims = _suffixes()[max(fitting, key=len)]
        if len(claims) > 1:
            raise InputError(
                f"the readers {' and '.join(claims)} both take {file.url}; say which with `Read(reader=...)`"
            )
        name = claims[0]
    return registry.member("readers", name)(storage_options=dict(storage_options or {}))


@functools.cache
def _suffixes() -> dict[str, list[str]]:
    """Names of the readers by the ending that they claim, in lower case."""
    claims: dict[str, list[str]] = {}
    for name in registry.names("readers"):
        for suffix in registry.member("readers", name).suffixes:
            claims.setdefault(suffix.lower(), []).append(name)
    return claims


def _known(name: str) -> bool:
    return name.lower().endswith(tuple(_suffixes()))


def _local(pattern: str) -> Iterator[InputFile]:
    named = str(Path(pattern).expanduser())
    literal = os.path.lexists(named) or not glob.has_magic(named)
    for match in [named] if literal else glob.iglob(named, recursive=True):  # noqa: PTH207 (passes over hidden files)
        path = Path(os.path.abspath(match))  # noqa: PTH100 (a link keeps its own name, and so its ending)
        if path.is_dir():
            yield from (_local_file(inner) for inner in _inside(path) if _known(inner.name))
        else:
            yield _local_file(path)


def _inside(folder: Path) -> Iterator[Path]:
    """Files of a folder at any depth; links are followed, a folder that contains itself is entered once."""
    entered: set[tuple[int, int]] = set()

    def fail(error: OSError) -> None:
        raise error

    for root, folders, names in os.walk(folder, onerror=fail, followlinks=True):
        kept = []
        for name in sorted(folders):
            status = Path(root, name).stat()
            if not name.startswith(".") and (status.st_dev, status.st_ino) not in entered:
                entered.add((status.st_dev, status.st_ino))
                kept.append(name)
        folders[:] = kept
        yield from (Path(root, name) for name in names if not name.startswith("."))


def _local_file(path: Path) -> InputFile:
    status = path.stat()
    return InputFile(url=str(path), num_bytes=status.st_size, version=f"{status.st_size}-{status.st_mtime_ns}")


def _remote(pattern: str, storage_options: dict[str, Any]) -> Iterator[InputFile]:
    import fsspec

    system, path = fsspec.core.url_to_fs(pattern, **storage_options)
    if glob.has_magic(path) and not system.exists(path):
        matches = [match for match in system.glob(path) if not _hidden(match, path)]
    else:
        matches = [path]
    for match in matches:
        details = system.info(match)
        if details["type"] == "directory":
            for name, inner in system.find(match, detail=True).items():
                if _known(name) and not _hidden(name, f"{match.rstrip('/')}/*"):
                    yield _remote_file(pattern, system, inner)
        else:
            yield _remote_file(pattern, system, details)


def _hidden(name: str, pattern: str) -> bool:
    """Whether a part of the name that the pattern does not spell out begins with a dot."""
    spelled_out = re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]
    return any(part.startswith(".") for part in name[len(spelled_out) :].split("/"))


def _remote_file(pattern: str, system: Any, details: Mapping[str, Any]) -> InputFile:
    name = details["name"]
    url = remote_url(pattern, name, has_host=bool(system.storage_options.get("host")))
    if details.get("size") is None:
        raise InputError(f"the size of {url} is not known to its server; it must be: copy the file, and read the copy")
    version = next((str(details[key]) for key in _VERSION_KEYS if details.get(key)), None)
    return InputFile(url=url, num_bytes=int(details["size"]), version=version or str(system.ukey(name)))


def remote_url(pattern: str, path: str, *, has_host: bool) -> str:
    """The URL of a path that a file system lists, with the protocol, host and outer layers that `pattern` has.

    >>> remote_url("hdfs://name:9000/data/*.jsonl", "/data/a.jsonl", has_host=True)
    'hdfs://name:9000/data/a.jsonl'
    >>> remote_url("zip://*.txt::s3://bucket/archive.zip", "a.txt", has_host=False)
    'zip://a.txt::s3://bucket/archive.zip'
    """
    layers = pattern.split("::")
    at = next(number for number, layer in enumerate(layers) if "://" in layer)
    protocol, _, rest = layers[at].partition("://")
    host = rest.partition("/")[0] if has_host else ""
    layers[at] = path if "://" in path else f"{protocol}://{host}{path}"
    return "::".join(layers)
