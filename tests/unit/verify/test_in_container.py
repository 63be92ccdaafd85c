"""A target whose surroundings are an image's: its interpreter, its build products."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.repository.snapshot import take_snapshot
from agent.types import Problem, ReproductionTest, ValidationReport, Verdict
from agent.verify.validator import SandboxValidator, ValidationOptions
from sandbox.container import ContainerSandbox
from tests.support.images import TESTBED_PYTHON, remove_image, require_container
from tests.support.validation import edit, patch_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

INIT = "from pkg._version import version\n"
BUG = "def add(a, b):\n    return a - b\n"
TEST = "import pkg\n\n\ndef test_version():\n    assert pkg.version == '1.2.3'\n"
ISSUE = ReproductionTest(
    "tests/test_issue.py",
    "from pkg.calc import add\n\n\ndef test_issue():\n    assert add(1, 1) == 2\n",
)


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    yield require_container()
    remove_image()


def test_an_image_brings_its_own_python_and_products(
    make_repository: Callable[..., Path], image: str
) -> None:
    files = {"pkg/__init__.py": INIT, "pkg/calc.py": BUG, "tests/test_pkg.py": TEST}
    snapshot = take_snapshot(make_repository(files))

    async def run() -> ValidationReport:
        options = ValidationOptions(timeout=60.0)
        backend = ContainerSandbox(image, "podman")
        async with SandboxValidator(snapshot, Problem("add", ""), backend, options) as checker:
            patch = patch_of(edit("pkg/calc.py", BUG, BUG.replace("-", "+")))
            return await checker.validate(patch, ISSUE)

    report = asyncio.run(run())
    assert report.verdict is Verdict.VERIFIED, report.reason
    assert report.interpreter.startswith(TESTBED_PYTHON)
    assert report.after is not None
    assert report.after.channels.read == ("report", "junit", "exit code")
    assert list(report.after.outcomes) == ["tests/test_pkg.py::test_version"]
