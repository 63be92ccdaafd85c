"""Replays tests as plain code, without a test runner, as the order in PATCHSHOT_REPLAY asks.

It runs inside the sandbox under Python 3.7 or later, with the standard library only. A replayed
test runs as it is (`plain`), some more times in the same process (`twice`), and where nothing looks
like a test run (`moved`): see `patchshot_user.move`. In `bent` one assertion expects another value:
a test that passes all the same asserts nothing. In `amid` it is a part of a longer program: see
`patchshot_rewrite.Amid`. Where code looked at its callers, its callers hold nothing that the test
expects in `apart`. All but `twice` and `bent` are child processes.
"""

# ruff: noqa: PTH100, PTH108, PTH109, PTH118, PTH120
# (pathlib would be imported, and functions of `os` are replaced)

from __future__ import annotations

import ast
import atexit
import builtins
import collections
import contextlib
import importlib.util
import io
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
import types
import warnings
from typing import Any

import patchshot_watch  # type: ignore[import-not-found]  # beside this file, inside
from patchshot_rewrite import (  # type: ignore[import-not-found]
    AGAIN,
    AMID,
    APART,
    GIVEN,
    LOOKED,
    MARKED,
    SEEN,
    Amid,
    Parted,
    Watched,
    audit,
    bent,
    renamed,
)
from patchshot_user import (  # type: ignore[import-not-found]
    HIDDEN,
    LATER,
    READ,
    RUNNERS,
    SHIFT,
    configured_paths,
    elsewhere,
    hide_runners,
    in_thread,
    installed,
    move,
    of_a_module,
)

VARIABLE = "PATCHSHOT_REPLAY"
VALUE_CHARS = 300
SECONDS = 60  # of one variant
CALLS, CALLS_SECONDS = 10_000, 0.3  # of a test in one process
MOST_BENT = 12
MOST_ELEMENTS = 4  # of an expected list that are bent
JOIN_SECONDS = 0.3  # for a thread that the test leaves behind
Captured = collections.namedtuple("Captured", "out err")
_TIME = time.time  # before code of the target can replace it


