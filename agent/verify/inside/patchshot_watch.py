"""What our runners share: the writer of report lines, and checks of the runner and of the tests.

It runs inside the sandbox under Python 3.7 or later, with the standard library only. `RunnerWatch`
remembers the test runner before any file of the target is imported, and compares later.
"""

# ruff: noqa: PTH108, PTH110, PTH118, PTH120, PTH123  (pathlib would be imported for a few calls)

from __future__ import annotations

import ast
import builtins
import contextlib
import hashlib
import hmac
import json
import os
import random
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

# The end of a failure report names the error; what is above it is source that the reader knows.
TEXT_LIMIT = 6000

# Of each line's signature, in hexadecimal digits: 64 bits cannot be guessed in one run.
SIGNATURE_DIGITS = 16

# The code that decides whether a test passes; code under test must not replace any of it.
PACKAGES = ("_pytest.", "pluggy.")
MODULES = (
    *("unittest.case", "unittest.loader", "unittest.result", "unittest.suite"),
    *("pytest", "unittest", "ast", "importlib", "inspect", "linecache", "pathlib", "re", "json"),
    *("collections", "copy", "functools", "operator", "os", "posixpath"),
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
        self.trace = EndTrace()
        self.traces: set[str] = set()

    def result(
        self, test: str, phase: str, outcome: str, text: str = "", xfail: bool = False
    ) -> None:
        """Write an outcome, with the end of its text."""
        if outcome == "passed" and self.trace.cut_short():
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


class EndTrace:
    """Follows the functions of the tests that decide, each from `begin` to `end`.

    An order (a JSON file, which is removed) has the ids of these `tests`. With one, tests run in
    the `reverse` order and with another seed of `random`.
    """

    def __init__(self) -> None:
        place = os.environ.pop("PATCHSHOT_TRACE", "")
        order: Any = {}
        if place:
            with open(place, "rb") as file:
                order = json.loads(file.read().decode("utf-8"))
            os.unlink(place)
            # Code must not see how it was started, as far as that can be hidden.
            for arguments in (sys.argv, getattr(sys, "orig_argv", [])):
                arguments[:] = [""]
        self.tests, self.reverse = frozenset(order.get("tests", ())), bool(order)
        random.seed(int(self.reverse))  # the same numbers with the patch and on the base
        self._function = ""  # the name of the function of the test that runs
        self._returned = self._raised = False
        self._own: dict[str, list[Any]] = {}  # by name: what the functions of the tests' files do
        root = os.path.realpath(os.path.dirname(place))
        for path in sorted({test.partition("::")[0] for test in self.tests}):
            self._compile(os.path.join(root, path))

    def begin(self, test: str, function: str) -> None:
        """Follow a test with a function of this name, if it is one that decides."""
        self._function, self._returned = function if test in self.tests else "", False
        if self._function:
            sys.settrace(self._on_call)

    def end(self) -> None:
        """End a test."""
        if self._function:
            sys.settrace(None)

    def cut_short(self) -> bool:
        """Whether the function of the test that runs has not come to its own end."""
        return bool(self._function) and not self._returned

    def _on_call(self, frame: Any, event: str, arg: Any) -> Any:
        """Follow the code of the running test: what we compiled, or of a base class of it."""
        code = frame.f_code
        own = self._own.get(code.co_name)
        mine = code.co_name == self._function and (own is None or _what(code) in own)
        return self._on_test if mine else None

    def _on_test(self, frame: Any, event: str, arg: Any) -> Any:
        if event == "return":
            self._returned = self._returned or not self._raised
        self._raised = event == "exception"
        return self._on_test

    def _compile(self, path: str) -> None:
        """Note what the functions of a test file do, as they are and as pytest rewrites them."""
        rewriter = sys.modules.get("_pytest.assertion.rewrite")
        try:
            with open(path, "rb") as file:
                source = file.read()
            trees = [ast.parse(source), ast.parse(source)]
            if rewriter is not None:
                rewriter.rewrite_asserts(trees[1], source, path, None)
            found = [compile(tree, path, "exec", dont_inherit=True) for tree in trees]
        except (OSError, SyntaxError, ValueError, TypeError):
            return
        for code in found:  # grows while it is read
            self._own.setdefault(code.co_name, []).append(_what(code))
            found.extend(one for one in code.co_consts if isinstance(one, types.CodeType))


def _what(code: Any) -> Any:
    """Return what code does, comparable; not where it stands."""
    values = [
        _what(one) if isinstance(one, types.CodeType) else repr(one) for one in code.co_consts
    ]
    return code.co_code, code.co_names, code.co_varnames, values


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


def package_of(folder: str) -> tuple[str, str]:
    """Return the folder that holds the package of a folder, and the package's name."""
    names: list[str] = []
    while os.path.exists(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
        names.insert(0, name)
    return folder, ".".join(names)


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
        return [
            name
            for name, (value, code) in sorted(self._before.items())
            if now.get(name, (self,))[0] is not value or now[name][1] != code
        ]


def _machinery(modules: list[str]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield what the runner consists of, by dotted name, with the body of each function."""
    for module in modules:
        for name, value in list(vars(sys.modules.get(module, types)).items()):
            yield from _parts(module + "." + name, value, module)
    for name, value in list(vars(builtins).items()):
        yield "builtins." + name, (value, None)
    for name in ("gettrace", "getprofile"):
        value = getattr(sys, name)()
        owner = type(getattr(value, "__self__", None)).__module__
        yield "sys." + name + "()", (None if owner.startswith(OWN) else value, None)


def _parts(label: str, value: Any, module: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield a function, or a class with its methods if it is of the module."""
    function = value
    if isinstance(value, (classmethod, staticmethod, property)):
        function = getattr(value, "__func__", None) or getattr(value, "fget", None)
    if isinstance(function, (types.FunctionType, types.BuiltinFunctionType, type)):
        yield label, (value, getattr(function, "__code__", None))
    if isinstance(value, type) and value.__module__ == module:
        for name, member in list(vars(value).items()):
            yield from _parts(label + "." + name, member, "")
