"""A pytest plugin that writes one JSON line for each thing that happens to a test.

It runs inside the sandbox, in the target's interpreter: Python 3.7 or later, pytest 5 or later,
nothing beside the standard library and pytest, no warnings (projects turn them into errors). It
stands in a folder of its own, since that folder joins the target's PYTHONPATH.

The lines go to the pipe that SANDBOX_REPORT names. The last one is `finish`: without it the run
ended before pytest did, and what was written is not the whole. Two more accounts of the same run
come beside it: the JUnit file that pytest itself writes to SANDBOX_JUNIT, and the exit code. Where
PATCHSHOT_SEAL names a file, it holds a key, is removed at once, and each line is sealed with it
(`agent.validation.reports.seal`): code that finds the pipe cannot add lines that look like ours.

All of this is read and taken out of the environment before any file of the target is imported; so
pytest runs that tests start write nothing. The reader is agent.validation.reports.report.

This makes tampering evident, not impossible: code under test shares this process, and code that
was written against this very file can find the key and write what it likes.

PYTEST_DONT_REWRITE: nothing here is an assertion of a test, and rewriting takes time.
"""

# ruff: noqa: D102  (hooks are documented by pytest)

from __future__ import annotations

import hashlib
import hmac
import json
import os
from typing import Any

import patchshot_watch  # type: ignore[import-not-found]  # beside this file, inside
import pytest

# The end of a failure report names the error; what is above it is source that the reader knows.
TEXT_LIMIT = 6000

OUTCOMES = ("passed", "failed", "skipped")

# Of each line's seal, in hexadecimal digits: 64 bits cannot be guessed in one run.
SEAL_DIGITS = 16


class Recorder:
    """Writes lines from the process that was asked to; a forked child of a test writes none."""

    def __init__(self, path: str, key: bytes, junit: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._descriptor = os.open(path, flags, 0o600)
        self._process = os.getpid()
        self._key = key
        self._last = b""
        self._junit = junit
        self._session: Any = None
        self._traces: set[str] = set()
        self._watch = patchshot_watch.Watch(__name__)

    def write(self, **line: Any) -> None:
        if os.getpid() != self._process:
            return
        data = self._sealed(json.dumps(line).encode("ascii"))
        while data:
            data = data[os.write(self._descriptor, data) :]

    def _sealed(self, data: bytes) -> bytes:
        if not self._key:
            return data + b"\n"
        seal = hmac.new(self._key, self._last + data, hashlib.sha256).hexdigest()[:SEAL_DIGITS]
        self._last = seal.encode("ascii")
        return data + b"\t" + self._last + b"\n"

    # Before pytest's own plugin reads it.
    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: Any) -> None:
        if hasattr(config, "workerinput"):
            self._process = -1  # a worker of pytest-xdist: its controller reports for it
        elif self._junit and hasattr(config.option, "xmlpath"):
            config.option.xmlpath = self._junit
        else:
            self._junit = ""

    def pytest_sessionstart(self, session: Any) -> None:
        self._session = session
        runner = "pytest " + pytest.__version__
        self.write(event="begin", runner=runner, junit=bool(self._junit))

    def pytest_collection_finish(self, session: Any) -> None:
        self._traces.update(self._watch.changed())
        count = len({item.nodeid for item in session.items})
        self.write(event="collected", count=count)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.write(event="start", id=nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.outcome not in OUTCOMES:  # pytest-rerunfailures: the last try follows
            return
        if report.outcome == "passed" and report.when != "call":
            return  # nothing is known of the test before it was called, nor changed after
        self.write(
            event="result",
            id=report.nodeid,
            phase=report.when,
            outcome=report.outcome,
            xfail=hasattr(report, "wasxfail"),
            text=_text(report),
        )

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome != "passed":
            self.write(
                event="result",
                id=report.nodeid,
                phase="collect",
                outcome=report.outcome,
                xfail=False,
                text=_text(report),
            )

    # Last of all: other plugins may still change the exit status of the session.
    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: Any) -> None:
        self._traces.update(self._watch.changed())
        self._traces.update(patchshot_watch.steering(session.config))

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        session = self._session
        if session is None:
            return
        self.write(
            event="finish",
            status=int(session.exitstatus),
            failed=int(session.testsfailed),
            stopped=bool(session.shouldstop or getattr(session, "shouldfail", False)),
            traces=sorted(self._traces)[: patchshot_watch.TRACES_LIMIT],
        )


# The first hook of all, called before any conftest.py of the target is imported.
@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: Any) -> None:
    """Start recording, where somebody listens."""
    path = os.environ.pop("SANDBOX_REPORT", "")
    junit = os.environ.pop("SANDBOX_JUNIT", "")
    key = _key(os.environ.pop("PATCHSHOT_SEAL", ""))
    if path:
        early_config.pluginmanager.register(Recorder(path, key, junit), "patchshot-recorder")


def _key(path: str) -> bytes:
    if not path:
        return b""
    with open(path, "rb") as file:  # noqa: PTH123  (pathlib would be imported for one call)
        key = file.read()
    os.unlink(path)  # noqa: PTH108
    return key


def _text(report: Any) -> str:
    if report.outcome == "passed":
        return ""
    longrepr = report.longrepr
    if isinstance(longrepr, tuple):  # a skip: (path, line, reason)
        return str(longrepr[-1])
    return str(longrepr or "")[-TEXT_LIMIT:]
