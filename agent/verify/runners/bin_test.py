"""`bin/test`, a project's own runner such as SymPy's, which takes test files by path.

One that starts pytest loads our plugin there, and its report is read. Of any other the verbose
output is read: a header with the file, then one line for each test with its name and a word or
letter.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agent.types import Outcome, TestRun
from agent.types.protocols import Snapshot
from agent.verify.reports.report_lines import clean, read_report
from agent.verify.reports.run_results import LINE_LIMIT, ParsedOutput, make_run, make_tool_run
from agent.verify.runners.base import (
    PYTHON_LANGUAGES,
    PythonFileRunner,
    RunContext,
    Suite,
    joined,
)
from agent.verify.runners.commands import LOADS_PLUGIN, as_argument, python_command
from sandbox import Command, RunResult

_PROGRAM = "bin/test"

# The same order and the same random numbers in every run.
_STEADY = ("--seed=0", "--no-subprocess")

# In `Suite.settings`: the runner refused the options of `_STEADY`.
_PLAIN = "plain"

# argparse and pytest exit with these when they refuse an option.
_USAGE_ERRORS = (2, 4)

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


class BinTest(PythonFileRunner):
    """`python bin/test -C --verbose FILE...`."""

    name = "bin-test"
    languages = PYTHON_LANGUAGES

    def detect(self, snapshot: Snapshot) -> Suite | None:
        if _PROGRAM not in snapshot.files or "python" not in snapshot.text(_PROGRAM)[:200]:
            return None
        return Suite(self.name, f"the project has {_PROGRAM}", (_PROGRAM,))

    def command(self, suite: Suite, targets: Sequence[str], context: RunContext) -> Command:
        steady = () if _PLAIN in suite.settings else _STEADY
        options = ("-C", "--verbose", "--no-colors", *steady)
        files = map(as_argument, targets)
        argv = (str(context.tools.needed().path), *suite.argv, *options, *files)
        # What was written before a time limit must not be lost in a buffer.
        own = {**LOADS_PLUGIN, "PYTHONUNBUFFERED": "1"}
        if suite.cwd != ".":  # ids are paths of the tree
            own["PYTEST_ADDOPTS"] = shlex.quote(f"--rootdir={context.root}")
        environment = {**suite.environment, **own}
        return python_command(argv, context, environment=environment, cwd=suite.cwd)

    def read(self, suite: Suite, command: Command, result: RunResult) -> TestRun:
        if read_report(result.report).begun:
            return make_run(command.argv, result, own_runner=False)
        output = _Output(suite.cwd)
        for line in clean(result.stdout.decode("utf-8", "replace")).splitlines():
            output.take(line[:LINE_LIMIT])
        return make_tool_run(command, result, output.result())

    def again(self, suite: Suite, run: TestRun) -> Suite | None:
        """Leave out the options that only some versions of the runner have."""
        refused = run.exit_code in _USAGE_ERRORS and not run.outcomes
        if not refused or _PLAIN in suite.settings:
            return None
        return replace(suite, settings={**suite.settings, _PLAIN: "yes"})

    def test_id(self, suite: Suite, name: str) -> str:
        """Convert `pkg/tests/test_a.py:test_x`, the heading of a failure."""
        path, separator, test = name.partition(".py:")
        return f"{joined(suite.cwd, path)}.py::{test.lstrip(':')}" if separator else name


@dataclass(slots=True)
class _Output:
    folder: str
    found: ParsedOutput = field(default_factory=ParsedOutput)
    _path: str = ""
    _title: str = ""
    _texts: dict[str, list[str]] = field(default_factory=dict)

    def take(self, line: str) -> None:
        """Read one line of standard output."""
        header, title = _HEADER.match(line), _TITLE.match(line)
        if header:
            self._path, self._title = joined(self.folder, header["path"]), ""
            line = header["rest"]
        if title:
            self._title = f"{joined(self.folder, title['path'])}::{title['name']}"
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

    def result(self) -> ParsedOutput:
        """Return the outcomes with the texts printed below the headings of failures."""
        for test, lines in self._texts.items():
            known = self.found.outcomes.get(test, Outcome.ERROR)
            if known is not Outcome.PASSED:
                self.found.add(test, known, "\n".join(lines))
        return self.found