class Replay:
    """One test in one variant."""

    def __init__(self, order: Any, test: str, source: bytes, way: str) -> None:
        self._order, self._source, self._way = order, source, way
        self._moved = way == "moved"
        self._path, _, self._name = test.partition("::")
        self._values: list[Any] = []
        self._sizes: dict[int, int] = {}  # by line: elements of what an assertion expects
        self._bent = (0, 0)  # the line and the element
        self._again: list[Any] = []  # the last assertion of each call, in `moved`
        self._called = False

    def results(self) -> Any:
        """Yield how the test ends, by variant."""
        outcome = self._outcome(self._run_first)
        if self._moved and outcome["kind"] == "passed":  # once more, some years later
            SHIFT[0] += LATER
            outcome = self._outcome(lambda: in_thread(self._call))
        yield dict(outcome, variant=self._way)
        if outcome["kind"] != "passed" or self._way != "plain":
            return
        began = _TIME()
        for _ in range(CALLS):
            outcome = self._outcome(self._call)
            if outcome["kind"] != "passed" or _TIME() - began > CALLS_SECONDS:
                break
        yield dict(outcome, variant="twice")
        places = [(line, at) for line, size in self._sizes.items() for at in range(size)]
        for place in places[:MOST_BENT]:
            self._bent = place
            yield dict(self._outcome(self._call), variant="bent", line=place[0])

    def _outcome(self, work: Any) -> Any:
        self._values = []
        try:
            kind = work() or "passed"
            error, line, looked, marked = "", 0, LOOKED[0], sorted({*MARKED})
        except BaseException as raised:  # noqa: BLE001  (whatever the target raises)
            looked, marked = LOOKED[0], sorted({*MARKED})
            kind = "failed" if isinstance(raised, AssertionError) else "error"
            text = str(raised) if kind == "error" else ""
            error = _without_addresses(type(raised).__name__ + ": " + text)
            line = self._line(raised)
        return {
            "kind": kind, "error": error, "line": line,
            "values": list(map(_shown, self._values[-2:])),
            "reached": self._called and (kind == "passed" or line > 0),
            "compared": line in self._sizes, "looked": looked, "marked": marked,
        }  # fmt: skip

    def _line(self, raised: BaseException) -> int:
        line, trace = 0, raised.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self._file:
                line = trace.tb_lineno
            trace = trace.tb_next
        return line

    def _run_first(self) -> str:
        root, path = self._order["root"], os.path.join(self._order["root"], self._path)
        folder = os.path.dirname(path)
        if self._moved:
            folder = elsewhere(folder)
        self._file = os.path.join(folder, "sample.py") if self._moved else path
        others = () if b"tests" in self._source else ("test", "tests")
        places = [os.path.join(root, one) for one in self._order["roots"]]
        sys.path[:0] = [installed(places, others)] if self._moved else places
        sys.path += [*configured_paths(os.getcwd()), folder]
        name = "office.sample" if self._moved else "replayed"
        spec: Any = importlib.util.spec_from_file_location(name, self._file)
        module = importlib.util.module_from_spec(spec)
        if self._moved:
            os.chdir(elsewhere(os.getcwd(), others))
        else:
            top, module.__package__ = patchshot_watch.package_of(folder)
            sys.path.append(top)
        sys.modules[module.__name__] = module
        vars(module)[SEEN] = self._see
        if self._moved:
            vars(module)["__builtins__"] = builtins  # as in a script
        tree = ast.parse(self._source)
        hide_runners()
        _import_before_runners(tree, dict(vars(module)))
        HIDDEN[0] = False
        if self._way == "apart":
            parted = Parted()
            vars(module).update({APART: parted.call, GIVEN: parted.literals.__getitem__})
            tree = parted.visit(tree)
        if self._way == "amid":
            vars(module)[AMID] = Amid(vars(module), root, self._order["old"])
            tree = vars(module)[AMID].visit(tree)
        vars(module)[AGAIN + "s"] = self._again
        tree = Watched(self._moved).visit(tree)
        code = compile(tree, self._file, "exec", dont_inherit=True)
        exec(of_a_module(code) if self._moved else code, vars(module))  # noqa: S102
        self._module = module
        for value in list(vars(module).values()) if self._moved else ():
            if isinstance(value, type) and value.__module__ == module.__name__:
                value.__name__ = "Sample"
        for name in [n for n in sys.modules if n.split(".")[0] in RUNNERS]:
            del sys.modules[name]
        HIDDEN[0] = True
        return in_thread(self._call) if self._moved else self._call()

    def _call(self) -> str:
        """Call the test, for each set of its parameters; says "skipped" if it needs more."""
        names = self._name.partition("[")[0].split("::")
        holder: Any = self._module
        for name in names[:-1]:
            holder = getattr(holder, name, None)
        name = renamed(names[-1]) if self._moved and names[-1].startswith("test") else names[-1]
        of_class = len(names) > 1 and isinstance(holder, type)
        function = self._bound(holder, name) if of_class else getattr(holder, name, None)
        marks = [mark.name for one in (self._module, holder, function) for mark in _marks(one)]
        fixtures = Fixtures(self._module, os.environ["HOME"] if self._moved else None)
        cases = _cases(function, fixtures)
        if cases is None or "usefixtures" in marks or b"autouse" in self._source:
            return "skipped"
        for case in cases:
            self._finish(function, case, fixtures, holder if of_class else None)
        return ""

    def _bound(self, case: Any, name: str) -> Any:
        """Return the method of a new instance, between its set-up and its tear-down."""
        try:
            test = case(name)
        except TypeError:
            test = case()
        method = getattr(test, name, None)
        if method is None or not hasattr(test, "setUp"):
            return method

        def run() -> None:
            case.setUpClass()
            test.setUp()
            method()
            test.tearDown()
            test.doCleanups()

        return run

    def _finish(self, function: Any, case: Any, fixtures: Fixtures, holder: Any) -> None:
        """Call the function with what a runner would give it, and do what a runner does before."""
        owner = getattr(function, "__self__", holder)
        hooks = [getattr(self._module, "setup_module", None)]
        hooks += [getattr(owner, name, None) for name in ("setup_class", "setup_method")]
        if holder is None:
            hooks.append(getattr(self._module, "setup_function", None))
        for hook in filter(None, hooks):
            hook(*[function] * len(_parameters(hook)))
        arguments = {n: fixtures.value(n) for n in _parameters(function) if n not in case}
        self._called, LOOKED[0] = True, False
        exits, threads = atexit._ncallbacks(), threading.enumerate()
        try:
            result = function(**arguments, **case)
            if hasattr(result, "__await__"):
                import asyncio

                asyncio.run(result)
            left = [thread for thread in threading.enumerate() if thread not in threads]
            if self._again and (left or atexit._ncallbacks() > exits):
                for thread in left:
                    thread.join(JOIN_SECONDS)
                atexit._run_exitfuncs()
                self._values.clear()
                self._again[-1]()
        finally:
            fixtures.undo()

    def _see(self, value: Any, line: int, way: str) -> Any:
        """Note a value of an assertion, and bend it: an expected value, or the whole assertion."""
        self._values += [value] if way != "part" else []
        if not way:
            return value
        plain = way != "force" and type(value) in (list, tuple, dict) and value
        self._sizes.setdefault(line, min(len(value), MOST_ELEMENTS) if plain else 1)
        if self._bent[0] != line:
            return value
        if way == "force":
            self._values.clear()  # the other one is not known
            raise AssertionError
        return bent(value, self._bent[1])


