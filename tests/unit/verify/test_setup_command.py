"""The setup command beside packages that the user has installed, in a real sandbox."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.repository.snapshot import take_snapshot
from agent.types import TestRun as Run
from agent.types.events import Notice
from agent.verify.executor import SuiteExecutor, SuiteJob, Task, ValidationOptions
from sandbox.bwrap import BwrapSandbox
from tests.support.sandboxes import require_bwrap

FILES = {
    "package.json": '{"name": "shop", "version": "1.0.0"}\n',
    "package-lock.json": '{"name": "shop", "version": "1.0.0", "lockfileVersion": 3,'
    ' "packages": {"": {"name": "shop", "version": "1.0.0"}}}\n',
    ".gitignore": "node_modules/\n",
}

# It stands for npm and node: `npm ci` removes node_modules and makes it again.
NODE = """#!/bin/sh
case $1 in
ci) rm -r node_modules 2>/dev/null; mkdir -p node_modules/.bin && echo made > node_modules/whose;;
fails) printf 'npm error code EUSAGE\\nnpm error\\nnpm error the lock file is old\\n\
npm error A complete log of this run can be found in: /x\\n' >&2; exit 1;;
whose) cat node_modules/whose; exit 1;;
esac
"""


@contextmanager
def executor(
    root: Path, search_path: str | None, setup: str, test: str, said: list[str]
) -> Iterator[SuiteExecutor]:
    require_bwrap()
    (root / "node_modules" / ".bin").mkdir(parents=True)
    (root / "node_modules" / "whose").write_text("user's\n")
    options = ValidationOptions(
        setup_cmd=setup, test_cmd=test, search_path=search_path, timeout=60.0
    )

    def report(event: object) -> None:
        if isinstance(event, Notice):
            said.append(event.message)

    made = SuiteExecutor(take_snapshot(root), BwrapSandbox(), options, report)
    with closing(made):
        yield made


@pytest.fixture
def fake_node(tmp_path: Path) -> str:
    node = tmp_path / "programs" / "bin" / "node"
    node.parent.mkdir(parents=True)
    node.write_text(NODE)
    node.chmod(0o755)
    return str(node.parent)


def run(made: SuiteExecutor) -> Run:
    cancel = threading.Event()
    made.set_up(cancel)
    suite, _ = made.suite((), cancel)
    (result,) = made.run([Task(SuiteJob(suite), (), "the base")], cancel)
    return result


@pytest.mark.parametrize(("setup", "whose"), [("node ci", "made"), ("node nothing", "user's")])
def test_tests_use_the_packages_of_the_setup_if_it_makes_them(
    make_repository: Callable[..., Path], fake_node: str, setup: str, whose: str
) -> None:
    root = make_repository(FILES)
    with executor(root, fake_node, setup, "node whose", []) as made:
        assert run(made).output_tail.strip() == whose
    assert (root / "node_modules" / "whose").read_text() == "user's\n"


def test_an_error_of_npm_is_quoted_and_not_its_log_file(
    make_repository: Callable[..., Path], fake_node: str
) -> None:
    said: list[str] = []
    with (
        executor(make_repository(FILES), fake_node, "node fails", "node whose", said) as made,
        pytest.raises(ConfigurationError, match=r": npm error the lock file is old$"),
    ):
        made.set_up(threading.Event())
    assert "--setup-cmd: npm error code EUSAGE" in said
    assert not any("complete log" in line for line in said)


@pytest.mark.slow
def test_npm_ci_works_beside_installed_packages(make_repository: Callable[..., Path]) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    with executor(make_repository(FILES), None, "npm ci", "node --version", []) as made:
        assert run(made).exit_code == 0
