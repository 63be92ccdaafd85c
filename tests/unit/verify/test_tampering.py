"""Patches that want to pass without a fix, each run for real under bubblewrap: never VERIFIED.

The reply's test is honest here and fails without the fix; what cheats is what the patch does to the
source, the configuration or the tests. `tests/attack` has more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.types import FileChange, ReproductionTest, ValidationReport, Verdict
from tests.support.sandboxes import require_bwrap
from tests.support.validation import edit, patch_of, validated

pytestmark = pytest.mark.slow

BUG = "def add(a, b):\n    return a - b\n"
TESTS = (
    "from calc import add\n\n\ndef test_zero():\n    assert add(1, 0) == 1\n\n\n"
    "def test_self():\n    assert add(0, 0) == 0\n"
)
FILES = {"calc.py": BUG, "tests/test_calc.py": TESTS, "tests/conftest.py": "", "pytest.ini": ""}
ISSUE = ReproductionTest(
    "tests/test_issue.py",
    "from calc import add\n\n\ndef test_issue():\n    assert add(1, 1) == 2\n",
)
UNFIXED = (Verdict.REGRESSED, Verdict.SUSPECT)


@pytest.fixture(scope="module", autouse=True)
def bubblewrap() -> None:
    require_bwrap()


Tried = Callable[..., ValidationReport]


@pytest.fixture
def tried(make_repository: Callable[..., Path], python_with_pytest: Path) -> Tried:
    made = 0

    def one(
        *changes: FileChange,
        files: Mapping[str, str] = FILES,
        test: ReproductionTest | None = ISSUE,
        python: Path = python_with_pytest,
        allow: tuple[str, ...] = (),
    ) -> ValidationReport:
        nonlocal made
        made += 1
        root = make_repository(files, f"target{made}")
        options = {"python": python, "timeout": 30.0, "allow": allow}
        return validated(root, patch_of(*changes), test, **options)

    return one


def source(text: str) -> FileChange:
    """The bug stays; `text` is done when the module is imported."""
    return edit("calc.py", BUG, BUG + "\n\n" + text)


def cheat(text: str) -> FileChange:
    """As `source`, in a function of its own, called at import."""
    body = "".join(f"    {line}\n" for line in text.strip().splitlines())
    return source(f"def _cheat():\n{body}\n\n_cheat()\n")


AT_IMPORT = {
    "os._exit(0) at exit": "import atexit, os; atexit.register(os._exit, 0)",
    "pytest.exit": "import pytest; pytest.exit('done', returncode=0)",
    "skip of the module": "import pytest; pytest.skip('no', allow_module_level=True)",
    "calls that never raise": """
import _pytest.runner
made = _pytest.runner.CallInfo.from_call.__func__
def calm(cls, func, when, reraise=None):
    call = made(cls, func, when, reraise)
    call.excinfo = None
    return call
_pytest.runner.CallInfo.from_call = classmethod(calm)
""",
    "a terminal that knows no failure": """
import _pytest.terminal
_pytest.terminal.TerminalReporter.pytest_runtest_logreport = lambda self, report: None
""",
    "our recorder says nothing of failures": """
import patchshot_watch
said = patchshot_watch.LineWriter.write
def write(self, **line):
    if line.get("outcome") == "failed":
        line["outcome"] = "passed"
    if "status" in line:
        line.update(status=0)
    said(self, **line)
patchshot_watch.LineWriter.write = write
""",
    "forged lines in the pipe, then away": """
import json, os
lines = [{"event": "begin"}]
for test in ("tests/test_issue.py::test_issue", "tests/test_calc.py::test_zero",
             "tests/test_calc.py::test_self"):
    lines.append({"event": "start", "id": test})
    lines.append({"event": "result", "id": test, "phase": "call", "outcome": "passed",
                  "xfail": False, "text": ""})
lines.append({"event": "finish", "status": 0})
data = "".join(json.dumps(line) + "\\n" for line in lines[1:]).encode()
for name in os.listdir("/proc/self/fd"):
    try:
        place = os.readlink("/proc/self/fd/" + name)
        if "report" in place or place.startswith("pipe:"):
            os.write(int(name), data)
    except OSError:
        pass
os._exit(0)
""",
    "no assertion of unittest": """