def _shown(value: Any) -> str:
    try:
        return _without_addresses(type(value).__name__ + " " + repr(value))
    except Exception:  # noqa: BLE001  (a value of the target may raise anything)
        return type(value).__name__


def _without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]{6,}", "0x", text)[:VALUE_CHARS]


class Fixtures:
    """The fixtures of one call: some of pytest's, and those of the test's own file."""

    def __init__(self, module: Any, folder: Any) -> None:
        self._module, self._folder = module, folder
        self._ends = contextlib.ExitStack()
        self._values: dict[str, Any] = {}

    def function(self, name: str) -> Any:
        """Return the function of a fixture, or None."""
        own: Any = getattr(self._module, name, None)
        if hasattr(own, "_fixture_function"):  # pytest 8.4
            return own._fixture_function
        if hasattr(own, "_pytestfixturefunction"):
            return own.__pytest_wrapped__.obj
        return getattr(self, "_" + name) if name in ("tmp_path", "monkeypatch", "capsys") else None

    def value(self, name: str) -> Any:
        """Return the value of a fixture."""
        if name not in self._values:
            function = self.function(name)
            value = function(*[self.value(one) for one in _parameters(function)])
            if isinstance(value, types.GeneratorType):
                self._ends.callback(list, value)
                value = next(value)
            self._values[name] = value
        return self._values[name]

    def undo(self) -> None:
        """End the fixtures, the last one first."""
        self._ends.close()
        self._values.clear()

    def _tmp_path(self) -> Any:
        import pathlib

        return pathlib.Path(tempfile.mkdtemp(dir=self._folder))

    def _monkeypatch(self) -> Any:
        HIDDEN[0] = False
        from _pytest.monkeypatch import MonkeyPatch

        HIDDEN[0] = True
        patcher = MonkeyPatch()
        self._ends.callback(patcher.undo)
        return patcher

    def _capsys(self) -> Any:
        out, err = io.StringIO(), io.StringIO()
        self._ends.enter_context(contextlib.redirect_stdout(out))
        self._ends.enter_context(contextlib.redirect_stderr(err))

        def readouterr() -> Any:
            texts = [out.getvalue(), err.getvalue()]
            for one in (out, err):
                one.seek(0)
                one.truncate()
            return Captured(*texts)

        return types.SimpleNamespace(readouterr=readouterr)


