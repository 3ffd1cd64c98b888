from __future__ import annotations

import dataclasses
import errno
import zlib
from pathlib import Path

import google_crc32c
import pytest

from dataeff import manifest
from dataeff.errors import FormatError, PlanError, StorageError


def test_a_file_appears_whole_with_its_size_and_checksum(tmp_path: Path):
    records: dict[str, manifest.FileRecord] = {}
    with manifest.committed(tmp_path / "new" / "file", records) as sink:
        sink.write(b"one ")
        sink.write(memoryview(b"two"))
        assert not (tmp_path / "new" / "file").exists()
    assert (tmp_path / "new" / "file").read_bytes() == b"one two"
    expected = f"{google_crc32c.value(b'one two'):08x}"
    assert records == {"file": manifest.FileRecord(num_bytes=7, crc32c=expected)}
    assert zlib.crc32(b"one two") != int(expected, 16)


def test_an_error_leaves_nothing_behind_and_the_old_file_as_it_was(tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def interrupted() -> None:
        with manifest.committed(path) as sink:
            sink.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_named_with_what_to_do(tmp_path: Path):
    with (
        pytest.raises(StorageError, match=r"disk is full.*free some space and run the same command again"),
        manifest.committed(tmp_path / "file"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == []


@dataclasses.dataclass(frozen=True)
class Options:
    path: Path
    share: float
    names: tuple[str, ...] = ()


def test_equal_values_have_equal_fingerprints_and_others_do_not():
    first = manifest.fingerprint(Options(Path("a"), 0.1), {"x": 1, "y": float("inf")})
    assert first == manifest.fingerprint(Options(Path("a"), 0.1), {"y": float("inf"), "x": 1})
    assert first != manifest.fingerprint(Options(Path("a"), 0.1, ("z",)), {"x": 1, "y": float("inf")})
    assert manifest.fingerprint("ab", "c") != manifest.fingerprint("a", "bc")
    assert manifest.fingerprint(1) != manifest.fingerprint("1")


def test_what_hides_state_has_no_fingerprint():
    captured = 3

    def closure() -> int:
        return captured

    for value in (closure, lambda: 1, object(), open):
        with pytest.raises(PlanError):
            manifest.fingerprint(value)


def test_a_manifest_that_is_not_json_is_named(tmp_path: Path):
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(FormatError, match=r"manifest\.json is not a manifest"):
        manifest.read(tmp_path / "manifest.json")
    assert manifest.read(tmp_path / "absent.json") is None
