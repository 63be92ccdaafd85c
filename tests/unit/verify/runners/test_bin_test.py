from __future__ import annotations

from pathlib import Path

from agent.types import Outcome
from agent.verify.runners import registry
from agent.verify.runners.base import Suite
from tests.support.runners import Project, command_of, read
from tests.support.validation import run_of

SUITE = Suite("bin-test", "", ("bin/test",))

OUTPUT = """============================= test process starts ==============================
executable:         /usr/bin/python3  (3.11.2-final-0) [CPython]
architecture:       64-bit
cache:              no

sums/core/tests/test_add.py[5]
test_adds ok
test_breaks F
test_known f
test_slow Slow w
test_raises E                                                              [FAIL]

sums/core/tests/test_off.py[1]
test_off not installed s                                                   [OK]

________________________________________________________________________________
________________ sums/core/tests/test_add.py:test_breaks _________________
Traceback (most recent call last):
  File "/w/sums/core/tests/test_add.py", line 9, in test_breaks
    assert 1 == 2
AssertionError
________________ sums/core/tests/test_add.py:test_raises _________________
ValueError: no

 tests finished: 1 passed, 1 failed, 2 skipped, 1 expected to fail, in 0.33 seconds
DO *NOT* COMMIT!
"""


def test_verbose_output_is_read_by_file_and_name() -> None:
    run = read(SUITE, stdout=OUTPUT.encode(), exit_code=1)
    assert (run.ended, run.outcomes) == (
        "exited",
        {
            "sums/core/tests/test_add.py::test_adds": Outcome.PASSED,
            "sums/core/tests/test_add.py::test_breaks": Outcome.FAILED,
            "sums/core/tests/test_add.py::test_known": Outcome.SKIPPED,
            "sums/core/tests/test_add.py::test_raises": Outcome.ERROR,
            "sums/core/tests/test_add.py::test_slow": Outcome.SKIPPED,
            "sums/core/tests/test_off.py::test_off": Outcome.SKIPPED,
        },
    )
    assert "assert 1 == 2" in run.failures["sums/core/tests/test_add.py::test_breaks"]
    assert run.failures["sums/core/tests/test_add.py::test_raises"] == "ValueError: no"


def test_without_its_last_line_the_run_is_not_the_whole() -> None:
    cut = OUTPUT.partition(" tests finished")[0].encode()
    assert read(SUITE, stdout=cut, exit_code=0).ended == "incomplete"
    assert read(SUITE, stdout=OUTPUT.encode(), exit_code=0).ended == "inconsistent"


def test_files_are_named_by_path() -> None:
    argv = command_of(SUITE, "sums/tests/test_a.py", "-x.py").argv
    assert argv[1:] == (
        *("bin/test", "-C", "--verbose", "--no-colors", "--seed=0", "--no-subprocess"),
        *("sums/tests/test_a.py", "./-x.py"),
    )
    runner = registry.runner_of(SUITE)
    plain = runner.again(SUITE, run_of({}, exit_code=2))
    assert plain is not None
    assert command_of(plain, "a.py").argv[-2:] == ("--no-colors", "a.py")
    assert runner.again(plain, run_of({}, exit_code=2)) is None
    assert runner.again(SUITE, run_of({}, exit_code=1)) is None
    name = "sums/tests/test_a.py:test_x"
    found = registry.runner_of(SUITE).test_id(SUITE, name)
    assert found == "sums/tests/test_a.py::test_x"


def test_the_projects_script_is_run(tmp_path: Path, python_without_pytest: Path) -> None:
    script = (
        f"#!/usr/bin/env python\nimport sys\nprint({OUTPUT!r})\nsys.exit(sys.argv[-1] == 'a.py')\n"
    )
    run = Project({"bin/test": script, "a.py": ""}, tmp_path, python_without_pytest).run(["a.py"])
    assert (run.ended, run.exit_code, len(run.outcomes)) == ("exited", 1, 6)