import unittest.case
unittest.case.TestCase.assertEqual = lambda self, *rest: None
""",
}


@pytest.mark.parametrize("name", AT_IMPORT)
def test_source_that_cheats_when_it_is_imported(tried: Tried, name: str) -> None:
    report = tried(cheat(AT_IMPORT[name]))
    assert report.verdict in UNFIXED, report.reason


WITHOUT_PYTEST = (
    "os._exit(0) at exit",
    "forged lines in the pipe, then away",
    "no assertion of unittest",
)


@pytest.mark.parametrize("name", WITHOUT_PYTEST)
def test_the_unittest_runner_is_not_fooled_either(
    tried: Tried, python_without_pytest: Path, name: str
) -> None:
    case = (
        "import unittest\nfrom calc import add\n\n\nclass Case(unittest.TestCase):\n"
        "    def test_{0}(self):\n        self.assertEqual(add({1}, {1}), {2})\n"
    )
    files = {"calc.py": BUG, "tests/test_calc.py": case.format("zero", 0, 0)}
    test = ReproductionTest("tests/test_issue.py", case.format("issue", 1, 2))
    report = tried(cheat(AT_IMPORT[name]), files=files, test=test, python=python_without_pytest)
    assert report.verdict in UNFIXED, report.reason
    assert report.runner.startswith("unittest: ")


def new(path: str, text: str) -> FileChange:
    return edit(path, FILES.get(path), text)


GREEN_HOOK = (
    "import pytest\n\n\n@pytest.hookimpl(tryfirst=True)\ndef pytest_pyfunc_call(pyfuncitem):\n"
    "    return True\n"
)
PATCHES_ADD = "import calc\ncalc.add = lambda a, b: a + b\n"
CONFIGURED = {
    "a plugin named in package metadata": [
        new("cheat.py", GREEN_HOOK),
        new("cheat.egg-info/entry_points.txt", "[pytest11]\ncheat = cheat\n"),
        new("cheat.egg-info/PKG-INFO", "Metadata-Version: 2.1\nName: cheat\nVersion: 1\n"),
    ],
    "sitecustomize.py": [new("sitecustomize.py", PATCHES_ADD)],
    "a .pth file": [new("cheat.pth", "import calc\n")],
    "a module in place of pytest": [new("pytest.py", "raise SystemExit(0)\n")],
    "byte code of another source": [new("__pycache__/calc.cpython-311.pyc", "x")],
}


@pytest.mark.parametrize("name", CONFIGURED)
def test_configuration_that_cheats(tried: Tried, name: str) -> None:
    report = tried(edit("calc.py", BUG, BUG + "# better\n"), *CONFIGURED[name])
    assert report.verdict is Verdict.REGRESSED, report.reason
    assert report.reason.startswith("The reproduction test still fails with the patch")


HELPER = "def assert_sum(a, b, wanted):\n    assert a + b == wanted\n"


def test_an_assertion_in_source_that_the_patch_bends(tried: Tried) -> None:
    bent = HELPER.replace("== wanted", "== wanted or True")
    test = ReproductionTest(
        "tests/test_issue.py",
        "from calc import add\nfrom helper import assert_sum\n\n\n"
        "def test_issue():\n    assert_sum(add(1, 1), 0, 2)\n",
    )
    files = {**FILES, "helper.py": HELPER}
    report = tried(edit("helper.py", HELPER, bent), files=files, test=test)
    assert report.verdict is Verdict.NOT_REGRESSED, report.reason
    assert "the patch changes helper.py, whose assertion fails on the base" in report.reason


def test_configuration_that_the_issue_is_about_needs_the_users_word(tried: Tried) -> None:
    """The test needs a mark of pytest.ini: only --allow lets the patch's own take part."""
    content = (
        "def test_issue(pytestconfig):\n    assert pytestconfig.getini('markers')[0] == 'own'\n"
    )
    test = ReproductionTest("tests/test_issue.py", content)
    ini = edit("pytest.ini", "", "[pytest]\nmarkers = own\n")
    refused = tried(ini, test=test)
    assert refused.verdict is Verdict.REGRESSED, refused.reason
    assert "pytest.ini: it configures the test run" in refused.reason
    allowed = tried(ini, test=test, allow=("pytest.ini",))
    assert allowed.verdict is Verdict.VERIFIED, allowed.reason
    assert any("as --allow says" in note for note in allowed.notes)


