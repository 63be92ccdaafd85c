"""Write the page from a Jinja template with autoescaping.

The page has a Content-Security-Policy that lists the hashes of its style sheet and its script. It
loads nothing, and foreign text cannot run a script or add a style.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup, escape

from agent.llm.recording import ChatExchange
from agent.report.reading import ReportRow, ReportRun, ReportSummary, read_exchanges, read_record
from agent.report.text import Clean, Cleaner, count, dollars, percent, seconds
from agent.results.kept import LOG, PATCH, RESULT
from agent.run.record import RunRecord, TestCounts, ValidationRecord
from agent.shared.files import REPORT_MARK

_CHUNK = 64 * 1024
_MOST_CALLS = 60  # an iterative solve makes a dozen
_MOST_ROWS = 60  # of each table and list of an instance

# With these limits of an instance, in characters, 500 make a file below 30 MB, which a phone can
# open.
_TOTAL = 13 * 1024 * 1024
_LEAST, _MOST = 4 * 1024, 512 * 1024


@dataclass(frozen=True, slots=True)
class CallView:
    """A model call, with prompt and reply unless bodies are left out."""

    exchange: ChatExchange
    prompt: Clean
    reply: Clean


@dataclass(frozen=True, slots=True)
class InstancePage:
    """What the page shows of one instance. Unknown parts are empty or None."""

    row: ReportRow
    record: RunRecord | None
    issue: Clean
    diff: Markup
    calls: tuple[CallView, ...]
    log: Clean

    @property
    def test_runs(self) -> list[tuple[str, TestCounts]]:
        """The test runs behind the verdict."""
        judged = self.validation
        if judged is None:
            return []
        runs = (
            ("base, selected tests", judged.before),
            ("base, the reply's test", judged.reproduction_before),
            ("patched, selected tests", judged.after),
            ("patched, the reply's test", judged.reproduction_after),
            ("patched with its own tests, selected tests", judged.whole),
        )
        return [(name, run) for name, run in runs if run is not None]

    @property
    def validation(self) -> ValidationRecord | None:
        """The validation that the verdict comes from."""
        return self.record.deciding if self.record else None

    @property
    def test_lists(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """Title, tone and names of tests, of the verdict and of the evaluation."""
        lists: list[tuple[str, str, tuple[str, ...]]] = []
        if (judged := self.validation) is not None:
            lists += [
                ("fail newly", "bad", judged.newly_failing),
                ("pass newly", "good", judged.newly_passing),
                ("decide: failed before, pass now", "good", judged.fail_to_pass),
                ("given, and not as they should be", "bad", judged.known_missed),
            ]
        if self.row.evaluated is not None:
            status = self.row.evaluated.tests_status
            lists += [
                ("FAIL_TO_PASS, failed", "bad", status.fail_to_pass.failure),
                ("FAIL_TO_PASS, passed", "good", status.fail_to_pass.success),
                ("PASS_TO_PASS, failed", "bad", status.pass_to_pass.failure),
                ("PASS_TO_PASS, passed", "good", status.pass_to_pass.success),
            ]
        return [one for one in lists if one[2]]


def _pages(run: ReportRun, clean: Cleaner, *, bodies: bool) -> Iterator[InstancePage]:
    share = min(_MOST, max(_LEAST, _TOTAL // max(1, len(run.rows))))
    tree = run.files
    for row in run.rows:
        record, diff, log = row.record, "", b""
        exchanges: list[ChatExchange] = []
        if tree is not None:
            exchanges = read_exchanges(tree, row.path)[:_MOST_CALLS]
            log, _ = tree.end(share, *row.path, LOG)
            diff = (tree.read(*row.path, PATCH) or b"").decode("utf-8", "replace")
            if record is None:
                found = read_record(tree.read(*row.path, RESULT) or b"")
                record = found if isinstance(found, RunRecord) else None  # `reading` has noted it
        diff = diff or (record.diff if record else "")
        of_call = share // (4 * max(1, len(exchanges))) if bodies else 0
        yield InstancePage(
            row,
            record,
            clean.head(row.issue, share // 8),
            coloured_diff(clean.head(diff, share // 5)),
            tuple(_call(one, clean, of_call) for one in exchanges),
            clean.tail(log.decode("utf-8", "replace"), share // 8),
        )


def _call(exchange: ChatExchange, clean: Cleaner, share: int) -> CallView:
    if not share:
        return CallView(exchange, Clean(), Clean())
    text = "\n\n".join(f"[{one.role}]\n{one.content}" for one in exchange.request.messages)
    return CallView(exchange, clean.head(text, share), clean.head(exchange.reply.text, share))


def coloured_diff(diff: Clean) -> Markup:
    """Return a diff as escaped HTML with its lines coloured by Pygments."""
    from pygments.lexers.diff import DiffLexer
    from pygments.token import Generic

    tones = {
        Generic.Inserted: "added",
        Generic.Deleted: "removed",
        Generic.Heading: "head",
        Generic.Subheading: "head",
    }
    parts = []
    for token, text in DiffLexer(stripnl=False, ensurenl=False).get_tokens(diff):
        tone = tones.get(token)
        span = Markup('<span class="{}">{}</span>')
        parts.append(span.format(tone, text) if tone else escape(text))
    return Markup("").join(parts)


def render(
    run: ReportRun, summary: ReportSummary, clean: Cleaner, *, bodies: bool
) -> Iterator[bytes]:
    """Yield the page in pieces. Each instance is read while the page is written."""
    yield REPORT_MARK
    style, script = _asset("style.css"), _asset("script.js")
    values: dict[str, Any] = {
        "run": run,
        "summary": summary,
        "settings": sorted((name, json.dumps(value)) for name, value in run.settings.items()),
        "pages": _pages(run, clean, bodies=bodies),
        "bodies": bodies,
        "most": _MOST_ROWS,
        "style": Markup(style),  # noqa: S704  (our own file)
        "script": Markup(script),  # noqa: S704
        "policy": policy(style, script),
    }
    buffer: list[str] = []
    size = 0
    for text in _environment(clean).get_template("page.html.j2").generate(values):
        buffer.append(text)
        size += len(text)
        if size >= _CHUNK:
            yield "".join(buffer).encode("utf-8", "replace")
            buffer, size = [], 0
    yield "".join(buffer).encode("utf-8", "replace")


def policy(style: str, *scripts: str) -> str:
    """Return the Content-Security-Policy of a page with this style sheet and these scripts."""
    hashes = " ".join(f"'{_hash(script)}'" for script in scripts)
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src {hashes}; "
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
    environment.filters.update(dollars=dollars, seconds=seconds, count=count)
    environment.globals["percent"] = percent
    return environment
