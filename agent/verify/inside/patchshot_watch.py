"""What our runners share: the writer of report lines, and a check of the test runner itself.

It runs inside the sandbox under Python 3.7 or later, with the standard library only. `RunnerWatch`
remembers the test runner before any file of the target is imported, and compares once tests are
collected and when they have run. Fixtures that patch for the length of one test are gone by then.
"""

# ruff: noqa: PTH108, PTH118, PTH123  (pathlib would be imported for a few calls)

from __future__ import annotations

import builtins
import contextlib
import hashlib
import hmac
import json
import os
import re
import sys
import time
import types
from collections.abc import Iterator
from typing import Any

import patchshot_trace  # type: ignore[import-not-found]  # beside this file, inside

# The end of a failure report names the error; what is above it is source that the reader knows.
TEXT_LIMIT = 6000

# Of each line's signature, in hexadecimal digits: 64 bits cannot be guessed in one run.
SIGNATURE_DIGITS = 16

# The code that decides whether a test passes; code under test must not replace any of it.
PACKAGES = ("_pytest.", "pluggy.")
MODULES = (
    *("unittest.case", "unittest.loader", "unittest.result", "unittest.suite"),
    *("pytest", "unittest", "ast", "importlib", "inspect", "linecache", "pathlib"),
)
OWN = "patchshot_"

# How many replaced functions are named: enough to say what happened.
TRACES_LIMIT = 200

# Test files and configuration, which no run may change.
TEST_FILE = re.compile(
    r"(test_.*|.*_tests?|tests?|conftest)\.py|\.?pytest\.(ini|toml)|tox\.ini|setup\.cfg|pyproject\.toml"
)
LIBRARIES = ("node_modules", "site-packages")
FILES_LIMIT = 5000

# Hooks by which a plugin can choose tests, run them in its own way, or rewrite their results.
STEERING = re.compile(
    "pytest_(collect_file|collection_modifyitems|ignore_collect|itemcollected|make_collect_report"
    "|pycollect_makeitem|pyfunc_call|report_teststatus|runtestloop|sessionfinish"
    "|runtest_(call|logreport|makereport|protocol|setup))"
)

# Marks the body of a function, which can be exchanged while the function stays.
CODE = " (code)"

_CALLABLE = (types.FunctionType, types.BuiltinFunctionType, type)


class LineWriter:
    """Writes JSON lines from the process that created it; a forked child of a test writes none.

    With a `key` each line is signed (`agent.verify.reports`), so that code that
    finds the pipe cannot add lines that look like ours.
    """

    def __init__(self, path: str, key: bytes = b"") -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._descriptor = os.open(path, flags, 0o600)
        self._process = os.getpid()
        self._key = key
        self._last = b""
        # Bound here: tests may replace the clock.
        self._clock, self._began = time.perf_counter, time.perf_counter()

    def seconds(self) -> float:
        """Return the seconds since the writer was made."""
        return round(self._clock() - self._began, 3)

    def stop(self) -> None:
        """Write nothing from now on."""
        self._process = -1

    def write(self, **line: Any) -> None:
        """Write one line."""
        if os.getpid() != self._process:
            return
        data = self._signed(json.dumps(line).encode("ascii"))
        while data:
            data = data[os.write(self._descriptor, data) :]

    def _signed(self, data: bytes) -> bytes:
        if not self._key:
            return data + b"\n"
        digest = hmac.new(self._key, self._last + data, hashlib.sha256).hexdigest()
        self._last = digest[:SIGNATURE_DIGITS].encode("ascii")
        return data + b"\t" + self._last + b"\n"


