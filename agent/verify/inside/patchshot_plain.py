"""Works in the target's interpreter without a test runner: checks syntax, and replays tests.

    patchshot_plain.py syntax PATH...   prints which files cannot be parsed, as a JSON list
    patchshot_plain.py replay           runs tests as plain code, as the order in
                                        PATCHSHOT_REPLAY asks

It runs inside the sandbox under Python 3.7 or later, with the standard library only.

A replayed test runs as it is (`plain`), once more in the same process (`twice`), and where nothing
looks like a test run (`moved`): no runner is loaded, the function and its file have other names,
the file lies in no folder of tests, and the thread, the current folder, the environment, the
arguments, the terminal, the process number, the network and the clock are those of a user. Each
variant is a child process. What it reports is how it ended and what its assertions compared.
"""

# ruff: noqa: PTH100, PTH108, PTH109, PTH110, PTH118, PTH120, PTH208, PTH211
# (pathlib would be imported, and the functions of `os` are what this module replaces)

from __future__ import annotations

import ast
import json
import os
import re
import socket
import sys
import tempfile
import threading
import time
import types
import warnings
from typing import Any

VARIABLE = "PATCHSHOT_REPLAY"
VALUE_CHARS = 300
SECONDS = 60  # of one variant
LATER = 10 * 365 * 86_400  # seconds by which the clock is moved
SEEN = "_patchshot_seen"
USER = {"HOME": "", "USER": "dev", "LOGNAME": "dev", "LANG": "C.UTF-8", "TERM": "xterm"}
RUNNERS = ("pytest", "_pytest", "pluggy", "unittest.runner", "unittest.main")
BUILTIN = (int, str, float, bytes, list, tuple, dict, set, frozenset, complex)
_READ = open  # before code of the target can replace it


