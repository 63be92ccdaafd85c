"""Runs test files with unittest and writes one JSON line for each outcome.

For interpreters that cannot import pytest: `python patchshot_unittest.py tests/test_a.py ...`, in
the workspace, whose root PATCHSHOT_ROOT names. It runs inside the sandbox and needs Python 3.7 or
later and its standard library only. The lines are those of patchshot_pytest, the ids too
(`tests/test_a.py::Case::test_x`).

Beside `unittest.TestCase` classes it runs plain functions `test_*` that take no arguments.
"""

# ruff: noqa: D102, PTH100, PTH109, PTH113, PTH118
# (methods are documented by unittest; pathlib would be imported for four calls)

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
import types
import unittest
from typing import Any

import patchshot_trace  # type: ignore[import-not-found]  # beside this file, inside
import patchshot_watch  # type: ignore[import-not-found]


class UnittestRecorder(patchshot_watch.LineWriter):  # type: ignore[misc]
    """Writes the lines of a run."""

    @classmethod
    def from_environment(cls) -> UnittestRecorder:
        """Read the variables and remove them, so that tests do not learn where we write."""
        os.environ.pop("SANDBOX_JUNIT", "")
        path = os.environ.pop("SANDBOX_REPORT")
        return cls(path, patchshot_watch.take_key(os.environ.pop("PATCHSHOT_SEAL", "")))

    def begin(self, runner: str) -> None:
        self.write(event="begin", runner=runner)
        self._watch = patchshot_watch.RunnerWatch("patchshot_unittest")
        self._trace = patchshot_trace.from_environment()
        self._oddities: set[str] = set()

    def start(self, test: str) -> None:
        """Write that a test begins; what came before it is an account of its own."""
        if self._trace is not None:
            self._write_account("", self._trace.begin(test, test.rpartition("::")[2]))
        self.write(event="start", id=test, at=self.seconds())

    def stop(self, test: str) -> None:
        """Write what the test executed, if that is asked for."""
        if self._trace is not None:
            self._write_account(test, self._trace.end())

    def _write_account(self, test: str, account: Any) -> None:
        if not test or self._trace.decides(test):
            self.write(event="trace", id=test, **account.as_line())

    def result(self, test: str, phase: str, outcome: str, text: str = "") -> None:
        if outcome == "passed" and self._trace is not None and self._trace.cut_short():
            self._oddities.add("the end of " + test + ", whose function did not come to it")
        self.write(
            event="result",
            id=test,
            phase=phase,
            outcome=outcome,
            xfail=False,
            text=text[-patchshot_watch.TEXT_LIMIT :],
        )

    def finish(self, status: int, failed: int) -> None:
        """Write the last line; without it the run ended before its tests did."""
        self.stop("")
        rewritten = self._trace.rewritten if self._trace is not None else ()
        traces = sorted({*self._watch.changed(), *self._oddities, *rewritten})
        traces = traces[: patchshot_watch.TRACES_LIMIT]
        self.write(event="finish", status=status, failed=failed, traces=traces)


class LineResult(unittest.TestResult):
    """Turns what unittest reports into lines."""

    def __init__(self, recorder: UnittestRecorder, path: str) -> None:
        super().__init__()
        self._recorder = recorder
        self._path = path

    def _id(self, test: Any) -> str:
        if isinstance(test, unittest.FunctionTestCase):
            return self._path + "::" + test.id().rpartition(".")[2]
        if isinstance(test, unittest.TestCase):
            return "::".join((self._path, type(test).__name__, test.id().rpartition(".")[2]))
        return self._path  # setUpModule or setUpClass failed: there is no test of its own

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._recorder.start(self._id(test))

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self._recorder.stop(self._id(test))

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self._recorder.result(self._id(test), "call", "passed")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self._recorder.result(self._id(test), "call", "failed", _text(err))

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        phase = "call" if isinstance(test, unittest.TestCase) else "setup"
        self._recorder.result(self._id(test), phase, "failed", _text(err))

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self._recorder.result(self._id(test), "call", "skipped", reason)

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addExpectedFailure(test, err)
        self._recorder.result(self._id(test), "call", "skipped", "expected failure")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        super().addUnexpectedSuccess(test)
        self._recorder.result(self._id(test), "call", "failed", "unexpected success")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._recorder.result(
                self._id(test), "call", "failed", str(subtest) + "\n" + _text(err)
            )


def main(paths: list[str]) -> int:
    """Run the files and return 0 when everything passed, 1 otherwise, 5 when nothing was run."""
    recorder = UnittestRecorder.from_environment()
    recorder.begin("unittest")
    root = os.environ.pop("PATCHSHOT_ROOT", "") or os.getcwd()
    above = os.path.relpath(os.getcwd(), os.path.realpath(root))
    results = [run_file(path, recorder, "" if above == "." else above) for path in paths]
    good = all(result is not None and result.wasSuccessful() for result in results)
    ran = sum(result.testsRun for result in results if result is not None)
    status = 1 if not good else 0 if ran else 5
    recorder.finish(status, sum(_bad(result) for result in results))
    return status


def _bad(result: LineResult | None) -> int:
    """How many tests of a file failed; a file that cannot be imported counts as one."""
    if result is None:
        return 1
    return len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)


def run_file(file: str, recorder: UnittestRecorder, above: str = "") -> LineResult | None:
    """Run one file; None when it cannot be imported. Its id begins with the folder `above`."""
    path = os.path.join(above, file)
    try:
        module = load(file)
    except unittest.SkipTest as skip:
        recorder.result(path, "collect", "skipped", str(skip))
        return LineResult(recorder, path)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  (whatever a test module raises, SystemExit too)
        recorder.result(path, "collect", "failed", traceback.format_exc())
        return None
    result = LineResult(recorder, path)
    suite(module).run(result)
    return result


def load(path: str) -> types.ModuleType:
    """Import a file under the name that its packages give it, as pytest does by default."""
    folder, file = os.path.split(os.path.abspath(path))
    names = [file[: -len(".py")]]
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, package = os.path.split(folder)
        names.insert(0, package)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = ".".join(names)
    if len(names) > 1:
        return importlib.import_module(name)
    return _load_alone(name, path)


def _load_alone(name: str, path: str) -> types.ModuleType:
    # Two folders without __init__.py may hold files of one name: each is its own module.
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def suite(module: types.ModuleType) -> unittest.TestSuite:
    """The module's own tests: what `load_tests` or the default loader finds, and functions."""
    tests = unittest.TestSuite()
    tests.addTests(unittest.defaultTestLoader.loadTestsFromModule(module))
    for name, value in sorted(vars(module).items()):
        if name.startswith("test") and _is_plain(value, module):
            tests.addTest(unittest.FunctionTestCase(value))
    return tests


def _is_plain(value: object, module: types.ModuleType) -> bool:
    return (
        inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not inspect.iscoroutinefunction(value)
        and not inspect.signature(value).parameters
    )


def _text(err: Any) -> str:
    return "".join(traceback.format_exception(*err))


if __name__ == "__main__":
    # The folder of this script came first on the path; the target's own modules come first now.
    sys.path[0] = os.getcwd()
    sys.exit(main(sys.argv[1:]))
