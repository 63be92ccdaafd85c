"""Replays tests as plain code, without a test runner, as the order in PATCHSHOT_REPLAY asks.

It runs inside the sandbox under Python 3.7 or later, with the standard library only. A replayed
test runs as it is (`plain`), some more times in the same process (`twice`), and where nothing looks
like a test run (`moved`): see `move`. In `bent` one assertion expects another value: a test that
passes all the same asserts nothing. In `amid` it is a part of a longer
program: see `Amid`. Where code looked at its callers, its callers hold nothing that the test
expects in `apart`. All but `twice` and `bent` are child processes.
"""

# ruff: noqa: PTH100, PTH102, PTH103, PTH108, PTH109, PTH118, PTH120, PTH208, PTH211
# (pathlib would be imported, and the functions of `os` are what this module replaces)

from __future__ import annotations

import ast
import atexit
import builtins
import collections
import contextlib
import copy
import datetime
import enum
import importlib.machinery
import importlib.util
import io
import json
import os
import re
import resource
import signal
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
CALLS, CALLS_SECONDS = 10_000, 0.3  # of a test in one process
MOST_BENT = 12
MOST_ELEMENTS = 4  # of an expected list that are bent
SEEN, APART, GIVEN = "_patchshot_seen", "_patchshot_apart", "_patchshot_given"
AMID, AGAIN = "_patchshot_amid", "_patchshot_again"
MOST_AMID, AMID_SECONDS = 200, 0.05  # other calls before a call, and after it
JOIN_SECONDS = 0.3  # for a thread that the test leaves behind
USER = {"USER": "dev", "LOGNAME": "dev", "LANG": "C.UTF-8", "TERM": "xterm", "TZ": "EST5"}
RUNNERS = ("pytest", "_pytest", "pluggy", "unittest")
# What is on every Linux machine, and not in the sandbox.
MACHINE = {
    *("/home", "/root", "/boot", "/mnt", "/media", "/opt", "/srv", "/sys", "/run", "/var/lib"),
    *("/var/log", "/var/cache", "/etc/hosts", "/etc/passwd", "/etc/os-release"),
    *("/sys/class/net", "/sys/class/net/eth0"),
}
_READ = open  # before code of the target can replace it
_TIME = time.time
Captured = collections.namedtuple("Captured", "out err")
SHIFT = [LATER]  # by how many seconds the clock is moved
BUILTINS = (list, tuple, dict, str, bytes, int, float)
LOOKS = {"sys._getframe", "sys._getframemodulename", "sys._current_frames"}
LOOKS |= {"gc.get_objects", "gc.get_referrers", "gc.get_referents"}
FRAMES = {"tb_frame", "gi_frame", "cr_frame", "ag_frame"}
BOUND = {"Await", "Yield", "YieldFrom", "NamedExpr", "super", "locals"}  # to their function
OF_FRAMES = {"super", "locals", "vars", "dir", "eval", "exec", "globals"}
MARKS = ("/proc/", "/sys/", "/run/")  # what they hold tells a sandbox from a machine
LOOKED = [False]  # whether code has looked at frames or objects that are not its own
HIDDEN = [True]  # whether test runners are not installed
WROTE = [False]  # whether code has written a file
MARKED: list[str] = []  # what code has done that has its results not be what they look like
# Special methods that leave a value of a derived class what it is.
HARMLESS = {
    "__doc__",
    "__new__",
    "__init__",
    "__repr__",
    "__reduce__",
    "__getnewargs__",
    "__missing__",
}
HARMLESS |= {"__init_subclass__", "__class_getitem__", "__replace__", "__copy__", "__deepcopy__"}


# ------------------------------------------------------------------------------ the test as code


