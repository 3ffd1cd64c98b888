"""The diagnosis in a browser, opened from a file without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dataeff.prices import price_of
from dataeff.profile.diagnosis import diagnose
from dataeff.reports.diagnosis_page import page, time_line, write_page
from dataeff.steps import RunRecord, read_run
from tests.recorded_runs import loaded, stepwise
from tests.test_report_browser import BACKGROUND, browser  # noqa: F401

HOSTILE = '<script>window.HACKED=1</script>"><img src=x onerror="window.HACKED=2">'


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    directory = tmp_path_factory.mktemp("diagnosis") / "run"
    times = {"storage_ms": 20, "decode_ms": 10, "loop_ms": 6}
    return read_run(loaded(directory, workers=2, run=HOSTILE, command=HOSTILE, device=HOSTILE, **times))


@pytest.fixture(scope="module")
def report(record: RunRecord, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = diagnose(record, price=price_of("H100"), cores=8)
    return write_page(found, record, tmp_path_factory.mktemp("page") / "run.html")


def visit(browser: Any, report: Path, *, width: int = 1280, dark: bool = False) -> tuple[Any, list[str], list[str]]:  # noqa: F811
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", offline=True
    )
    opened, complaints, requests = context.new_page(), [], []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(report.as_uri())
    return opened, complaints, requests


def test_the_page_shows_every_part_and_asks_for_nothing(browser: Any, report: Path) -> None:  # noqa: F811
    opened, complaints, requests = visit(browser, report)
    for section in ("change", "stalls", "steps", "tried", "facts"):
        assert opened.locator(f"#{section} h2").is_visible()
    assert 1 <= opened.locator(".advice > li").count() <= 3
    assert opened.locator(".lanes svg").count() == 3
    shown = opened.locator(".lanes rect").evaluate_all("all => all.map((one) => getComputedStyle(one).fill)")
    assert len(set(shown)) >= 4
    assert "rgb(0, 0, 0)" not in shown
    assert opened.evaluate("window.HACKED") is None
    assert HOSTILE[:20] in opened.locator("h1").inner_text()
    assert requests == [report.as_uri()]
    assert complaints == []
    opened.context.close()


def test_a_phone_scrolls_in_one_direction_only_and_dark_is_dark(browser: Any, report: Path) -> None:  # noqa: F811
    opened, complaints, _ = visit(browser, report, width=360, dark=True)
    assert opened.evaluate("document.documentElement.scrollWidth") == 360
    assert opened.evaluate(BACKGROUND) < 150
    assert opened.locator(".advice h3").first.bounding_box()["width"] > 250
    assert complaints == []
    opened.context.close()


def test_equal_diagnoses_make_equal_pages(record: RunRecord) -> None:
    assert page(diagnose(record, cores=8), record) == page(diagnose(record, cores=8), record)


def test_pieces_of_the_time_line_lie_on_it_in_order(record: RunRecord) -> None:
    line = time_line(diagnose(record, cores=8), record)
    assert line is not None
    for lane in line.lanes[1:]:
        end = 0.0
        for piece in lane.pieces:
            assert piece.left >= end - 1e-6
            end = piece.left + piece.width
        assert end <= 1000.001
    assert {"loop", "storage", "decode"} <= set(line.kinds)


def test_a_record_without_batches_has_a_page_too(tmp_path: Path) -> None:
    made = read_run(stepwise(tmp_path / "run", [{"ms": 10}] * 30))
    shown = page(diagnose(made), made)
    assert "Nothing can be predicted" in shown
    assert "It never waited" in shown


def test_ranks_stand_side_by_side(tmp_path: Path) -> None:
    for rank, wait in enumerate((1, 40)):
        row = {"ms": 100, "stall": {"storage": wait}, "also": {"sync_ns": (45 - wait) * 1_000_000}}
        stepwise(tmp_path / "run", [row] * 30, rank=rank, world=2)
    made = read_run(tmp_path / "run")
    shown = page(diagnose(made), made)
    assert "Rank 1 waits for its data" in shown
    assert ">culprit<" in shown
