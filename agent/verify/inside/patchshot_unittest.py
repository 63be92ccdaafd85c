"""Runs tests that are built on unittest, and writes one JSON line for each outcome.

    patchshot_unittest.py tests/test_a.py ...             for interpreters without pytest
    patchshot_unittest.py --hook tests/runtests.py ...    another runner, or `-m unittest ...`

It runs inside the sandbox under Python 3.7 or later, with the standard library only. Every unittest
runner calls the methods of `unittest.TestResult`, which are recorded.
"""

# ruff: noqa: PTH100, PTH109, PTH113, PTH118, PTH120
# (pathlib would be imported for five calls)

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import re
import runpy
import sys
import traceback
import types
import unittest
from collections.abc import Callable
from typing import Any

import patchshot_watch  # type: ignore[import-not-found]  # beside this file, inside

# `setUpClass (app.tests.Case)`, `setUpModule (app.tests)`: what stands for a class that failed.
HOLDER = re.compile(r"\w+ \(([\w.]+)\)")

OUTCOMES = {
    **dict.fromkeys(("addFailure", "addError", "addUnexpectedSuccess"), "failed"),
    **dict.fromkeys(("addSkip", "addExpectedFailure"), "skipped"),
    "addSuccess": "passed",
}

# Python before 3.11: `unittest.loader._FailedTest.app.tests`; later without the class.
FAILED_IMPORT = "unittest.loader._FailedTest."


class UnittestRecorder(patchshot_watch.OutcomeRecorder):  # type: ignore[misc]
    """Writes the outcomes that reach unittest's own result class."""

    def __init__(self) -> None:
        """Take the variables, so that tests do not learn where we write, and watch the runner.

        The methods that every result class inherits, and calls, are wrapped.
        """
        key = patchshot_watch.take_key(os.environ.pop("PATCHSHOT_SEAL", ""))
        super().__init__(os.environ.pop("SANDBOX_REPORT"), key)
        self._root = os.path.realpath(os.environ.pop("PATCHSHOT_ROOT", "") or os.getcwd())
        self.failed = 0
        for name in ("startTest", "stopTest", "addSubTest", *OUTCOMES):
            self._wrap(name, getattr(unittest.TestResult, name))
        self.write(event="begin")
        self.watch("patchshot_unittest")

    def _wrap(self, name: str, original: Callable[..., None]) -> None:
        @functools.wraps(original)
        def method(result: Any, test: Any, *rest: Any) -> Any:
            self._note(name, test, *rest)
            return original(result, test, *rest)

        setattr(unittest.TestResult, name, method)

    def _note(self, name: str, test: Any, *rest: Any) -> None:
        """Note a call of a method of the result, which may have an error or a reason last."""
        identity = self.identify(test)
        if name == "startTest":
            self.trace.begin(identity, identity.rpartition("::")[2])
            self.write(event="start", id=identity)
        elif name == "stopTest":
            self.trace.end()
        elif name != "addSubTest" or rest[1] is not None:
            outcome = OUTCOMES.get(name, "failed")
            real = isinstance(test, unittest.TestCase) and not _failed_import(test)
            text = rest[-1] if rest else "unexpected success"
            if not isinstance(text, str):
                text = "".join(traceback.format_exception(*text))
            if name == "addSubTest":
                text = str(rest[0]) + "\n" + text
            self.failed += outcome == "failed"
            self.result(identity, "call" if real else "collect", outcome, text)

    def not_imported(self, path: str, outcome: str, text: str) -> None:
        """Report a file that cannot be imported or skips itself."""
        self.failed += outcome == "failed"
        self.result(self._below(path), "collect", outcome, text)

    def identify(self, test: Any) -> str:
        """`path::Class::method`; `path::Class` or the path alone for what cannot be set up."""
        name = str(test.id())
        if isinstance(test, unittest.FunctionTestCase):
            module = getattr(test, "_testFunc").__module__  # noqa: B009
            return self._file(module) + "::" + name.rpartition(".")[2]
        if _failed_import(test):
            return self._failed_file(name[len(FAILED_IMPORT) :], test)
        if isinstance(test, unittest.TestCase):
            case = type(test)
            method = name.rpartition(".")[2]
            return "::".join((self._file(case.__module__), case.__qualname__, method))
        holder = HOLDER.fullmatch(name)
        return self._held(holder.group(1)) if holder else name

    def _held(self, dotted: str) -> str:
        parts = dotted.split(".")
        for length in range(len(parts), 0, -1):
            module = ".".join(parts[:length])
            if module in sys.modules:
                return "::".join((self._file(module), *parts[length:]))
        return self._file(dotted)

    def _below(self, path: str) -> str:
        return os.path.relpath(os.path.realpath(path), self._root)

    def _file(self, module: str) -> str:
        file = getattr(sys.modules.get(module), "__file__", None)
        if file:
            return self._below(file)
        guess = os.path.join(*module.split(".")) + ".py"
        return guess if os.path.isfile(os.path.join(self._root, guess)) else module

    def _failed_file(self, name: str, test: Any) -> str:
        """The file of a module that cannot be imported: unittest may know its last name only."""
        named = re.compile(r'File "([^"\n]*[/\\]' + re.escape(name.rpartition(".")[2]) + r'\.py)"')
        files = named.findall(str(getattr(test, "_exception", "")))
        return self._below(files[-1]) if files else self._file(name)


def _failed_import(test: Any) -> bool:
    return str(test.id()).startswith(FAILED_IMPORT)


def main(argv: list[str]) -> int:
    """Run files or a program. Its exit code, or 0, 1, or 5 when no test of the files was run."""
    recorder = UnittestRecorder()
    hooked = argv[0] == "--hook"
    status = run_program(argv[1:]) if hooked else run_files(argv, recorder)
    recorder.compare()
    recorder.finish(status=status)
    return status


def run_files(paths: list[str], recorder: UnittestRecorder) -> int:
    """Run the tests of each file."""
    # The folder of this script came first on the path; the target's own modules come first now.
    sys.path[0] = os.getcwd()
    ran = 0
    for path in paths:
        try:
            module = load(path)
        except unittest.SkipTest as skip:
            recorder.not_imported(path, "skipped", str(skip))
        except BaseException:  # noqa: BLE001  (whatever a test module raises, SystemExit too)
            recorder.not_imported(path, "failed", traceback.format_exc())
        else:
            result = unittest.TestResult()
            suite(module).run(result)
            ran += result.testsRun
    if recorder.failed:
        return 1
    return 0 if ran else 5


def run_program(argv: list[str]) -> int:
    """Run a script or module as `__main__`, as python itself would have."""
    try:
        if argv[0] == "-m":
            sys.argv = argv[1:]
            sys.path[0] = os.getcwd()
            runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = argv
            sys.path[0] = os.path.dirname(os.path.abspath(argv[0]))
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return int(leaving.code or 0)
        print(leaving.code, file=sys.stderr)  # noqa: T201
        return 1
    except BaseException:  # noqa: BLE001  (whatever the target raises)
        traceback.print_exc()
        return 1
    return 0


def load(path: str) -> types.ModuleType:
    """Import a file under the name that its packages give it, as pytest does by default."""
    folder, file = os.path.split(os.path.abspath(path))
    folder, package = patchshot_watch.package_of(folder)
    name = file[: -len(".py")]
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if package:
        return importlib.import_module(package + "." + name)
    # Two folders without __init__.py may hold files of one name: each is its own module.
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
