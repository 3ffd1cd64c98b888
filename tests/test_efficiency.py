"""Utilisation and health: published figures, devices that answer as the driver does, ranks that are gone."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from dataeff.__main__ import app
from dataeff.efficiency import utilisation
from dataeff.efficiency.health import health, idle
from dataeff.efficiency.mfu import PEAKS, Shape, mfu, peak
from dataeff.efficiency.utilisation import idle_holders, nvml, read_devices
from dataeff.errors import InputError, PlanError
from tests.recorded_runs import CLOCK, stepwise

PALM = Shape(parameters=540.35e9, layers=118, heads=48, head_dim=256, sequence_length=2048)
STARTED_NS = 1_790_000_000_000_000_000
"""Time of day when the monotonic clock of the made-up runs read a second."""


def test_mfu_is_what_palm_reports() -> None:
    assert mfu(238.3e3, PALM.flops_per_token, 6144, 275e12) == pytest.approx(0.4623, abs=5e-5)


def test_an_mfu_above_one_is_a_wrong_peak_or_count() -> None:
    with pytest.raises(PlanError, match="dense peak"):
        mfu(238.3e3, PALM.flops_per_token, 614, 275e12)


@pytest.mark.parametrize(
    ("device", "flops_per_s"),
    [
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H200", 989e12),
        ("h100", 989e12),
    ],
)
def test_peaks_are_dense(device: str, flops_per_s: float) -> None:
    assert peak(device).flops_per_s == flops_per_s
    assert peak(device).source
    assert all(known.flops_per_s < 1979e12 / 2 for known in PEAKS)


@pytest.mark.parametrize("device", ["NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA GH200 480GB", "H300", "AMD EPYC"])
def test_a_device_whose_peak_is_not_known_is_named_with_the_nearest(device: str) -> None:
    with pytest.raises(PlanError, match=r"known are .*(A100|H100|H200).* give its dense"):
        peak(device)


class Driver:
    """Answers as pynvml does."""

    def __init__(self, busy: int, processes: list[tuple[int, int | None]], name: str | bytes = "NVIDIA H100") -> None:
        self.busy, self.processes, self.name, self.open = busy, processes, name, 0

    def nvmlInit(self) -> None:  # noqa: N802
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802
        return f"handle {index}"

    def nvmlDeviceGetName(self, handle: Any) -> str | bytes:  # noqa: N802
        return self.name

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=self.busy, memory=0)

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:  # noqa: N802
        return SimpleNamespace(total=85_899_345_920, used=2**30, free=84_825_604_096)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.processes]


def test_devices_are_read_as_the_driver_answers_and_it_is_closed_again() -> None:
    driver = Driver(37, [(11, 2**30), (12, None), (13, 2**64 - 1)], name=b"NVIDIA A100-SXM4-80GB")
    (device,) = read_devices(driver)
    assert (device.name, device.busy_share) == ("NVIDIA A100-SXM4-80GB", 0.37)
    assert [holder.memory_bytes for holder in device.holders] == [2**30, None, None]
    assert driver.open == 0


def test_a_driver_that_refuses_is_named() -> None:
    driver = Driver(0, [])
    driver.nvmlDeviceGetCount = lambda: 1 / 0  # type: ignore[assignment, method-assign, return-value]
    with pytest.raises(PlanError, match="nvidia-smi"):
        read_devices(driver)
    assert driver.open == 0


def test_a_process_that_holds_memory_while_no_kernel_runs_is_named_and_others_are_not() -> None:
    quiet = read_devices(Driver(0, [(11, 2**31)]))
    busy = read_devices(Driver(5, [(11, 2**31)]))
    other = read_devices(Driver(0, [(12, 2**31)]))
    (sentence,) = idle(readings=[quiet, quiet])
    assert sentence.startswith("process 11 holds 2.0 GiB of device 0 (NVIDIA H100)")
    assert idle(readings=[quiet, busy, quiet]) == ()
    assert idle(readings=[quiet, other]) == ()
    assert idle_holders(()) == ()


def test_without_the_driver_or_its_package_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(utilisation.importlib, "import_module", absent)
    assert nvml() is None
    assert idle() == ()
    broken = Driver(0, [])
    broken.nvmlInit = lambda: 1 / 0  # type: ignore[assignment, method-assign, return-value]
    monkeypatch.setattr(utilisation.importlib, "import_module", lambda name: broken)
    assert nvml() is None


def going(directory: Path, steps: dict[int, int], world: int) -> Path:
    """Ranks that took so many steps of 100 ms; their files are as old as their last step."""
    for rank, count in steps.items():
        stepwise(directory, [{"ms": 100}] * count, rank=rank, world=world)
        ended = STARTED_NS + 10**9 + count * 10**8
        for path in (directory / "steps").glob(f"rank-{rank:05d}-*"):
            os.utime(path, ns=(ended, ended))
    return directory


def seconds(after: float) -> int:
    return STARTED_NS + 10**9 + round(after * 1e9)


def test_the_clocks_of_made_up_runs_are_those_of_the_tests() -> None:
    assert (CLOCK.unix_ns, CLOCK.clock_ns) == (STARTED_NS, 10**9)


def test_a_run_that_goes_on_is_well(tmp_path: Path) -> None:
    found = health(going(tmp_path / "run", {0: 1000, 1: 1000}, 2), now_unix_ns=seconds(102))
    assert found.well
    assert [rank.state for rank in found.ranks] == ["well", "well"]
    assert found.ranks[0].age_s == pytest.approx(2.0)
    assert found.ranks[0].step_s == pytest.approx(0.1)
    assert found.ranks[0].last_step == 999


def test_a_rank_that_stopped_long_ago_is_named_with_what_to_do(tmp_path: Path) -> None:
    found = health(going(tmp_path / "run", {0: 2000, 1: 600, 2: 2000}, 3), now_unix_ns=seconds(202))
    assert [rank.state for rank in found.ranks] == ["well", "late", "well"]
    (sentence,) = found.sentences
    assert sentence.startswith("rank 1 took its last step, 599, 142 s ago")
    assert "py-spy" in sentence


def test_rows_that_are_not_written_yet_do_not_make_a_rank_late(tmp_path: Path) -> None:
    directory = going(tmp_path / "run", {0: 1000}, 1)
    assert health(directory, now_unix_ns=seconds(100 + 45)).well
    assert not health(directory, now_unix_ns=seconds(100 + 55)).well
    assert health(directory, late_steps=100, now_unix_ns=seconds(100 + 55)).well


def test_a_file_written_since_is_a_sign_of_life(tmp_path: Path) -> None:
    directory = going(tmp_path / "run", {0: 1000}, 1)
    (path, *_) = (directory / "steps").glob("*.parquet")
    os.utime(path, ns=(seconds(995), seconds(995)))
    assert health(directory, now_unix_ns=seconds(1000)).well


def test_a_rank_on_a_machine_that_was_started_long_before_is_late_all_the_same(tmp_path: Path) -> None:
    directory = going(tmp_path / "run", {0: 2000}, 2)
    elsewhere = replace(CLOCK, host="another machine", clock_ns=10**16)
    stepwise(directory, [{"ms": 100}] * 600, rank=1, rank_clock=elsewhere, began_ns=10**16 + 10**9, world=2)
    for path in (directory / "steps").glob("rank-00001-*"):
        os.utime(path, ns=(STARTED_NS, STARTED_NS))
    found = health(directory, now_unix_ns=seconds(202))
    assert [rank.state for rank in found.ranks] == ["well", "late"]
    assert found.ranks[1].age_s == pytest.approx(142.0)


def test_missing_ranks_and_a_run_that_is_over_are_named(tmp_path: Path) -> None:
    found = health(going(tmp_path / "run", {0: 100, 2: 100}, 4), now_unix_ns=seconds(11))
    assert [rank.state for rank in found.ranks] == ["well", "missing", "well", "missing"]
    assert found.sentences[0].startswith("ranks 1, 3 of 4 left no steps")
    over = health(going(tmp_path / "over", {0: 100, 1: 100}, 2), now_unix_ns=seconds(10_000))
    assert over.sentences == ("no rank has taken a step for 9990 s: the run has ended, or all of it hangs",)


def test_the_command_exits_with_1_where_anything_is_wrong(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["health", str(going(tmp_path / "run", {0: 100}, 2))])
    assert done.exit_code == 1
    assert "0 of 2 ranks well" in done.output
    assert "missing" in done.output
    empty = CliRunner().invoke(app, ["health", str(tmp_path)])
    assert isinstance(empty.exception, InputError)
