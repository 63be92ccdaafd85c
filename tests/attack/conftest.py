"""Backends under attack, and the record of the results: `--attack-record FILE`."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import pytest

from sandbox.bwrap import BwrapSandbox
from sandbox.landlock import LandlockSandbox
from tests.attack.cases import BACKENDS
from tests.support.attack_backends import AttackedBackend
from tests.support.sandboxes import Runner

_HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--attack-record", help="write what each case came to, by backend, as JSON")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.attack)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Record(config), "attack-record")


class _Record:
    """Gathers how the tests of each case ended; the worst end for a case and backend counts."""

    def __init__(self, config: pytest.Config) -> None:
        self._target: str | None = config.getoption("--attack-record", default=None)
        self._seen: dict[str, dict[str, str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        case = item.get_closest_marker("attack_case")
        if case is not None and (report.when == "call" or report.outcome != "passed"):
            backend = case.kwargs.get("backend") or _parameter(item, "backend") or "agent"
            report.user_properties.append(("attack", (case.args[0], backend)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == "attack":
                case, backend = value
                seen = self._seen.setdefault(case, {})
                worst = max(seen.get(backend, "passed"), report.outcome, key=_ORDER.index)
                seen[backend] = worst

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._target and not hasattr(session.config, "workerinput"):
            text = json.dumps(self._seen, indent=1, sort_keys=True)
            Path(self._target).write_text(text + "\n")


_ORDER = ("passed", "skipped", "failed")


def _parameter(item: pytest.Item, name: str) -> str:
    callspec = getattr(item, "callspec", None)
    return str(callspec.params.get(name, "")) if callspec else ""


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> AttackedBackend:
    """Every backend that claims to contain untrusted code, as root and as a user."""
    name: str = request.param
    if name == "container":
        return AttackedBackend(name, request.getfixturevalue("container"))
    request.getfixturevalue(f"{name.removesuffix('-user')}_works")
    if name.endswith("-user"):
        library = request.getfixturevalue("nobody_runner").library
        return AttackedBackend(name, runner=Runner(name, library))
    return AttackedBackend(name, BwrapSandbox() if name == "bwrap" else LandlockSandbox())


@pytest.fixture(params=["bwrap", "bwrap-user"])
def isolated(request: pytest.FixtureRequest) -> Runner:
    """The default backend, as root and as a user."""
    request.getfixturevalue("bwrap_works")
    if request.param == "bwrap-user":
        found: Runner = request.getfixturevalue("nobody_runner")
        return found
    return Runner("bwrap")