class Watched(ast.NodeTransformer):
    """Has the assertions of a test report what they compare; `renamed`: tests get other names.

    An assertion stands on one line, so that errors and values have the same one.
    """

    def __init__(self, renamed: bool) -> None:
        self._renamed = renamed

    def visit_Assert(self, node: Any) -> Any:  # noqa: D102
        self._on_one_line(node)
        test = node.test
        if isinstance(test, ast.Constant):  # `assert False`
            return node
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            equal = isinstance(test.ops[0], ast.Eq)
            sides = self._pair(node, test.left, test.comparators[0], equal)
            # Elsewhere the second value is computed first: a call must not change what it gets.
            sides = sides[::-1] if equal and self._renamed else sides
            test.left, test.comparators[0] = sides
        else:
            node.test = self._seen(node, test, "force")
        return node

    def visit_Call(self, node: Any) -> Any:  # noqa: D102
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        plain = [a for a in node.args[:2] if not isinstance(a, (ast.Starred, ast.Lambda))]
        if not name.startswith("assert") or not plain or plain[0] is not node.args[0]:
            return self.generic_visit(node)
        self._on_one_line(node)
        plain = node.args[: len(plain)]
        if len(plain) == 2:
            node.args[:2] = self._pair(node, plain[0], plain[1], name == "assertEqual")
        else:
            node.args[0] = self._seen(node, plain[0], "force")
        return node

    def visit_FunctionDef(self, node: Any) -> Any:  # noqa: D102
        self.generic_visit(node)
        if self._renamed and node.name.startswith("test"):
            node.name = renamed(node.name)
            names = {getattr(part, "id", type(part).__name__) for part in ast.walk(node.body[-1])}
            if isinstance(node.body[-1], ast.Assert) and names.isdisjoint(BOUND):
                again: Any = ast.parse(
                    f"def {AGAIN}(): pass\n{AGAIN}()\n{AGAIN}s.append({AGAIN})"
                ).body
                again[0].body, node.body[-1:] = node.body[-1:], again
                for part in again[1:]:
                    ast.copy_location(part, again[0].body[0])
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def _on_one_line(self, node: Any) -> None:
        part: Any
        for part in ast.walk(node):
            if hasattr(part, "lineno"):
                part.lineno = part.end_lineno = node.lineno
                part.col_offset = part.end_col_offset = 0
        self.generic_visit(node)

    def _pair(self, node: Any, left: Any, right: Any, equal: bool) -> Any:
        """Return both sides of a comparison; the one that is expected can be bent."""
        if not equal:
            return self._seen(node, left, "force"), self._seen(node, right, "")
        if _is_literal(left) and not _is_literal(right):
            return self._seen(node, left, "bend"), self._seen(node, right, "")
        return self._seen(node, left, ""), self._expected(node, right)

    def _expected(self, node: Any, value: Any) -> Any:
        """An expected value; of a call such as `approx(3)`, its literals."""
        literal = [_is_literal(one) for one in getattr(value, "args", ())]
        if not isinstance(value, ast.Call) or not literal or not all(literal):
            return self._seen(node, value, "bend")
        value.args = [self._seen(node, one, "part") for one in value.args]
        return self._seen(node, value, "")

    def _seen(self, node: Any, value: Any, way: str) -> Any:
        arguments = [value, ast.Constant(node.lineno), ast.Constant(way)]
        call = ast.Call(ast.Name(SEEN, ast.Load()), arguments, [])
        return ast.fix_missing_locations(ast.copy_location(call, value))


