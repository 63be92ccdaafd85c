"""Writes the page: Jinja templates, escaped throughout, under a policy that allows nothing else.

The policy (Content-Security-Policy) names the style sheet and the two scripts by their hashes.
Nothing is loaded from anywhere; a script or a style that foreign text might bring is not run.
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

from agent.pages import words
from agent.pages.instance import Pages
from agent.pages.limits import limits_for
from agent.pages.plots import (
    BARS_BOTTOM,
    BARS_TOP,
    CURVE_BOTTOM,
    CURVE_TOP,
    HEIGHT,
    LEFT,
    RIGHT,
    WIDTH,
)
from agent.pages.rows import Row, Run
from agent.pages.summary import VERDICTS, ReportSummary, plots
from agent.pages.taxonomy import GROUPS, shares
from agent.pages.text import Cleaner

MARK = b"<!doctype html>\n<!-- agent report -->\n"
"""What every report begins with: such a file may be replaced without being asked to."""

_CHUNK = 64 * 1024


def render(run: Run, summary: ReportSummary, clean: Cleaner, *, bodies: bool) -> Iterator[bytes]:
    """The page, piece by piece; the instances are read as they are written."""
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


def _values(run: Run, summary: ReportSummary, clean: Cleaner, *, bodies: bool) -> dict[str, Any]:
    style, early, script = _asset("style.css"), _asset("early.js"), _asset("script.js")
    single = run.tree is None
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
    """The Content-Security-Policy of a page with this style sheet and these scripts."""
    ours = " ".join(f"'{_hash(script)}'" for script in scripts)
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src {ours}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _asset(name: str) -> str:
    folder = resources.files("agent.pages") / "templates"
    return (folder / name).read_text(encoding="utf-8")


def _environment(clean: Cleaner) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("agent.pages", "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=clean.value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("dollars", "seconds", "count", "tokens"):
        environment.filters[name] = getattr(words, name)
    environment.globals["percent"] = words.percent
    return environment


def _settings(run: Run) -> list[tuple[str, str]]:
    """Name and value of each setting, by name."""
    return [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in sorted(run.settings.items())
    ]


def _choices(rows: Sequence[Row]) -> dict[str, list[str]]:
    """What the filters of the table offer: the values that there are."""
    verdicts = {row.verdict for row in rows if row.verdict}
    known = [verdict for verdict in VERDICTS if verdict in verdicts]
    groups = {row.cause.group for row in rows}
    return {
        "status": sorted({row.status for row in rows}),
        "verdict": [*known, *sorted(verdicts.difference(VERDICTS))],
        "cause": [group for group, _ in GROUPS if group in groups],
        "project": sorted({row.project for row in rows if row.project}),
    }