def syntax_problem(path: str) -> Any:
    """Return what is wrong with one file, or None. A file that is not there is not wrong."""
    try:
        with _READ(path, "rb") as file:
            compile(file.read(), path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except SyntaxError as error:
        return {"path": path, "line": error.lineno or 1, "message": str(error.msg)}
    except ValueError as error:  # NUL bytes
        return {"path": path, "line": 1, "message": str(error)}
    except (OSError, MemoryError, RecursionError):  # absent, or nested too deeply to tell
        return None
    return None


# ------------------------------------------------------------------------------ the test as code


class Watched(ast.NodeTransformer):
    """Has the assertions of a test report what they compare; `renamed`: tests get other names."""

    def __init__(self, renamed: bool) -> None:
        self._renamed = renamed

    def visit_Assert(self, node: Any) -> Any:  # noqa: D102
        self.generic_visit(node)
        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            equal = isinstance(test.ops[0], ast.Eq)
            test.left = self._seen(test.left, "left" if equal else "")
            test.comparators[0] = self._seen(test.comparators[0], "right" if equal else "")
        else:
            node.test = self._seen(test, "")
        return node

    def visit_Call(self, node: Any) -> Any:  # noqa: D102
        self.generic_visit(node)
        name = getattr(node.func, "attr", "")
        if name.startswith("assert") and node.args:
            sides = ("left", "right") if name == "assertEqual" else ("", "")
            for at, side in zip(range(len(node.args[:2])), sides):  # noqa: B905
                if not isinstance(node.args[at], (ast.Starred, ast.Lambda)):
                    node.args[at] = self._seen(node.args[at], side)
        return node

    def visit_FunctionDef(self, node: Any) -> Any:  # noqa: D102
        self.generic_visit(node)
        if self._renamed and node.name.startswith("test"):
            node.name = renamed(node.name)
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def _seen(self, value: Any, side: str) -> Any:
        name = ast.Name(SEEN, ast.Load())
        call = ast.Call(name, [value, ast.Constant(side)], [])
        return ast.fix_missing_locations(ast.copy_location(call, value))


def renamed(name: str) -> str:
    """Return another name for a test function."""
    return "run" + name[len("test") :]


class Replay:
    """One test in one variant."""

    def __init__(self, order: Any, test: str, source: bytes, moved: bool) -> None:
        self._order, self._source, self._moved = order, source, moved
        self._path, _, self._name = test.partition("::")
        self._values: list[Any] = []
        self._left: Any = None
        self._loose = ""
        self._called = False

    def results(self) -> Any:
        """Yield how the test ends as it is, and once more if it passes."""
        outcome = self._outcome(self._run_first)
        yield outcome
        if outcome["kind"] == "passed" and not self._moved:
            self._values = []
            yield self._outcome(self._call)

    def _outcome(self, work: Any) -> Any:
        try:
            kind = work() or "passed"
            error, line = "", 0
        except BaseException as raised:  # noqa: BLE001  (whatever the target raises)
            kind = "failed" if isinstance(raised, AssertionError) else "error"
            text = str(raised) if kind == "error" else ""
            error, line = (type(raised).__name__ + ": " + text)[:VALUE_CHARS], self._line(raised)
        values = list(map(_shown, self._values[-2:]))
        return {
            "kind": kind, "error": error, "line": line, "values": values, "loose": self._loose,
            "reached": self._called and (kind == "passed" or line > 0),
        }  # fmt: skip

    def _line(self, raised: BaseException) -> int:
        """Return the last line of the test's file that the error passed through."""
        line, trace = 0, raised.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self._file:
                line = trace.tb_lineno
            trace = trace.tb_next
        return line

    def _run_first(self) -> str:
        root, path = self._order["root"], os.path.join(self._order["root"], self._path)
        folder = os.path.dirname(path)
        self._file = os.path.join(elsewhere(folder), "sample.py") if self._moved else path
        sys.path[:0] = [os.path.join(root, one) for one in self._order["roots"]]
        sys.path += [*configured_paths(os.getcwd()), folder]
        module = types.ModuleType("sample" if self._moved else "replayed")
        if self._moved:
            os.chdir(elsewhere(os.getcwd()))
        else:
            top, module.__package__ = package_of(folder)
            sys.path.append(top)
        module.__file__ = self._file
        sys.modules[module.__name__] = module
        vars(module)[SEEN] = self._see
        tree = Watched(self._moved).visit(ast.parse(self._source))
        exec(compile(tree, self._file, "exec", dont_inherit=True), vars(module))  # noqa: S102
        self._module = module
        for name in [n for n in sys.modules if n.startswith(RUNNERS)]:
            del sys.modules[name]
        return self._call()

    def _call(self) -> str:
        """Call the test, for each set of its parameters; says "skipped" if it needs more."""
        names = self._name.partition("[")[0].split("::")
        holder: Any = self._module
        for name in names[:-1]:
            holder = getattr(holder, name, None)
        name = renamed(names[-1]) if self._moved and names[-1].startswith("test") else names[-1]
        if len(names) > 1 and isinstance(holder, type):
            function = self._bound(holder, name)
        else:
            function = getattr(holder, name, None)
        cases = _cases(function)
        if cases is None or self._needs_runner(holder):
            return "skipped"
        for case in cases:
            self._finish(function, case)
        return ""

    def _needs_runner(self, holder: Any) -> bool:
        """Whether the module or class has what only the runner calls before a test."""
        hooks = ("setup_module", "setup_function", "setup_class", "setup_method")
        places = (self._module, holder)
        if any(hasattr(place, hook) for place in places for hook in hooks):
            return True
        return b"autouse" in self._source or any(
            mark.name == "usefixtures" for place in places for mark in _marks(place)
        )

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
            replaced = [key for key in vars(test) if key.startswith("assert")]
            if replaced:
                self._loose = "it replaces " + replaced[0] + " of the test"
            test.tearDown()
            test.doCleanups()

        return run

    def _finish(self, function: Any, case: Any) -> None:
        undo: list[Any] = []
        arguments = {
            name: _FIXTURES[name](undo) for name in _parameters(function) if name not in case
        }
        self._called = True
        try:
            result = function(**arguments, **case)
            if hasattr(result, "__await__"):
                import asyncio

                asyncio.run(result)
        finally:
            for one in undo:
                one()

    # ------------------------------------------------------------------------ what assertions see

    def _see(self, value: Any, side: str) -> Any:
        self._values.append(value)
        if side == "right":
            for one, other in _pairs(self._left, value):
                self._loose = self._loose or self._why_loose(one, other)
        self._left = value if side == "left" else None
        return value

    def _why_loose(self, value: Any, other: Any) -> str:
        """Return why a comparison says nothing, or ""."""
        equal = getattr(type(value), "__eq__", None)
        code = getattr(equal, "__code__", None)
        own = type(value).__module__ == "unittest.mock" and b"ANY" in self._source
        if code is None or own:
            return ""
        if _equals_anything(value):
            return "a value of " + type(value).__name__ + " equals everything"
        plain = next((kind for kind in BUILTIN if isinstance(value, kind)), None)
        if plain and isinstance(other, plain) and self._is_changed(code):
            equal = getattr(plain, "__eq__")  # noqa: B009  (of the builtin type)
            if equal(value, other) is True:
                return ""
            return "a value of " + type(value).__name__ + " equals what is another value"
        return ""

    def _is_changed(self, code: Any) -> bool:
        """Whether code is of a file that the patch changes."""
        return os.path.relpath(code.co_filename, self._order["root"]) in self._order["files"]


def _equals_anything(value: Any) -> bool:
    try:
        return bool(value == object())
    except Exception:  # noqa: BLE001  (a value of the target may raise anything)
        return False


def _pairs(left: Any, right: Any) -> Any:
    """Yield the two values, and those inside two lists or tuples, in both orders."""
    yield left, right
    yield right, left
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        yield from list(zip(left, right))[:100]  # noqa: B905


def _shown(value: Any) -> str:
    try:
        return (type(value).__name__ + " " + repr(value))[:VALUE_CHARS]
    except Exception:  # noqa: BLE001  (a value of the target may raise anything)
        return type(value).__name__


def _folder(undo: list[Any]) -> Any:
    import pathlib

    return pathlib.Path(tempfile.mkdtemp())


def _patcher(undo: list[Any]) -> Any:
    import pytest

    patcher = pytest.MonkeyPatch()
    undo.append(patcher.undo)
    return patcher


_FIXTURES = {"tmp_path": _folder, "monkeypatch": _patcher}


def _parameters(function: Any) -> list[str]:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    names = list(code.co_varnames[: code.co_argcount]) if code else []
    return names[1:] if hasattr(function, "__func__") else names


def _cases(function: Any) -> Any:
    """Return the sets of parameters of a test; None if it cannot be called without a runner."""
    if not callable(function):
        return None
    cases: list[dict[str, Any]] = [{}]
    for mark in _marks(function):
        if mark.name == "usefixtures":
            return None
        if mark.name != "parametrize" or len(mark.args) != 2:
            continue
        given, rows = mark.args
        names = [n.strip() for n in given.split(",")] if isinstance(given, str) else list(given)
        single = isinstance(given, str) and len(names) == 1
        rows = [_row(row, single) for row in rows if not getattr(row, "marks", ())]
        cases = [dict(case, **dict(zip(names, row))) for case in cases for row in rows]  # noqa: B905
    needed = set(_parameters(function)) - set(_FIXTURES) - set(cases[0] if cases else {})
    return None if needed else cases


def _marks(holder: Any) -> list[Any]:
    marks = getattr(holder, "pytestmark", [])
    marks = marks if isinstance(marks, list) else [marks]
    return [mark for mark in marks if hasattr(mark, "name")]


def _row(row: Any, single: bool) -> Any:
    """Return the values of one set; `single`: a set that is no `pytest.param` is the value."""
    if hasattr(row, "marks"):
        return row.values
    return (row,) if single else row


# ---------------------------------------------------------------------------------- the imports


def configured_paths(folder: str) -> list[str]:
    """Return the folders that pytest's configuration in a folder puts on the import path."""
    for name in ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"):
        try:
            with _READ(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            continue
        match = re.search(r"^pythonpath\s*=\s*(\[[^\]]*\]|.*(?:\n[ \t]+\S.*)*)", text, re.MULTILINE)
        if match:
            words = re.findall(r"[^\s\"',\[\]]+", match.group(1))
            return [os.path.normpath(os.path.join(folder, word)) for word in words]
    return []


def package_of(folder: str) -> tuple[str, str]:
    """Return the folder that holds the package of a folder, and the package's name."""
    names: list[str] = []
    while os.path.exists(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
        names.insert(0, name)
    return folder, ".".join(names)


# --------------------------------------------------------------------------- other surroundings


def elsewhere(folder: str) -> str:
    """Return another folder with links to what is in this one, in the user's home."""
    other = tempfile.mkdtemp(prefix="work-", dir=os.environ["HOME"])
    for name in os.listdir(folder):
        os.symlink(os.path.join(folder, name), os.path.join(other, name))
    return other


def move(root: str) -> None:
    """Have the process look like a user's: see the module's description."""
    home = tempfile.mkdtemp(prefix=".dev-", dir=root)
    _READ(os.path.join(home, "notes.txt"), "w").close()
    os.environ.clear()
    os.environ.update(USER, HOME=home, PATH=os.defpath, SHELL="/bin/sh")
    sys.argv[:] = ["shell"]
    _terminal()
    _outside_exists(root)
    names = [(1, "lo"), (2, "eth0"), (3, "wlan0")]
    socket.if_nameindex = lambda: names
    os.getpid = lambda: 48_211
    os.getppid = lambda: 2_105
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + LATER
    time.time_ns = lambda: now_ns() + LATER * 10**9


def _terminal() -> None:
    try:
        _, slave = os.openpty()
        os.dup2(slave, 0)
        sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)  # type: ignore[misc]
    except OSError:
        return


def _outside_exists(root: str) -> None:
    """Have every absolute path outside the tree exist, and new files be as new as the clock."""
    real, began = os.stat, time.time()
    inside = (root, tempfile.gettempdir(), sys.prefix, sys.base_prefix)

    def stat(path: Any, *rest: Any, **named: Any) -> Any:
        try:
            found = real(path, *rest, **named)
        except FileNotFoundError:
            text = os.fsdecode(path) if not isinstance(path, int) else ""
            if not text.startswith("/") or text.startswith(inside):
                raise
            return real("/")
        if found.st_mtime < began:
            return found
        moved = {
            "st_mtime": found.st_mtime + LATER,
            "st_mtime_ns": found.st_mtime_ns + LATER * 10**9,
        }
        return os.stat_result(tuple(found), moved)

    os.stat = stat


# --------------------------------------------------------------------------------- the processes


def in_child(order: Any, test: str, source: bytes, moved: bool) -> list[Any]:
    """Return what a child process reports of a test: one result for each time that it ran."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            _report(writing, order, test, source, moved)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        lines = pipe.read().splitlines()
    os.waitpid(child, 0)
    return [json.loads(line.decode("ascii")) for line in lines]


def _report(writing: int, order: Any, test: str, source: bytes, moved: bool) -> None:
    import signal

    signal.alarm(SECONDS)
    write, dump = os.write, json.dumps
    if moved:
        move(order["root"])

    def run() -> None:
        for result in Replay(order, test, source, moved).results():
            write(writing, dump(result).encode("ascii") + b"\n")

    if moved:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    else:
        run()


def replay() -> None:
    """Replay the tests of the order, and write a line for each variant."""
    if sys.argv[2:] != ["again"]:  # the command line of the process must not name a folder of tests
        script = os.path.abspath(__file__)
        os.execve(sys.executable, ["python", script, "replay", "again"], os.environ)  # noqa: S606
    import patchshot_watch  # type: ignore[import-not-found]

    key = patchshot_watch.take_key(os.environ.pop("PATCHSHOT_SEAL", ""))
    lines = patchshot_watch.LineWriter(os.environ.pop("SANDBOX_REPORT"), key)
    os.environ.pop("SANDBOX_JUNIT", "")
    place = os.environ.pop(VARIABLE)
    with _READ(place, "rb") as file:
        order = json.loads(file.read().decode("utf-8"))
    os.unlink(place)
    order["root"] = os.path.realpath(os.path.dirname(place))
    sys.argv[:] = ["shell"]
    getattr(sys, "orig_argv", [])[:] = ["python"]
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [one for one in sys.path if os.path.abspath(one) != here]
    for test in order["tests"]:
        try:
            with _READ(os.path.join(order["root"], test.partition("::")[0]), "rb") as file:
                source = file.read()
        except OSError:
            continue
        plain = in_child(order, test, source, moved=False)
        moved = in_child(order, test, source, moved=True)
        for variant, result in [*zip(("plain", "twice"), plain), ("moved", (moved or [None])[0])]:  # noqa: B905
            if result is not None:
                lines.write(event="replay", id=test, variant=variant, **result)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["syntax"]:
        print(json.dumps([found for found in map(syntax_problem, sys.argv[2:]) if found]))  # noqa: T201
    else:
        replay()