class Amid(ast.NodeTransformer):
    """Has a test be a part of a longer program.

    Before a call of the target and after it, it is called with other data; on an object only where
    the result is not used, because it may take something away. The arguments have names, and are no
    constants of the test. What a call returns is a value of a builtin type, and not of a class of
    the target that derives from one. Where a call wrote a file, the program starts again.
    """

    def __init__(self, names: dict[str, Any], root: str) -> None:
        self._names, self._root = names, root + os.sep
        self._kept: list[Any] = []
        self._unused: list[Any] = []
        self._calls: list[Any] = []  # whether its result is used, its function, its named arguments

    def visit_Expr(self, node: Any) -> Any:  # noqa: D102
        self._unused.append(node.value)
        return self.generic_visit(node)

    def visit_Module(self, node: Any) -> Any:  # noqa: D102
        for function in ast.walk(node):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                function.body = [self.visit(statement) for statement in function.body]
        return node

    def visit_FunctionDef(self, node: Any) -> Any:
        """Leave it to `visit_Module`."""
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Call(self, node: Any) -> Any:  # noqa: D102
        is_used = all(node is not one for one in self._unused)
        self.generic_visit(node)
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name.startswith("assert") or name in OF_FRAMES:
            return node
        # The test calls the function itself, so that code that looks at its caller sees the test.
        number = len(self._calls)
        self._calls.append(())
        of, given = f"of({number}, {is_used}, 0)", f"given({number})"
        text = f"{AMID}.after({number}, {AMID}.{of}(*{AMID}.{given}, **{AMID}.named({number})))"
        call: Any = ast.parse(text, mode="eval").body
        for part in ast.walk(call):
            ast.copy_location(part, node)
        true = call.args[1]
        true.func.args[2], true.args[0].value.keywords = node.func, node.keywords
        true.args[0].value.args += node.args
        return call

    def of(self, number: int, is_used: bool, function: Any) -> Any:
        """Return the function that a call is about to call."""
        self._calls[number] = (is_used, function)
        return function

    def given(self, number: int, *values: Any, **named: Any) -> Any:
        """Call the function with other arguments than these, and return the values."""
        is_used, function = self._calls[number]
        of_target = self._is_of_target(function)
        if of_target:
            values, named = _by_name(function, tuple(map(fresh, values)), named)
        owner = getattr(function, "__self__", None)
        of_object = owner is not None and not isinstance(owner, type)
        other = isinstance(function, type) or altered([values, named], 1) != [values, named]
        may_call = of_target and other and not (is_used and of_object)
        self._calls[number] = (is_used, function, named, values if may_call else None)
        self._call_others(number)
        WROTE[0] = False
        return values

    def named(self, number: int) -> Any:
        """Return the named arguments of the call."""
        return self._calls[number][2]

    def after(self, number: int, result: Any) -> Any:
        """Return what the call returned."""
        is_used, function = self._calls[number][:2]
        if WROTE[0] and self._is_of_target(function):
            self._start_again()
        elif is_used:
            self._call_others(number)
        return self._builtin(result)

    def _call_others(self, number: int) -> None:
        _, function, named, values = self._calls[number]
        until = _TIME() + AMID_SECONDS
        for step in range(1, MOST_AMID if values is not None else 0):
            try:
                others = altered(copy.deepcopy([values, named]), step)
            except Exception:  # noqa: BLE001  (files, generators and what else has no copies)
                break
            with contextlib.redirect_stdout(io.StringIO()):
                self._kept.append(_ended(function, *others))
            if _TIME() > until:
                break

    def _is_of_target(self, value: Any) -> bool:
        """Whether a function, class or module is of the target, and not of its tests."""
        name = getattr(value, "__module__", getattr(value, "__name__", None))
        module = sys.modules.get(name) if isinstance(name, str) else None
        file = os.path.realpath(getattr(module, "__file__", None) or "/")
        inside = file[len(self._root) :] if file.startswith(self._root) else "test"
        return "test" not in inside and "site-packages" not in inside

    def _start_again(self) -> None:
        """Import the target anew, with no state but that of its files."""
        modules = list(sys.modules.items())
        old = [name for name, module in modules if self._is_of_target(module)]
        for name in old:
            del sys.modules[name]
        for name, value in list(self._names.items()):
            is_module = isinstance(value, types.ModuleType)
            place = value.__name__ if is_module else getattr(value, "__module__", None)
            if place in old and isinstance(value, (types.ModuleType, type, types.FunctionType)):
                module = importlib.import_module(place)
                self._names[name] = module if is_module else getattr(module, value.__name__, value)

    def _builtin(self, value: Any) -> Any:
        kind = type(value)
        if kind in (list, tuple):
            return kind(map(self._builtin, value))
        base: Any = next((one for one in BUILTINS if isinstance(value, one)), None)
        if base is None or kind is base or not self._is_of_target(kind):
            return value
        own = sorted({name for name in vars(kind) if name in vars(base)} - HARMLESS)
        if own and base is not dict and not isinstance(value, enum.Enum):
            MARKED.append(f"returns a {base.__name__} with its own {own[0]} ({kind.__name__})")
        if base in (int, float):
            return base.__add__(value, base())
        return dict.copy(value) if base is dict else base.__getitem__(value, slice(None))