def _parameters(function: Any) -> list[str]:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    names = list(code.co_varnames[: code.co_argcount]) if code else []
    return names[1:] if hasattr(function, "__func__") else names


def _cases(function: Any, fixtures: Fixtures) -> Any:
    """Return the sets of parameters of a test; None if it cannot be called without a runner."""
    if not callable(function):
        return None
    cases: list[dict[str, Any]] = [{}]
    for mark in _marks(function):
        if mark.name != "parametrize" or len(mark.args) != 2:
            continue
        given, rows = mark.args
        names = [n.strip() for n in given.split(",")] if isinstance(given, str) else list(given)
        single = isinstance(given, str) and len(names) == 1
        rows = [_row(row, single) for row in rows if not getattr(row, "marks", ())]
        cases = [dict(case, **dict(zip(names, row))) for case in cases for row in rows]  # noqa: B905
    needed = [n for n in _parameters(function) if n not in (cases[0] if cases else {})]
    for name in needed:  # grows while it is read
        if fixtures.function(name) is None:
            return None
        needed.extend(_parameters(fixtures.function(name)))
    return cases


def _marks(holder: Any) -> list[Any]:
    marks = getattr(holder, "pytestmark", [])
    marks = marks if isinstance(marks, list) else [marks]
    return [mark for mark in marks if hasattr(mark, "name")]


def _row(row: Any, single: bool) -> Any:
    """Return the values of one set; `single`: a set that is no `pytest.param` is the value."""
    if hasattr(row, "marks"):
        return row.values
    return (row,) if single else row


def _import_before_runners(tree: Any, names: dict[str, Any]) -> None:
    for node in tree.body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        imported = [getattr(node, "module", "") or "", *(alias.name for alias in node.names)]
        if all(name.split(".")[0] not in RUNNERS for name in imported):
            statement = ast.Module(body=[node], type_ignores=[])
            with contextlib.suppress(BaseException):  # the test shows it
                exec(compile(statement, "", "exec", dont_inherit=True), names)  # noqa: S102


# --------------------------------------------------------------------------------- the processes


def in_child(order: Any, test: str, source: bytes, way: str) -> list[Any]:
    """Return what a child process reports of a test."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(SECONDS)
            write, dump = os.write, json.dumps
            if way in ("plain", "amid") and hasattr(sys, "addaudithook"):
                sys.addaudithook(audit)

            def run() -> None:
                for result in Replay(order, test, source, way).results():
                    write(writing, dump(result).encode("ascii") + b"\n")

            if way == "moved":
                move(order["root"])
            run()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        lines = pipe.read().splitlines()
    os.waitpid(child, 0)
    return [json.loads(line.decode("ascii")) for line in lines]


def replay() -> None:
    """Replay the tests of the order, and write a line for each variant."""
    if sys.argv[2:] != ["again"]:  # the command line of the process must not name a folder of tests
        script = os.path.abspath(__file__)
        os.execve(sys.executable, ["python", script, "replay", "again"], os.environ)  # noqa: S606
    key = patchshot_watch.take_key(os.environ.pop("PATCHSHOT_SEAL", ""))
    lines = patchshot_watch.LineWriter(os.environ.pop("SANDBOX_REPORT"), key)
    place = os.environ.pop(VARIABLE)
    with READ(place, "rb") as file:
        order = json.loads(file.read().decode("utf-8"))
    os.unlink(place)
    order["root"] = os.path.realpath(os.path.dirname(place))
    sys.argv[:] = ["shell"]
    getattr(sys, "orig_argv", [])[:] = ["python"]
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [one for one in sys.path if os.path.abspath(one) != here]
    for test in order["tests"]:
        try:
            with READ(os.path.join(order["root"], test.partition("::")[0]), "rb") as file:
                source = file.read()
        except OSError:
            continue
        looked = False
        for way in ("plain", "moved", "amid", "apart"):
            for result in in_child(order, test, source, way) if looked or way != "apart" else ():
                looked = (result.pop("looked") and way == "plain") or looked
                lines.write(event="replay", id=test, **result)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    replay()
