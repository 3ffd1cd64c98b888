"""The report in a browser, opened from a file without a network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from dataeff.filters import Bounds
from dataeff.reports.page import write_report
from tests import finished_corpus
from tests.test_report import hostile_corpus

NAMES = ("chromium", "chromium-browser", "google-chrome")
SECTIONS = ("funnel", "rules", "duplicates", "mixture", "input", "cost", "recipe")
PAINTED = """() => {
  const canvases = [];
  const visit = (root) => {
    for (const element of root.querySelectorAll('*')) {
      if (element instanceof HTMLCanvasElement) canvases.push(element);
      if (element.shadowRoot) visit(element.shadowRoot);
    }
  };
  const painted = (chart) => {
    canvases.length = 0;
    visit(chart);
    return canvases.some((canvas) => {
      if (!canvas.width || !canvas.height) return false;
      const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
      copy.drawImage(canvas, 0, 0);
      return copy.getImageData(0, 0, canvas.width, canvas.height).data.some((byte) => byte);
    });
  };
  const shown = [...document.querySelectorAll('.chart')].filter((chart) => chart.getClientRects().length);
  return Object.fromEntries(shown.map((chart) => [chart.dataset.chart, painted(chart)]));
}"""

BACKGROUND = "() => getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).reduce((sum, x) => sum + +x, 0)"


def absent(message: str) -> NoReturn:
    """Skip what needs a browser or a page of others; fail where that is asked for."""
    if os.environ.get("DATAEFF_REQUIRE_BROWSER") == "1":
        pytest.fail(f"{message} (DATAEFF_REQUIRE_BROWSER=1 asks for it)")
    pytest.skip(message)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        absent(f"no browser on PATH ({', '.join(NAMES)}): install chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=found, headless=True, args=arguments)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = hostile_corpus(tmp_path_factory.mktemp("browser") / "out")
    finished_corpus.log(out, ("documents", 2.0, 3.5, 10_000_000))
    return write_report(out)


class Visit:
    """A page and all that it complained about or asked for."""

    def __init__(self, browser: Any, report: Path, *, width: int = 1280, dark: bool = False) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", offline=True
        )
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self._heard(message))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(report.as_uri())
        self.page.wait_for_function(f"() => Object.values(({PAINTED})()).every(Boolean)", timeout=20_000)

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


def test_the_page_draws_every_chart_asks_for_nothing_and_runs_no_text(browser: Any, report: Path) -> None:
    with Visit(browser, report) as visit:
        page = visit.page
        assert page.evaluate(PAINTED) == dict.fromkeys(("reasons", "outcomes", "rule-0", "overlap", "mixture"), True)
        for section in SECTIONS:
            assert page.locator(f"#{section} h2").is_visible()
        for chart in page.locator(".chart").all():
            if chart.is_visible():
                chart.scroll_into_view_if_needed()
                box = chart.bounding_box()
                page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 40)
                page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] / 2)
        assert "<script>window.HACKED=1</script>" in page.locator("#rules pre").first.inner_text()
        assert page.evaluate("window.HACKED") is None
        assert visit.requests == [report.as_uri()]
        assert visit.complaints == []


def test_the_policy_stops_a_script_that_is_not_the_pages_own(browser: Any, report: Path) -> None:
    with Visit(browser, report) as visit:
        visit.page.evaluate(
            """() => {
              const script = document.createElement('script');
              script.textContent = 'window.HACKED = 4';
              document.body.append(script);
            }"""
        )
        assert visit.page.evaluate("window.HACKED") is None
        assert any("Content Security Policy" in complaint for complaint in visit.complaints)


def test_a_hover_shows_the_hostile_source_as_text(browser: Any, report: Path) -> None:
    with Visit(browser, report) as visit:
        box = visit.page.locator("[data-chart=outcomes]").bounding_box()
        tip = visit.page.locator(".tip").first
        told = []
        for row in range(3):
            visit.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20 + 32 * row)
            tip.wait_for(state="visible", timeout=5000)
            told.append(tip.inner_text())
            assert tip.locator("script").count() == 0
        assert any(text.startswith("<script>window.HACKED=3") for text in told)
        assert all("kept" in text for text in told)
        assert visit.page.evaluate("window.HACKED") is None
        assert visit.complaints == []


def test_a_phone_scrolls_in_one_direction_only(browser: Any, report: Path) -> None:
    with Visit(browser, report, width=360) as visit:
        assert visit.page.evaluate("document.documentElement.scrollWidth") == 360
        assert visit.page.locator("#rule-select").is_visible()
        assert not visit.page.locator(".picker").is_visible()


def test_dark_is_dark_and_charts_follow_when_it_changes(browser: Any, report: Path) -> None:
    with Visit(browser, report, dark=True) as visit:
        assert visit.page.evaluate(BACKGROUND) < 150
        visit.page.emulate_media(color_scheme="light")
        visit.page.wait_for_function(f"() => Object.values(({PAINTED})()).every(Boolean)", timeout=20_000)
        assert visit.page.evaluate(BACKGROUND) > 600
        assert visit.complaints == []


def test_each_rule_has_a_panel_with_its_chart(browser: Any, tmp_path: Path) -> None:
    rules = {"a.one": Bounds(0, 1), "a.two": Bounds(0, 2), "b.three": Bounds(0, 3)}
    documents = [finished_corpus.Document(id=str(n), text="t", signals=dict.fromkeys(rules, n / 10)) for n in range(25)]
    with Visit(browser, write_report(finished_corpus.write(tmp_path / "out", [documents], rules))) as visit:
        page = visit.page
        assert page.locator(".panels article:visible h3").inner_text() == "a.one"
        page.locator("#tab-2").click()
        page.wait_for_function(f"() => ({PAINTED})()['rule-2'] === true", timeout=20_000)
        page.keyboard.press("ArrowUp")
        page.wait_for_function(f"() => ({PAINTED})()['rule-1'] === true", timeout=20_000)
        assert page.locator(".panels article:visible h3").inner_text() == "a.two"
        assert visit.complaints == []
