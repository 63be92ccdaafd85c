"""A pytest plugin that writes one JSON line for each thing that happens to a test.

It runs inside the sandbox, in the target's interpreter: Python 3.8 or later, pytest 5 or later,
nothing beside the standard library and pytest, no warnings (projects turn them into errors). It
stands in a folder of its own, since that folder joins the target's PYTHONPATH.

The lines go to the file that SANDBOX_REPORT names. The variable is removed once read, so that
pytest runs started by tests write nothing. The last line is `finish`: without it the run ended
before pytest did, and what was written is not the whole. The reader is agent.validation.report.
"""

# ruff: noqa: D102  (hooks are documented by pytest)

from __future__ import annotations

import json
import os
from typing import Any

import pytest

# The end of a failure report names the error; what is above it is source that the reader knows.
TEXT_LIMIT = 6000

OUTCOMES = ("passed", "failed", "skipped")


class Recorder:
    """Writes lines from the process that was asked to; a forked child of a test writes none."""

    def __init__(self, path: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._descriptor = os.open(path, flags, 0o600)
        self._process = os.getpid()
        self._session: Any = None

    def write(self, **line: Any) -> None:
        if os.getpid() != self._process:
            return
        data = (json.dumps(line) + "\n").encode("ascii")
        while data:
            data = data[os.write(self._descriptor, data) :]

    def pytest_sessionstart(self, session: Any) -> None:
        self._session = session
        self.write(event="begin", runner="pytest " + pytest.__version__)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.write(event="start", id=nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.outcome not in OUTCOMES:  # pytest-rerunfailures: the last try follows
            return
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
    def pytest_unconfigure(self) -> None:
        if self._session is not None:
            self.write(event="finish", status=int(self._session.exitstatus))


def pytest_configure(config: Any) -> None:
    """Start recording, but not in a worker of pytest-xdist: its controller reports for it."""
    path = os.environ.pop("SANDBOX_REPORT", "")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(path), "patchshot-recorder")


def _text(report: Any) -> str:
    if report.outcome == "passed":
        return ""
    longrepr = report.longrepr
    if isinstance(longrepr, tuple):  # a skip: (path, line, reason)
        return str(longrepr[-1])
    return str(longrepr or "")[-TEXT_LIMIT:]
