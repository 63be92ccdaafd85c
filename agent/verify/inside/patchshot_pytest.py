"""A pytest plugin that writes one JSON line for each thing that happens to a test.

It runs inside the sandbox under Python 3.7 or later and pytest 5 or later, without warnings
(projects turn them into errors). The variables and the key of the lines are removed before any file
of the target is imported. PYTEST_DONT_REWRITE: nothing here is an assertion of a test.
"""

# ruff: noqa: D102  (hooks are documented by pytest)

from __future__ import annotations

import os
from typing import Any

import patchshot_watch  # type: ignore[import-not-found]  # beside this file, inside
import pytest

OUTCOMES = ("passed", "failed", "skipped")


class PytestRecorder:
    """A pytest plugin that writes what happens to the tests."""

    def __init__(self, path: str, key: bytes) -> None:
        self._lines = patchshot_watch.OutcomeRecorder(path, key)
        self._lines.watch(__name__)
        self.follows = bool(self._lines.trace.tests)
        self._session: Any = None
        self._count: Any = None

    def pytest_configure(self, config: Any) -> None:
        if hasattr(config, "workerinput"):
            self._lines.stop()  # a worker of pytest-xdist: its controller reports for it

    def pytest_sessionstart(self, session: Any) -> None:
        self._session = session
        self._lines.write(event="begin")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self._lines.trace.reverse:
            items.reverse()

    # First of all to begin and last to end, so that set-up and tear-down belong to the test.
    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: Any) -> Any:
        self._lines.trace.begin(item.nodeid, getattr(item, "originalname", "") or "")
        yield
        self._lines.trace.end()

    def pytest_collection_finish(self, session: Any) -> None:
        self._lines.compare()
        self._count = len({item.nodeid for item in session.items})

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._lines.write(event="start", id=nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.outcome not in OUTCOMES:  # pytest-rerunfailures: the last try follows
            return
        if report.outcome == "passed" and (report.when != "call" or hasattr(report, "context")):
            return  # nothing is known before the call, and of one subtest; nothing changes after
        xfail = hasattr(report, "wasxfail")
        self._lines.result(report.nodeid, report.when, report.outcome, _text(report), xfail)

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome != "passed":
            self._lines.result(report.nodeid, "collect", report.outcome, _text(report))

    # Last of all: other plugins may still change the exit status of the session.
    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: Any) -> None:
        self._lines.compare()

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        session = self._session
        if session is None:
            return
        stopped = session.shouldstop or getattr(session, "shouldfail", False)
        count = None if stopped else self._count
        self._lines.finish(status=int(session.exitstatus), count=count)


# The first hook of all, called before any conftest.py of the target is imported.
@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: Any) -> None:
    """Start recording if a report is asked for."""
    path = os.environ.pop("SANDBOX_REPORT", "")
    key = patchshot_watch.take_key(os.environ.pop("PATCHSHOT_SEAL", ""))
    if not path:
        return
    recorder = PytestRecorder(path, key)
    early_config.pluginmanager.register(recorder, "patchshot-recorder")
    options = early_config.known_args_namespace
    if recorder.follows and getattr(options, "cov_source", None):
        options.cov_source = None  # pytest-cov and our trace would replace each other


def _text(report: Any) -> str:
    if report.outcome == "passed":
        return ""
    longrepr = report.longrepr
    if isinstance(longrepr, tuple):  # a skip: (path, line, reason)
        return str(longrepr[-1])
    return str(longrepr or "")
