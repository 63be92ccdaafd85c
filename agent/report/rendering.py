"""Write the page from Jinja templates with autoescaping.

The page has a Content-Security-Policy that lists the hashes of the style sheet and the two scripts.
It loads nothing, and foreign text cannot run a script or add a style.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from agent.report.instance import Pages, limits_for
from agent.report.plots import (
    BARS_BOTTOM,
    BARS_TOP,
    CURVE_BOTTOM,
    CURVE_TOP,
    HEIGHT,
    LEFT,
    RIGHT,
    WIDTH,
)
from agent.report.rows import GROUPS, ReportRow, ReportRun, shares
from agent.report.summary import VERDICTS, ReportSummary, plots
from agent.report.text import Cleaner, count, dollars, percent, seconds, tokens

MARK = b"<!doctype html>\n<!-- agent report -->\n"
"""The first bytes of every report. A file with them may be replaced without `--force`."""

_CHUNK = 64 * 1024


def render(
    run: ReportRun, summary: ReportSummary, clean: Cleaner, *, bodies: bool
) -> Iterator[bytes]:
    """Yield the page in pieces. Each instance is read while the page is written."""
    yield MARK
    values = _values(run, summary, clean, bodies=bodies)
    held: list[str] = []
    size = 0
    for text in _environment(clean).get_template("page.html.j2").generate(values):
        held.append(text)
        size += len(text)
        if size >= _CHUNK:
            yield "".join(held).encode("utf-8", "replace")
            held, size = [], 0
    yield "".join(held).encode("utf-8", "replace")


def _values(
    run: ReportRun, summary: ReportSummary, clean: Cleaner, *, bodies: bool
) -> dict[str, Any]:
    style, early, script = _asset("style.css"), _asset("early.js"), _asset("script.js")
    single = run.single is not None
    return {
        "run": run,
        "single": single,
        "summary": summary,
        "shares": shares(row.cause for row in run.rows),
        "tones": dict(GROUPS),
        "plots": () if single else plots(run.rows),
        "frame": _FRAME,
        "settings": _settings(run),
        "choices": _choices(run.rows),
        "pages": Pages(run, clean, limits_for(len(run.rows)), bodies=bodies),
        "bodies": bodies,
        "style": Markup(style),  # noqa: S704  (our own file)
        "early": Markup(early),  # noqa: S704
        "script": Markup(script),  # noqa: S704
        "policy": policy(style, early, script),
    }


_FRAME = {
    "width": WIDTH,
    "height": HEIGHT,
    "left": LEFT,
    "right": RIGHT,
    "bars_top": BARS_TOP,
    "bars_bottom": BARS_BOTTOM,
    "curve_top": CURVE_TOP,
    "curve_bottom": CURVE_BOTTOM,
}


def policy(style: str, *scripts: str) -> str:
    """Return the Content-Security-Policy of a page with this style sheet and these scripts."""
    ours = " ".join(f"'{_hash(script)}'" for script in scripts)
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src {ours}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _asset(name: str) -> str:
    folder = resources.files("agent.report") / "templates"
    return (folder / name).read_text(encoding="utf-8")


def _environment(clean: Cleaner) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("agent.report", "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=clean.value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(dollars=dollars, seconds=seconds, count=count, tokens=tokens)
    environment.globals["percent"] = percent
    return environment


def _settings(run: ReportRun) -> list[tuple[str, str]]:
    """Return (name, value) of each setting, sorted by name."""
    return [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in sorted(run.settings.items())
    ]


def _choices(rows: Sequence[ReportRow]) -> dict[str, list[str]]:
    """Return the values that the filters of the table offer."""
    verdicts = {row.verdict for row in rows if row.verdict}
    known = [verdict for verdict in VERDICTS if verdict in verdicts]
    groups = {row.cause.group for row in rows}
    return {
        "status": sorted({row.status for row in rows}),
        "verdict": [*known, *sorted(verdicts.difference(VERDICTS))],
        "cause": [group for group, _ in GROUPS if group in groups],
        "project": sorted({row.project for row in rows if row.project}),
    }
