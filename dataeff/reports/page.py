"""`report.html`: one page that shows a corpus, and needs nothing but itself.

Text of documents is hostile. What stands between it and the reader: the template makes visible and escapes all that
it prints, and the page's own policy lets a browser run two scripts, named by their hash, and fetch nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jinja2
from bokeh.resources import Resources
from markupsafe import Markup, escape

from dataeff.manifest import committed
from dataeff.reports import plots
from dataeff.reports.contents import Contents, contents
from dataeff.reports.finished import open_finished
from dataeff.reports.quantities import count, cpu_hours, duration, hours, share, size, value
from dataeff.reports.visible import excerpt, one_line, visible

NAME = "report.html"
_FOLDER = Path(__file__).parent
_SCRIPT_ESCAPES = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}

_BREAKS = re.compile(r"[._/](?=[^._/])")
_UNITS = re.compile(r"(?<=\d) (?=%|[kMGT]?B\b|[MBT]\b|s\b|min\b|h\b)")


def breakable(text: str, limit: int) -> Markup:
    """A name on one line, which a narrow column may break after a dot, a slash or an underscore."""
    return Markup(_BREAKS.sub("\\g<0><wbr>", str(escape(one_line(text, limit)))))


def printable(printed: Any) -> Any:
    """What the template prints, made visible unless it is markup of ours."""
    return printed if isinstance(printed, Markup) else visible(str(printed))


def tight(text: str) -> str:
    """Numbers not parted from their units."""
    return _UNITS.sub("\u00a0", text)


_FILTERS: dict[str, Callable[..., Any]] = {
    "breakable": breakable,
    "count": count,
    "cpu_hours": cpu_hours,
    "duration": duration,
    "excerpt": excerpt,
    "hours": hours,
    "line": one_line,
    "share": share,
    "size": size,
    "tight": tight,
    "value": value,
}


def write_report(directory: Path) -> Path:
    """Write `report.html` of a finished corpus.

    Args:
        directory: Output directory of a run that ended.

    Returns:
        Where the report is.

    Raises:
        FormatError: The directory holds no finished corpus.
        StorageError: The report cannot be written.
    """
    shown = contents(open_finished(directory))
    path = directory / NAME
    with committed(path) as sink:
        sink.write(page(shown).encode("utf-8", "replace"))
    return path


def page(shown: Contents) -> str:
    """The report as HTML; equal for equal contents."""
    scripts = [library(), (_FOLDER / "page.js").read_text(encoding="utf-8")]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        finalize=printable,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(_FILTERS)
    return environment.get_template("page.html.jinja").render(
        shown=shown,
        style=(_FOLDER / "page.css").read_text(encoding="utf-8"),
        scripts=scripts,
        policy=policy(scripts),
        charts=json_block(_charts(shown)),
    )


def _charts(shown: Contents) -> dict[str, Any]:
    """Every chart by the name that its place in the page has."""
    figures: dict[str, Any] = {
        "reasons": plots.reasons(shown.whole, shown.reasons),
        "outcomes": plots.outcomes(shown.sources),
    }
    if shown.overlap:
        figures["overlap"] = plots.overlap(shown.overlap, shown.overlap_sources)
    if shown.mixture:
        figures["mixture"] = plots.mixture(shown.mixture, shown.unit)
    for number, rule in enumerate(shown.rules):
        figures[f"rule-{number}"] = plots.distribution(rule.distribution)
    return {name: plots.chart(figure) for name, figure in figures.items()}


def library() -> str:
    """BokehJS, only what the charts use."""
    sources: list[str] = Resources(mode="inline", components=["bokeh"], log_level="error").js_raw
    return "\n".join(sources).replace("</script", "<\\/script").replace("\r\n", "\n")


def policy(scripts: list[str]) -> str:
    """A content security policy under which only these scripts run, and nothing is fetched."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def json_block(content: Mapping[str, Any]) -> str:
    """JSON that can stand inside a script element, whatever its strings hold."""
    return json.dumps(content, allow_nan=True, separators=(",", ":")).translate(_SCRIPT_ESCAPES)