class OutcomeRecorder(LineWriter):
    """Writes the lines of a run, and follows the tests that decide if that is ordered."""

    def watch(self, own: str) -> None:
        """Remember the test runner as it is now; `own` is one more module of it."""
        self._watch, self._files = RunnerWatch(own), test_files()
        self.trace = patchshot_trace.from_environment()
        self.traces: set[str] = set()

    def begin_test(self, test: str, function: str) -> None:
        """Begin a test; `function` is the name of its function."""
        if self.trace is not None:
            self.trace.begin(test, function)

    def end_test(self) -> None:
        """End a test."""
        if self.trace is not None:
            self.trace.end()

    def result(
        self, test: str, phase: str, outcome: str, text: str = "", xfail: bool = False
    ) -> None:
        """Write an outcome, with the end of its text."""
        if outcome == "passed" and self.trace is not None and self.trace.cut_short():
            self.traces.add("the end of " + test + ", whose function did not come to it")
        text = text[-TEXT_LIMIT:]
        self.write(event="result", id=test, phase=phase, outcome=outcome, xfail=xfail, text=text)

    def compare(self) -> None:
        """Note what has changed in the test runner."""
        self.traces.update(self._watch.changed())

    def finish(self, **line: Any) -> None:
        """Write the last line; without it the run ended before its tests did."""
        now = test_files()
        self.traces.update(path for path, seen in self._files.items() if now.get(path) != seen)
        self.write(event="finish", **line, traces=sorted(self.traces)[:TRACES_LIMIT])


def test_files() -> dict[str, bytes]:
    """Return the hashes of the files of tests and of their configuration, by path."""
    found: dict[str, bytes] = {}
    for folder, folders, files in os.walk("."):
        folders[:] = [
            name for name in folders if not name.startswith(".") and name not in LIBRARIES
        ]
        for path in [os.path.join(folder, name) for name in files if TEST_FILE.fullmatch(name)]:
            if len(found) < FILES_LIMIT:
                with contextlib.suppress(OSError), open(path, "rb") as file:
                    found[path] = hashlib.sha256(file.read()).digest()
    return found


def take_key(path: str) -> bytes:
    """Read the key from its file and remove the file; b"" for no path."""
    if not path:
        return b""
    with open(path, "rb") as file:
        key = file.read()
    os.unlink(path)
    return key


class RunnerWatch:
    """Remembers the test runner as it is now; `own` is one more module to look at."""

    def __init__(self, own: str) -> None:
        self._modules = sorted(
            name
            for name in sys.modules
            if name.startswith((*PACKAGES, OWN)) or name in MODULES or name == own
        )
        self._before = dict(_machinery(self._modules))

    def changed(self) -> list[str]:
        """Return the dotted names of what has changed since."""
        now = dict(_machinery(self._modules))
        gone = (name for name, value in self._before.items() if now.get(name) is not value)
        return sorted({name[: -len(CODE)] if name.endswith(CODE) else name for name in gone})


def steering(config: Any) -> list[str]:
    """Return the plugins that can choose tests or change their results, beside pytest itself."""
    plugins = set()
    # Not `config.hook`: in some versions that is a proxy without implementations.
    for name, caller in list(vars(config.pluginmanager.hook).items()):
        if not STEERING.fullmatch(name):
            continue
        for implementation in caller.get_hookimpls():
            module = getattr(implementation.function, "__module__", "") or ""
            if not module.startswith(("_pytest.", OWN)):
                plugin = str(implementation.plugin_name)
                if plugin.isdigit():  # pytest named it after its address
                    plugin = type(implementation.plugin).__qualname__
                plugins.add(name + " of " + plugin)
    return sorted(plugins)


def _machinery(modules: list[str]) -> Iterator[tuple[str, Any]]:
    for name in modules:
        yield from _of_module(name, sys.modules.get(name))
    for name, value in list(vars(builtins).items()):
        yield "builtins." + name, value
    for name in ("gettrace", "getprofile"):
        value = getattr(sys, name)()
        owner = type(getattr(value, "__self__", None)).__module__
        yield "sys." + name + "()", None if owner.startswith(OWN) else value


def _of_module(module: str, value: Any) -> Iterator[tuple[str, Any]]:
    for name, member in list(getattr(value, "__dict__", {}).items()):
        if not isinstance(member, _CALLABLE):
            continue
        label = module + "." + name
        yield label, member
        if isinstance(member, types.FunctionType):
            yield label + CODE, member.__code__
        elif isinstance(member, type) and member.__module__ == module:
            yield from _of_class(label, member)


def _of_class(label: str, value: type) -> Iterator[tuple[str, Any]]:
    for name, member in list(vars(value).items()):
        function = getattr(member, "__func__", member)  # of a class method or static method
        function = getattr(member, "fget", function)
        if isinstance(function, types.FunctionType):
            yield label + "." + name, member
            yield label + "." + name + CODE, function.__code__
