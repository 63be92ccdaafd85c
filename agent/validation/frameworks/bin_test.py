"""`bin/test`, a runner of the project's own as SymPy has one: it takes test files by path.

It knows neither pytest's nor unittest's results, so its verbose output is read: a header with the
file, then a line a test, its name and a word or letter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agent.protocols import Snapshot
from agent.types import Outcome, TestRun
from agent.validation.frameworks.base import PythonFiles, Suite
from agent.validation.frameworks.interpreter import Tools
from agent.validation.frameworks.results import LINE_LIMIT, Found, to_run
from agent.validation.frameworks.runners import Place, as_argument, python_command
from agent.validation.reports.report import clean
from sandbox.types import Command, Limits, RunResult

_PROGRAM = "bin/test"

# The same order and the same random numbers twice; otherwise hash seeds are chosen anew.
_STEADY = ("--seed=0", "--no-subprocess")

# Name of `Suite.settings`: the runner refused those options.
_PLAIN = "plain"

# Of argparse.
_USAGE_ERROR = 2

# `pkg/core/tests/test_basic.py[20]`, with what comes right after it on the same line.
_HEADER = re.compile(r"(?P<path>[\w./-]+\.py)\[(?P<count>\d+|\?)\]\s*(?P<rest>.*)$")
_TEST = re.compile(
    r"(?P<name>test\w*)\b.*?\s(?P<word>ok|f|F|E|X|s|S|w|T|K)(?:\s+\[(?:OK|FAIL)\])?\s*$"
)
_TITLE = re.compile(r"_{3,}\s*(?P<path>[\w./-]+\.py):(?P<name>\w+)\s*_{3,}$")
_FINISHED = re.compile(r"=*\s*tests finished: (?P<counts>.*?), in [\d.]+ seconds")

_OUTCOMES = {
    "ok": Outcome.PASSED,
    "f": Outcome.SKIPPED,  # expected to fail, and failed
    "X": Outcome.FAILED,  # expected to fail, and passed
    "F": Outcome.FAILED,
    "E": Outcome.ERROR,
    "s": Outcome.SKIPPED,
    "S": Outcome.SKIPPED,
    "w": Outcome.SKIPPED,  # slow
    "T": Outcome.FAILED,  # took too long
    "K": Outcome.ERROR,  # interrupted
}


@dataclass(frozen=True, slots=True)
class BinTest(PythonFiles):
    """`python bin/test -C --verbose FILE...`."""

    name: str = "bin-test"

    def detect(self, snapshot: Snapshot) -> Suite | None:
        """A Python script `bin/test`."""
        if _PROGRAM not in snapshot.files or "python" not in snapshot.text(_PROGRAM)[:200]:
            return None
        return Suite(self.name, f"the project has {_PROGRAM}", (_PROGRAM,))

    def command(
        self, suite: Suite, targets: Sequence[str], tools: Tools, place: Place, limits: Limits
    ) -> Command:
        """Without its cache, a line a test. Raises SandboxError where no interpreter works."""
        interpreter = tools.needed()
        steady = () if _PLAIN in suite.settings else _STEADY
        options = ("-C", "--verbose", "--no-colors", *steady)
        files = map(as_argument, targets)
        argv = (str(interpreter.path), *suite.argv, *options, *files)
        return python_command(argv, interpreter, place, limits, environment=suite.environment)

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        """Its output."""
        output = _Output()
        for line in clean(result.stdout.decode("utf-8", "replace")).splitlines():
            output.take(line[:LINE_LIMIT])
        return to_run(command, result, output.result())

    def again(self, suite: Suite, run: TestRun) -> Suite | None:
        """Without the options that only some versions of the runner have."""
        refused = run.exit_code == _USAGE_ERROR and not run.outcomes
        if not refused or _PLAIN in suite.settings:
            return None
        return replace(suite, settings={**suite.settings, _PLAIN: "yes"})

    def test_id(self, suite: Suite, name: str) -> str:
        """`pkg/tests/test_a.py:test_x`, as the runner heads its failures."""
        path, separator, test = name.partition(".py:")
        return f"{path}.py::{test.lstrip(':')}" if separator else name


@dataclass(slots=True)
class _Output:
    found: Found = field(default_factory=Found)
    _path: str = ""
    _title: str = ""
    _texts: dict[str, list[str]] = field(default_factory=dict)

    def take(self, line: str) -> None:
        """One line of standard output."""
        header, title = _HEADER.match(line), _TITLE.match(line)
        if header:
            self._path, self._title = header["path"], ""
            line = header["rest"]
        if title:
            self._title = f"{title['path']}::{title['name']}"
        elif _FINISHED.match(line.strip()):
            self.found.complete = self.found.begun = True
            self._path = self._title = ""
        elif self._title and line.strip("_ "):
            self._texts.setdefault(self._title, []).append(line)
        elif self._path:
            self._outcome(line.strip())

    def _outcome(self, line: str) -> None:
        test = _TEST.match(line)
        if test:
            self.found.add(f"{self._path}::{test['name']}", _OUTCOMES[test["word"]])

    def result(self) -> Found:
        """All of it, with what is printed below the headings of failures."""
        for test, lines in self._texts.items():
            known = self.found.outcomes.get(test, Outcome.ERROR)
            if known is not Outcome.PASSED:
                self.found.add(test, known, "\n".join(lines))
        return self.found
