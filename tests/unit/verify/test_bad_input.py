"""Targets that are not as one would wish, under real bubblewrap: said as what they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.errors import ConfigurationError
from agent.repository.snapshot import take_snapshot
from agent.types import FileChange, Problem, ReproductionTest, ValidationReport, Verdict
from agent.verify.judging.wording import how_it_ended
from agent.verify.reports import INCOMPLETE, INCONSISTENT
from agent.verify.validator import SandboxValidator, ValidationOptions
from sandbox.bwrap import BwrapSandbox
from sandbox.types import Ended
from tests.support.sandboxes import require_bwrap
from tests.support.validation import edit, patch_of, run_of

BUG, FIX = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
SOURCE = edit("calc.py", BUG, FIX)
HEAD = "import os, socket, sys, time\nfrom calc import add\n\n\n"
GOOD = "def test_good():\n    assert add(1, 0) == 1\n"
ISSUE = ReproductionTest(
    "tests/test_issue.py", f"{HEAD}def test_issue():\n    assert add(1, 1) == 2\n"
)

Judged = Callable[..., ValidationReport]


@pytest.fixture
def judged(make_repository: Callable[..., Path], python_with_pytest: Path) -> Judged:
    require_bwrap()

    def one(
        tests: str | None,
        *changes: FileChange,
        test: ReproductionTest | None = None,
        more: Mapping[str, str] | None = None,
        **options: object,
    ) -> ValidationReport:
        files = {"calc.py": BUG, **(more or {})}
        if tests is not None:
            files["tests/test_calc.py"] = HEAD + tests
        snapshot = take_snapshot(make_repository(files))
        chosen = {"python": python_with_pytest, "timeout": 20.0, **options}
        given = ValidationOptions(**chosen)  # type: ignore[arg-type]

        async def run() -> ValidationReport:
            backend = BwrapSandbox()
            async with SandboxValidator(snapshot, Problem("add()", ""), backend, given) as checker:
                return await checker.validate(patch_of(*(changes or (SOURCE,))), test)

        return asyncio.run(run())

    return one


@pytest.mark.parametrize("ended", [*Ended, INCOMPLETE, INCONSISTENT])
def test_every_ending_has_words_of_its_own(ended: str) -> None:
    words = how_it_ended(run_of({}, ended=str(ended)))
    assert not words.startswith("ended with") or ended is Ended.EXITED


@pytest.mark.slow
def test_output_that_is_no_text(judged: Judged) -> None:
    loud = "def test_loud():\n    os.write(1, bytes(range(256)))\n    os.write(2, b'\\xff')\n"
    report = judged(f"{loud}    assert 0\n{GOOD}", test=ISSUE)
    assert report.verdict is Verdict.VERIFIED
    assert report.before is not None
    assert "\x00" not in report.before.output_tail


@pytest.mark.slow
def test_a_gigabyte_of_output(judged: Judged) -> None:
    """Past pytest's own capture, as a command that nothing reads."""
    flood = "python -c \"import os\nwhile True: os.write(1, b'x' * 65536)\""
    with pytest.raises(ConfigurationError, match="hit its limit of output") as caught:
        judged(GOOD, test_cmd=flood)
    assert len(str(caught.value)) < 1000


@pytest.mark.slow
def test_a_suite_that_never_ends(judged: Judged) -> None:
    report = judged(f"{GOOD}\n\ndef test_on():\n    time.sleep(600)\n", test=ISSUE, timeout=5.0)
    assert report.verdict is Verdict.VERIFIED
    assert [note.split(";")[0] for note in report.notes] == [
        f"{where} the run of the project's tests hit its time limit after 5 s in "
        "tests/test_calc.py::test_on"
        for where in ("on the base", "with the patch")
    ]


@pytest.mark.slow
def test_a_suite_that_is_red_before(judged: Judged) -> None:
    red = "def test_red():\n    assert add(2, 2) == 5\n"
    report = judged(red)
    assert report.verdict is Verdict.NOT_REGRESSED
    assert "1 failed before" in report.reason


@pytest.mark.slow
def test_tests_that_want_the_network_or_a_database(judged: Judged) -> None:
    wants = (
        "def test_net():\n    socket.getaddrinfo('example.org', 80)\n\n\n"
        "def test_base():\n    socket.create_connection(('127.0.0.1', 5432), 2)\n"
    )
    report = judged(wants)
    assert report.verdict is Verdict.NOT_REGRESSED
    assert any("the network: the sandbox has no network" in note for note in report.notes)
    assert any("a server, and none runs here" in note for note in report.notes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("x = [bytearray(1 << 28) for _ in range(99)]", "MemoryError"),
        ("open('big', 'wb').write(bytes(1 << 29))", "File too large"),
    ],
)
def test_a_patch_that_asks_for_too_much_fails_its_tests_for_that(
    judged: Judged, line: str, words: str
) -> None:
    text = f"def add(a, b):\n    {line}\n    return a + b\n"
    report = judged(GOOD, edit("calc.py", BUG, text))
    assert report.verdict is Verdict.REGRESSED
    assert words in report.reason or "limit" in report.reason.splitlines()[0]


@pytest.mark.slow
def test_a_project_whose_tools_are_not_there(judged: Judged, tmp_path: Path) -> None:
    files = {"package.json": '{"scripts": {"test": "jest"}}', "sum.test.js": "test('x', () => {})"}
    source = edit("sum.js", "exports.x = 1;\n", "exports.x = 2;\n")
    report = judged(
        None, source, more={**files, "sum.js": "exports.x = 1;\n"}, search_path=str(tmp_path)
    )
    assert report.verdict is Verdict.UNVERIFIED
    assert report.reason.startswith("No test could be run: ")
    assert "is not installed here" in report.reason
    assert report.runner.startswith("jest: ")


@pytest.mark.slow
def test_a_project_without_tests_is_judged_by_the_replys_own(judged: Judged) -> None:
    report = judged(None, test=ISSUE)
    assert report.verdict is Verdict.VERIFIED
    assert report.before is None
