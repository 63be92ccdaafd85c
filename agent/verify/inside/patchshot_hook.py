"""Runs another runner that is built on unittest, and writes one JSON line for each outcome.

`python patchshot_hook.py tests/runtests.py ...` or `python patchshot_hook.py -m unittest ...`. It
runs inside the sandbox, in the target's interpreter: Python 3.7 or later, standard library only.
Every unittest runner calls the methods of `unittest.TestResult`, and these are recorded whatever
the runner prints. Lines and ids are those of patchshot_unittest.
"""

# ruff: noqa: D102, PTH100, PTH109, PTH113, PTH118, PTH120
# (methods are documented by unittest; pathlib would be imported for five calls)

from __future__ import annotations

import functools
import os
import re
import runpy
import sys
import traceback
import unittest
from collections.abc import Callable
from typing import Any

import patchshot_unittest  # type: ignore[import-not-found]

# `setUpClass (app.tests.Case)`, `setUpModule (app.tests)`: what stands for a class that failed.
HOLDER = re.compile(r"\w+ \(([\w.]+)\)")

# Python before 3.11: `unittest.loader._FailedTest.app.tests`; later without the class.
FAILED_IMPORT = "unittest.loader._FailedTest."


class ResultListener:
    """Records the outcomes that reach unittest's own result class."""

    def __init__(self, recorder: patchshot_unittest.UnittestRecorder) -> None:
        self._recorder = recorder
        self._root = os.environ.pop("PATCHSHOT_ROOT", "") or os.getcwd()
        self.failed = 0

    def listen(self) -> None:
        """Wrap the methods that every result class inherits, and calls."""
        for name in ("startTest", "stopTest", "addSuccess", "addFailure", "addError", "addSkip"):
            self._wrap(name, getattr(self, "on_" + name))
        for name in ("addExpectedFailure", "addUnexpectedSuccess", "addSubTest"):
            self._wrap(name, getattr(self, "on_" + name))

    def _wrap(self, name: str, listener: Callable[..., None]) -> None:
        original = getattr(unittest.TestResult, name)

        @functools.wraps(original)
        def method(result: Any, test: Any, *rest: Any, **named: Any) -> Any:
            listener(test, *rest, **named)
            return original(result, test, *rest, **named)

        setattr(unittest.TestResult, name, method)

    def on_startTest(self, test: Any) -> None:
        self._recorder.start(self.identify(test))

    def on_stopTest(self, test: Any) -> None:
        self._recorder.stop(self.identify(test))

    def on_addSuccess(self, test: Any) -> None:
        self._recorder.result(self.identify(test), "call", "passed")

    def on_addFailure(self, test: Any, err: Any) -> None:
        self._fail(test, "call", err)

    def on_addError(self, test: Any, err: Any) -> None:
        real = isinstance(test, unittest.TestCase) and not _failed_import(test)
        self._fail(test, "call" if real else "collect", err)

    def on_addSkip(self, test: Any, reason: str) -> None:
        self._recorder.result(self.identify(test), "call", "skipped", str(reason))

    def on_addExpectedFailure(self, test: Any, err: Any) -> None:
        self._recorder.result(self.identify(test), "call", "skipped", "expected failure")

    def on_addUnexpectedSuccess(self, test: Any) -> None:
        self.failed += 1
        self._recorder.result(self.identify(test), "call", "failed", "unexpected success")

    def on_addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._fail(test, "call", err, str(subtest) + "\n")

    def _fail(self, test: Any, phase: str, err: Any, before: str = "") -> None:
        self.failed += 1
        text = before + "".join(traceback.format_exception(*err))
        self._recorder.result(self.identify(test), phase, "failed", text)

    def identify(self, test: Any) -> str:
        """`path::Class::method`; `path::Class` or the path alone for what cannot be set up."""
        name = str(test.id())
        if isinstance(test, unittest.FunctionTestCase):
            return self._file(type(test).__module__) + "::" + name.rpartition(".")[2]
        if _failed_import(test):
            return self._failed_file(name[len(FAILED_IMPORT) :], test)
        if isinstance(test, unittest.TestCase):
            case = type(test)
            method = name.rpartition(".")[2]
            return "::".join((self._file(case.__module__), case.__qualname__, method))
        holder = HOLDER.fullmatch(name)
        return self._held(holder.group(1)) if holder else name

    def _held(self, dotted: str) -> str:
        """A module, or a class of the longest part of the name that is a module."""
        parts = dotted.split(".")
        for length in range(len(parts), 0, -1):
            module = ".".join(parts[:length])
            if module in sys.modules:
                return "::".join((self._file(module), *parts[length:]))
        return self._file(dotted)

    def _file(self, module: str) -> str:
        """The file of a module, as seen from where the runner was started."""
        file = getattr(sys.modules.get(module), "__file__", None)
        if file:
            return os.path.relpath(os.path.abspath(file), self._root)
        guess = os.path.join(*module.split(".")) + ".py"
        return guess if os.path.isfile(os.path.join(self._root, guess)) else module

    def _failed_file(self, name: str, test: Any) -> str:
        """The file of a module that cannot be imported: unittest may know its last name only."""
        named = re.compile(r'File "([^"\n]*[/\\]' + re.escape(name.rpartition(".")[2]) + r'\.py)"')
        found = named.findall(str(getattr(test, "_exception", "")))
        return os.path.relpath(found[-1], self._root) if found else self._file(name)


def _failed_import(test: Any) -> bool:
    return str(test.id()).startswith(FAILED_IMPORT)


def main(argv: list[str]) -> int:
    """Run the script or module that the arguments name; its exit code is ours."""
    recorder = patchshot_unittest.UnittestRecorder.from_environment()
    listener = ResultListener(recorder)
    listener.listen()
    recorder.begin("unittest (hooked)")
    status = run(argv)
    recorder.finish(status, listener.failed)
    return status


def run(argv: list[str]) -> int:
    """Run it as `__main__`, as python itself would have."""
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
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  (whatever the target raises)
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