def altered(value: Any, step: int) -> Any:
    """Return a copy of data in which numbers and texts differ, by step."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return kind([altered(one, step) for one in value])
    if kind is dict:
        return {name: altered(one, step) for name, one in value.items()}
    if kind is str and re.search("[0-9]", value):
        return re.sub("[0-9]{1,18}", lambda found: _later_number(found.group(), step), value)
    if kind is str:
        return value + chr(ord("a") + step)
    return value + step if kind in (int, float) else value


def fresh(value: Any) -> Any:
    """Return data in which no text or number is the same object as before."""
    kind = type(value)
    if kind is list:
        value[:] = map(fresh, value)
    elif kind is dict:
        value.update({name: fresh(one) for name, one in value.items()})
    elif kind is tuple:
        return tuple(map(fresh, value))
    elif kind in (str, bytes):
        return value[:1] + value[1:]
    return int(str(value)) if kind is int else value


def _by_name(function: Any, values: Any, named: Any) -> Any:
    """Return arguments by name, as far as the function has names for them."""
    import inspect

    try:
        bound = inspect.signature(function).bind(*values, **named)
    except (TypeError, ValueError):
        return values, named
    kinds = {parameter.kind for parameter in bound.signature.parameters.values()}
    if kinds - {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}:
        return values, named
    return (), dict(bound.arguments)


def _later_number(digits: str, step: int) -> str:
    return str(int(digits) + step)[-len(digits) :].zfill(len(digits))


def _ended(function: Any, values: Any, named: Any) -> Any:
    """Return what a call returns or raises."""
    try:
        return function(*values, **named)
    except BaseException as raised:  # noqa: BLE001  (whatever the target raises)
        return raised


class Parted(ast.NodeTransformer):
    """Has another thread call what a test calls, with literals that no code of the test holds."""

    def __init__(self) -> None:
        from concurrent.futures import ThreadPoolExecutor  # other variants need none of its modules

        self._pool = ThreadPoolExecutor(1, APART)
        self.literals: list[Any] = []

    def call(self, function: Any) -> Any:
        """Return what the function returns in the other thread."""
        if threading.current_thread().name.startswith(APART):
            return function()
        return self._pool.submit(function).result()

    def visit_Call(self, node: Any) -> Any:  # noqa: D102
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        names = {getattr(part, "id", type(part).__name__) for part in ast.walk(node)}
        if name.startswith("assert") or not names.isdisjoint(BOUND):
            return self.generic_visit(node)
        function: Any = ast.parse("lambda: 0", mode="eval").body
        function.body = _Given(self.literals).visit(node)
        call = ast.Call(ast.Name(APART, ast.Load()), [function], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))


class _Given(ast.NodeTransformer):
    def __init__(self, literals: list[Any]) -> None:
        self._literals = literals

    def visit_Constant(self, node: Any) -> Any:
        if type(node.value) not in BUILTINS:
            return node
        at = ast.Constant(len(self._literals))
        self._literals.append(node.value)
        return ast.Call(ast.Name(GIVEN, ast.Load()), [at], [])

    def visit_JoinedStr(self, node: Any) -> Any:
        return node


def _is_literal(node: Any) -> bool:
    if isinstance(node, ast.Call):  # an inner assertion, seen already
        return getattr(node.func, "id", "") == SEEN and _is_literal(node.args[0])
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return False
    return True


def renamed(name: str) -> str:
    """Return another name for a test function."""
    return "run" + name[len("test") :]


def bent(value: Any, at: int) -> Any:
    """Return another value of a builtin type: its element `at` differs. Raises AssertionError."""
    kind = type(value)
    if kind in (list, tuple) and value:
        return kind([*value[:at], bent(value[at], 0), *value[at + 1 :]])
    if kind is dict and value:
        key = list(value)[at]
        return dict(value, **{key: bent(value[key], 0)}) if isinstance(key, str) else {}
    if kind in (int, float, complex):
        return value + (1 if kind is int else max(1, abs(value) / 100))
    if kind in (str, bytes):
        return value + ("~" if kind is str else b"~")
    if kind in (list, tuple, dict, set, frozenset):
        return kind() if value else kind([("~", "~")])
    if value is None or kind is bool:
        return not value
    raise AssertionError


class Replay:
    """One test in one variant."""

    def __init__(self, order: Any, test: str, source: bytes, way: str) -> None:
        self._order, self._source, self._way = order, source, way
        self._moved = way == "moved"
        self._path, _, self._name = test.partition("::")
        self._values: list[Any] = []
        self._sizes: dict[int, int] = {}  # by line: elements of what an assertion expects
        self._bent = (0, 0)  # the line and the element
        self._again: list[Any] = []  # the last assertion
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
            import patchshot_watch  # type: ignore[import-not-found]

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
            vars(module)[AMID] = Amid(vars(module), root)
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
            if left or atexit._ncallbacks() > exits:
                for thread in left:
                    thread.join(JOIN_SECONDS)
                atexit._run_exitfuncs()
                self._values.clear()
                for assertion in self._again[-1:]:
                    assertion()
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


# ---------------------------------------------------------------------------------- the imports


def _import_before_runners(tree: Any, names: dict[str, Any]) -> None:
    for node in tree.body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        imported = [getattr(node, "module", "") or "", *(alias.name for alias in node.names)]
        if all(name.split(".")[0] not in RUNNERS for name in imported):
            statement = ast.Module(body=[node], type_ignores=[])
            with contextlib.suppress(BaseException):  # the test shows it
                exec(compile(statement, "", "exec", dont_inherit=True), names)  # noqa: S102


def configured_paths(folder: str) -> list[str]:
    """Return the folders that pytest's configuration in a folder puts on the import path."""
    value = configured(folder, r"pythonpath\s*=\s*(\[[^\]]*\]|.*(?:\n[ \t]+\S.*)*)")
    words = re.findall(r"[^\s\"',\[\]]+", value)
    return [os.path.normpath(os.path.join(folder, word)) for word in words]