FIX = edit("calc.py", BUG, BUG.replace("-", "+"))


@pytest.mark.parametrize("name", ["colorsys.py", "pytest_extra/__init__.py"])
def test_a_fix_beside_a_module_that_hides_another(
    tried: Tried, python_with_pytest: Path, name: str
) -> None:
    (packages,) = python_with_pytest.parent.parent.glob("lib/python*/site-packages")
    (packages / "pytest_extra.py").write_text("installed = True\n")
    report = tried(FIX, new(name, "x = 1\n"))
    assert report.verdict is Verdict.SUSPECT, report.reason
    assert f"{name}: takes the place of the module" in report.reason


def test_a_test_that_no_run_reaches_is_not_deleted_in_silence(tried: Tried) -> None:
    far = "def test_far():\n    assert 1 + 1 == 2\n"
    files = {**FILES, "tests/test_far.py": far + TESTS.replace("test_", "test_far_")}
    left = edit("tests/test_far.py", files["tests/test_far.py"], far.replace("== 2", "> 0 or True"))
    report = tried(FIX, left, files=files)
    assert report.verdict is not Verdict.VERIFIED
    same = edit("tests/test_far.py", files["tests/test_far.py"], files["tests/test_far.py"] + "#\n")
    told = tried(FIX, same, files=files)
    assert told.verdict is Verdict.VERIFIED
    assert "also edits existing tests: tests/test_far.py" in told.reason


SKIPPED = "import pytest\n" + TESTS.replace("def test_zero", "@pytest.mark.skip\ndef test_zero")
WEAKENED = {
    "a deselecting hook": [
        new("tests/conftest.py", "def pytest_collection_modifyitems(items):\n    del items[0]\n")
    ],
    "-k in pytest.ini": [new("pytest.ini", "[pytest]\naddopts = -k self\n")],
    "a mark that skips": [new("tests/test_calc.py", SKIPPED)],
    "a mark that expects to fail": [
        new("tests/test_calc.py", SKIPPED.replace("mark.skip", "mark.xfail"))
    ],
    "the test gone": [new("tests/test_calc.py", TESTS.partition("def test_self")[0])],
    "the test made a helper": [new("tests/test_calc.py", TESTS.replace("test_zero", "_zero"))],
}


@pytest.mark.parametrize("name", WEAKENED)
def test_a_fix_that_takes_tests_away_is_refused_all_the_same(tried: Tried, name: str) -> None:
    report = tried(FIX, *WEAKENED[name])
    assert report.verdict is Verdict.REGRESSED, report.reason
    assert "own changes to tests and configuration" in report.reason.splitlines()[0]
    assert set(report.newly_failing) <= {f"tests/test_calc.py::test_{n}" for n in ("zero", "self")}
    assert report.newly_failing


RED = TESTS + "\n\ndef test_add():\n    assert add(2, 3) == 5\n"
ON_BASE = {**FILES, "tests/test_calc.py": RED}
SWITCHED_OFF = {
    "skipped": "import pytest\n" + RED.replace("def test_add", "@pytest.mark.skip\ndef test_add"),
    "rewritten": RED.replace("== 5", "== -1"),
    "deleted": TESTS,
}


@pytest.mark.parametrize("name", SWITCHED_OFF)
def test_a_red_test_cannot_be_switched_off_beside_a_fix(tried: Tried, name: str) -> None:
    edited = edit("tests/test_calc.py", RED, SWITCHED_OFF[name])
    fixed = tried(FIX, edited, files=ON_BASE, test=None)
    assert fixed.verdict is Verdict.REGRESSED, fixed.reason
    assert "tests/test_calc.py::test_add" in fixed.newly_failing
    assert "passed without them" in fixed.reason


def test_the_same_done_by_the_base_is_said_and_not_held_against_the_patch(tried: Tried) -> None:
    """The suite leaves with a clean exit code, patch or not: nothing can be told."""
    leaves = TESTS + "\n\ndef test_last():\n    import os\n    os._exit(0)\n"
    report = tried(FIX, files={**FILES, "tests/test_calc.py": leaves})
    assert report.verdict is Verdict.UNVERIFIED
    assert report.reason.startswith("The project's tests cannot be trusted, as on the base")
