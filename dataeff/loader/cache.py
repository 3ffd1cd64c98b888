"""A bounded folder of shards that lie elsewhere, shared by all processes of a machine."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec

from dataeff.checksums import crc32c_of_file
from dataeff.errors import InputError, PlanError
from dataeff.manifest import storage_errors

ATTEMPTS = 3


class ShardCache:
    """Fetches whole shards, checks them, and removes those that were used longest ago when there is no room.

    With shards shuffled in windows, all of a window are used again and again, and those of the last window not before
    the next epoch, so the oldest are the right ones to go. A file that goes while another process has it mapped stays
    readable there.

    Args:
        folder: Where; None is a folder in the user's cache folder.
        limit_bytes: What may lie in it. One shard is always allowed, however large.
    """

    def __init__(self, folder: str | Path | None, limit_bytes: int) -> None:
        if limit_bytes < 1:
            raise PlanError(f"cache_bytes is {limit_bytes}; it must be 1 or more")
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self.folder = Path(folder) if folder is not None else home / "dataeff" / "shards"
        self.limit_bytes = limit_bytes
        self.fetched = 0
        """Shards that this process has fetched."""

    def path(self, url: str) -> Path:
        """Where a shard lies, or would."""
        label = hashlib.blake2b(url.encode(), digest_size=8).hexdigest()
        return self.folder / f"{label}-{url.rsplit('/', 1)[-1]}"

    def holds(self, url: str) -> bool:
        """Whether it is there."""
        return self.path(url).is_file()

    def fetch(self, url: str, num_bytes: int, crc32c: str) -> Path:
        """A shard's local path; fetched if it is not there.

        Raises:
            InputError: It cannot be fetched, or what arrives is not what the manifest says, three times in a row.
            StorageError: The folder cannot be written.
        """
        path = self.path(url)
        with storage_errors(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            with _locked(path.with_suffix(".lock")):
                if not (path.is_file() and path.stat().st_size == num_bytes):
                    self._make_room(num_bytes)
                    self._fetch(url, path, num_bytes, crc32c)
        os.utime(path)
        return path

    def _fetch(self, url: str, path: Path, num_bytes: int, crc32c: str) -> None:
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        problem = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(0.1 * 4**attempt)
            try:
                files_at, remote = fsspec.core.url_to_fs(url)
                files_at.get_file(remote, str(temporary))
                size, found = temporary.stat().st_size, f"{crc32c_of_file(temporary):08x}"
                if size == num_bytes and found == crc32c:
                    temporary.replace(path)
                    self.fetched += 1
                    return
                problem = (
                    f"{size} bytes with the CRC-32C {found} arrived, but its manifest says {num_bytes} and {crc32c}"
                )
            except (OSError, ValueError) as error:
                problem = str(error) or type(error).__name__
            finally:
                temporary.unlink(missing_ok=True)
        raise InputError(f"{url} cannot be fetched: {problem}, {ATTEMPTS} times: check the network and the shard")

    def _make_room(self, num_bytes: int) -> None:
        kept = sorted(self.folder.glob("[!.]*.arrow"), key=lambda entry: entry.stat().st_mtime_ns)
        used = sum(entry.stat().st_size for entry in kept)
        for entry in kept:
            if used + num_bytes <= self.limit_bytes:
                return
            used -= entry.stat().st_size
            entry.unlink(missing_ok=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process of the machine at a time go on; a lock of a process that died is free."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