def configured(folder: str, pattern: str) -> str:
    """Return what configuration in a folder has first in a line that begins with a pattern."""
    for name in ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"):
        with contextlib.suppress(OSError):
            with _READ(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                match = re.search("^" + pattern, file.read(), re.MULTILINE)
            if match:
                return match.group(1)
    return ""


# --------------------------------------------------------------------------- other surroundings


def hide_runners() -> None:
    """Have imports find no test runner while it is `HIDDEN`."""
    finder: Any = importlib.machinery.PathFinder
    find = finder.find_spec

    def find_spec(cls: Any, name: str, *rest: Any) -> Any:
        hides = HIDDEN[0] and name.split(".")[0] in RUNNERS[:3]
        return None if hides else find(name, *rest)

    finder.find_spec = classmethod(find_spec)


def in_thread(work: Any) -> Any:
    """Return or raise what a function does in another thread."""
    ends: list[Any] = []
    thread = threading.Thread(target=lambda: ends.append(_ended(work, (), {})))
    thread.start()
    thread.join()
    if isinstance(ends[0], BaseException):
        raise ends[0]
    return ends[0]


def of_a_module(code: Any) -> Any:
    """Return code whose inner functions have the names of functions of a module (Python 3.11)."""
    if not hasattr(code, "co_qualname"):
        return code
    consts = [
        of_a_module(one) if isinstance(one, types.CodeType) else one for one in code.co_consts
    ]
    name = "pick" if code.co_name == "<lambda>" else code.co_name
    whole = name if "<locals>" in code.co_qualname else code.co_qualname
    return code.replace(co_consts=tuple(consts), co_name=name, co_qualname=whole)


def installed(places: Any, without: Any) -> str:
    """Return a folder of packages with links to what is in these places, and metadata."""
    site = os.path.join(os.environ["HOME"], "lib", "python3", "site-packages")
    os.makedirs(site)
    for place in places:
        for name in sorted(set(os.listdir(place)).difference(without, os.listdir(site))):
            if name[0] != ".":
                os.symlink(os.path.join(place, name), os.path.join(site, name))
    name = configured(os.getcwd(), r"""name\s*=\s*["']?([\w.-]+)""") or "target"
    about = os.path.join(site, re.sub("[-.]+", "_", name) + "-1.0.dist-info")
    os.mkdir(about)
    with _READ(os.path.join(about, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n")
    return site


def elsewhere(folder: str, without: Any = ()) -> str:
    """Return another folder with links to what is in this one, in the user's home."""
    other = tempfile.mkdtemp(prefix="work-", dir=os.environ["HOME"])
    for name in set(os.listdir(folder)).difference(without):
        os.symlink(os.path.join(folder, name), os.path.join(other, name))
    return other


def move(root: str) -> None:
    """Have the process look like a user's.

    The environment, the arguments, the terminal, the process number, the network and the clock
    change; `Replay` changes the names of test, class and file, the folders and the thread.
    """
    home = tempfile.mkdtemp(prefix=".dev-", dir=root)
    _READ(os.path.join(home, "notes.txt"), "w").close()
    os.environ.clear()
    os.environ.update(USER, HOME=home, PATH=os.defpath, SHELL="/bin/sh")
    sys.argv[:], sys.dont_write_bytecode = ["shell"], False
    flags = {name: getattr(sys.flags, name) for name in dir(sys.flags) if name[0] != "_"}
    sys.flags = types.SimpleNamespace(**dict(flags, dont_write_bytecode=0))  # type: ignore[assignment]
    time.tzset()
    _terminal()
    _outside_exists()
    _move_clock()
    names = [(1, "lo"), (2, "eth0"), (3, "wlan0")]
    socket.if_nameindex = lambda: names
    socket.socket.connect = lambda self, address: None  # type: ignore[method-assign]
    socket.gethostbyname = lambda name: "192.0.2.1"
    socket.gethostname = lambda: "workstation"
    machine = os.uname()
    os.uname = lambda: os.uname_result((machine[0], "workstation", *machine[2:]))
    resource.getrlimit = lambda which: (resource.RLIM_INFINITY,) * 2
    os.getpid = lambda: 48_211
    os.getppid = lambda: 2_105


def _terminal() -> None:
    try:
        master, slave = os.openpty()
        os.write(master, b"\x04" * 64)
        os.dup2(slave, 0)
        sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)  # type: ignore[misc]
    except OSError:
        return
    for stream in (sys.stdout, sys.stderr):
        stream.isatty = lambda: True  # type: ignore[method-assign]


def _move_clock() -> None:
    local, utc, text = time.localtime, time.gmtime, time.strftime
    for name in ("time", "monotonic", "perf_counter", "process_time"):
        setattr(time, name, _later(getattr(time, name), 1))
    now, time.time_ns = time.time, _later(time.time_ns, 10**9)
    time.localtime = lambda at=None: local(now() if at is None else at)
    time.gmtime = lambda at=None: utc(now() if at is None else at)
    time.strftime = lambda form, at=None: text(form, local(now()) if at is None else at)
    for real, names in (
        (datetime.datetime, ("now", "utcnow", "today")),
        (datetime.date, ("today",)),
    ):
        setattr(datetime, real.__name__, _moved_type(real, names))


def _later(clock: Any, unit: int) -> Any:
    return lambda: clock() + SHIFT[0] * unit


def _moved_type(real: Any, names: Any) -> Any:
    """Return a type whose class methods give a later time; its instances are those of `real`."""

    def make(cls: Any, *values: Any, **named: Any) -> Any:
        return real.__new__(real if cls is moved else cls, *values, **named)

    def reading(name: str) -> Any:
        now = getattr(real, name)
        return staticmethod(lambda *zone: now(*zone) + datetime.timedelta(seconds=SHIFT[0]))

    checks = {
        "__instancecheck__": lambda cls, value: isinstance(value, real),
        "__subclasscheck__": lambda cls, kind: issubclass(kind, real),
    }
    meta = type("Meta", (type,), checks)
    methods = {"__new__": make, **{name: reading(name) for name in names}}
    moved: Any = meta(real.__name__, (real,), methods)
    return moved


def _outside_exists() -> None:
    """Have the folders of every machine exist, new files be as new as the clock, and others old."""
    real, began = os.stat, _TIME()

    def stat(path: Any, *rest: Any, **named: Any) -> Any:
        if isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path).rstrip("/") in MACHINE:
            return real("/")
        found = real(path, *rest, **named)
        is_new = found.st_mtime >= began and ".pyc" not in str(path)
        later = SHIFT[0] if is_new else -SHIFT[0]
        moved = {
            "st_mtime": found.st_mtime + later,
            "st_mtime_ns": found.st_mtime_ns + later * 10**9,
        }
        return os.stat_result(tuple(found), moved)

    os.stat = stat


# --------------------------------------------------------------------------------- the processes


def _audit(event: str, arguments: Any) -> None:
    of_frame = event == "object.__getattr__" and arguments[1] in FRAMES
    LOOKED[0] = LOOKED[0] or of_frame or event in LOOKS or event.startswith("ctypes.")
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str):
        path = arguments[0]
        if path.startswith(MARKS):
            MARKED.append(f"reads {path}, which shows that it runs in a sandbox")
        if event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR) and ".pyc" not in path:
            WROTE[0] = True


def in_child(order: Any, test: str, source: bytes, way: str) -> list[Any]:
    """Return what a child process reports of a test."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(SECONDS)
            write, dump = os.write, json.dumps
            if way in ("plain", "amid") and hasattr(sys, "addaudithook"):
                sys.addaudithook(_audit)

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
    import patchshot_watch

    key = patchshot_watch.take_key(os.environ.pop("PATCHSHOT_SEAL", ""))
    lines = patchshot_watch.LineWriter(os.environ.pop("SANDBOX_REPORT"), key)
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
        looked = False
        for way in ("plain", "moved", "amid", "apart"):
            for result in in_child(order, test, source, way) if looked or way != "apart" else ():
                looked = result.pop("looked") or looked
                lines.write(event="replay", id=test, **result)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    replay()
