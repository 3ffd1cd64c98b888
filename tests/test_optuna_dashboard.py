"""An exported study in Optuna Dashboard itself: what it serves, and what a browser shows of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any
from urllib.request import urlopen
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pytest

from dataeff.compare.optuna_study import export_study
from dataeff.compare.outcome import Outcome
from tests.test_comparison_exports import compared
from tests.test_report_browser import absent, browser  # noqa: F401

PATIENCE_MS = 30_000
HOSTILE = r'<img src=x onerror="window.HACKED=1"> | `a` *b* [c](d) \| _d_ # e'
NAME = "dataeff-0123456789ab"


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def dashboard(storage: str) -> Iterator[str]:
    """The address of a dashboard over a storage."""
    try:
        from optuna_dashboard import wsgi
    except ImportError:
        absent("Optuna Dashboard is not installed: `pip install optuna-dashboard`")
    server = make_server("127.0.0.1", 0, wsgi(storage), server_class=Server, handler_class=Quiet)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def asked(address: str) -> Any:
    with urlopen(address) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The small comparison of the exports, with something said that is no plain text; for a note of some length."""
    outcome = compared(tmp_path_factory.mktemp("compared"))
    baseline, even, *others = outcome.rows
    return replace(outcome, rows=(replace(baseline, why="carried " * 400), replace(even, why=HOSTILE), *others))


@pytest.mark.parametrize("address", ["{}/study.log", "sqlite:///{}/study.db"])
def test_the_dashboard_serves_each_trial_with_its_state_value_and_curve(
    found: Outcome, tmp_path: Path, address: str
) -> None:
    storage = address.format(tmp_path)
    assert export_study(found, storage) == NAME
    with dashboard(storage) as served:
        (study,) = asked(f"{served}/api/studies")["study_summaries"]
        assert (study["study_name"], study["directions"]) == (NAME, ["minimize"])
        shown = asked(f"{served}/api/studies/{study['study_id']}")
    assert shown["objective_names"] == ["validation loss"]
    told = [{entry["key"]: entry["value"] for entry in trial["user_attrs"]} for trial in shown["trials"]]
    states = [
        (said["candidate"], said["seed"], said["size"], trial["state"], trial.get("values"))
        for said, trial in zip(told, shown["trials"], strict=True)
    ]
    assert states == [
        # Better than all of the full size, but a smaller proxy's loss compares with none.
        ("raw", "0", "small", "Pruned", None),
        ("raw", "0", "full", "Complete", [2.5]),
        ("raw", "1", "full", "Complete", [pytest.approx(2.495)]),
        ("even", "0", "full", "Complete", [2.5]),
        ("even", "1", "full", "Running", None),
        ("clean", "0", "full", "Pruned", [4.0]),
        ("clean", "1", "full", "Fail", None),
    ]
    assert [trial["number"] for trial in shown["best_trials"]] == [2]
    even, failed = shown["trials"][3], shown["trials"][6]
    assert {entry["name"]: entry["param_external_value"] for entry in even["params"]} == {
        "corpus": "all",
        "weight.books": "0.5",
        "weight.web": "0.5",
    }
    curve = [(entry["step"], entry["value"]) for entry in even["intermediate_values"]]
    assert curve == [(1000, 4.0), (2000, 3.5), (3000, 3.0), (4000, 2.5)]
    assert failed["intermediate_values"][-1] == {"step": 2000, "value": "nan"}
    assert told[3]["device_hours"] == "1.0"


def test_a_person_sees_the_study_its_trials_and_what_was_found(
    browser: Any,  # noqa: F811
    found: Outcome,
    tmp_path: Path,
) -> None:
    storage = f"sqlite:///{tmp_path}/study.db"
    export_study(found, storage)
    with dashboard(storage) as served:
        context = browser.new_context(viewport={"width": 1500, "height": 1000})
        context.route(lambda url: not url.startswith(f"{served}/"), lambda route: route.abort())
        page, complaints, elsewhere = context.new_page(), [], []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: None if request.url.startswith(served) else elsewhere.append(request.url))
        page.set_default_timeout(PATIENCE_MS)

        page.goto(served)
        page.get_by_text(f"1. {NAME}").wait_for()
        page.get_by_text("Direction: MINIMIZE").wait_for()
        page.get_by_text(f"1. {NAME}").click()

        page.get_by_text("Best Trial (number=2)").wait_for()
        page.get_by_text("2.495", exact=True).wait_for()
        page.get_by_text("Params = [corpus: all, weight.books: 0.75, weight.web: 0.25]").wait_for()
        page.locator(".ytitle", has_text="validation loss").first.wait_for()
        # Without the smaller proxy, and the one that diverged.
        page.locator(".legendtext", has_text="trial #5").wait_for()
        curves = page.locator(".legendtext", has_text="trial #").all_text_contents()
        assert [curve.strip() for curve in curves] == [
            "trial #1",
            "trial #2",
            "trial #3",
            "trial #4 (running)",
            "trial #5",
        ]

        page.goto(f"{served}/dashboard/studies/1/trials?numbers=3")
        page.get_by_text("Trial 3 (trial_id=4)").wait_for()
        text = " ".join(page.locator("body").inner_text().split())
        assert "Trial 1 Complete Trial 2 Complete Best Trial" in text
        assert "Trial 4 Running Trial 5 Pruned Trial 6 Fail" in text
        assert "Value 2.5 Intermediate Values 1000 4 2000 3.5 3000 3 4000 2.5" in text
        assert "Parameter corpus all weight.books 0.5 weight.web 0.5" in text
        assert "candidate even corpus all device_hours 1.0 seed 0 size full why" in text

        page.goto(f"{served}/dashboard/studies/1/note")
        page.locator("table").wait_for()
        rows = [row.locator("td").all_inner_texts() for row in page.locator("tbody tr").all()]
        words = [
            (row.headline.described.words, row.headline.ratio.words if row.headline.ratio else "", row.headline.verdict)
            for row in found.rows
        ]
        said = [(row.candidate, row.corpus, f"{row.state}: {' '.join(row.why.split())}") for row in found.rows]
        assert [tuple(row) for row in rows] == [(*start, *end) for start, end in zip(said, words, strict=True)]
        assert page.locator("h2", has_text="3 candidates, of which raw is the baseline").is_visible()
        assert page.get_by_text("The best trial is the luckiest run").is_visible()
        assert page.locator("table img, table a, table em, table code").count() == 0
        assert page.evaluate("window.HACKED") is None
        assert elsewhere == []
        assert complaints == []
        context.close()
