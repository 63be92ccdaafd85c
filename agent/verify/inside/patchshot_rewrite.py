"""Rewrites a test for a replay (`patchshot_plain`): its assertions, and its calls of the target.

It runs inside the sandbox under Python 3.7 or later, with the standard library only.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import enum
import importlib
import io
import operator
import os
import re
import sys
import threading
import time
import types
from typing import Any

SEEN, APART, GIVEN = "_patchshot_seen", "_patchshot_apart", "_patchshot_given"
AMID, AGAIN = "_patchshot_amid", "_patchshot_again"
MOST_AMID, AMID_SECONDS = 200, 0.05  # other calls before a call, and after it
BUILTINS = (list, tuple, dict, str, bytes, int, float)
LOOKS = {"sys._getframe", "sys._getframemodulename", "sys._current_frames"}
LOOKS |= {"gc.get_objects", "gc.get_referrers", "gc.get_referents"}
FRAMES = {"tb_frame", "gi_frame", "cr_frame", "ag_frame"}
BOUND = {"Await", "Yield", "YieldFrom", "NamedExpr", "super", "locals"}  # to their function
OF_FRAMES = {"super", "locals", "vars", "dir", "eval", "exec", "globals"}
MARKS = ("/proc/", "/sys/", "/run/")  # what they hold tells a sandbox from a machine
LOOKED = [False]  # whether code has looked at frames or objects that are not its own
WROTE = [False]  # whether code has written a file
MARKED: list[str] = []  # what code has done that has its results not be what they look like
# Special methods that leave a value of a derived class what it is.
HARMLESS = {"__doc__", "__new__", "__init__", "__repr__", "__reduce__", "__getnewargs__"}
HARMLESS |= {"__init_subclass__", "__class_getitem__", "__replace__", "__copy__", "__deepcopy__"}
_TIME = time.time  # before code of the target can replace it


def audit(event: str, arguments: Any) -> None:
    """Note what code does (`sys.addaudithook`)."""
    of_frame = event == "object.__getattr__" and arguments[1] in FRAMES
    LOOKED[0] = LOOKED[0] or of_frame or event in LOOKS or event.startswith("ctypes.")
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str):
        path = arguments[0]
        if path.startswith(MARKS):
            MARKED.append(f"reads {path}, which shows that it runs in a sandbox")
        if event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR) and ".pyc" not in path:
            WROTE[0] = True


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
    constants of the test. What a call returns is a value of a builtin type, and not of a new class
    that derives from one: `old` are the classes by changed file. Where a call wrote a file, the
    program starts again.
    """

    def __init__(self, names: dict[str, Any], root: str, old: dict[str, list[str]]) -> None:
        self._names, self._root, self._old = names, root + os.sep, old
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
        of_target = self._place(function)
        if of_target:
            values, named = by_name(function, tuple(map(fresh, values)), named)
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
        if WROTE[0] and self._place(function):
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
                self._kept.append(ended(function, *others))
            if _TIME() > until:
                break

    def _place(self, value: Any) -> str:
        """Return the file of a function, class or module of the target, "" if of a test."""
        name = getattr(value, "__module__", getattr(value, "__name__", None))
        module = sys.modules.get(name) if isinstance(name, str) else None
        file = os.path.realpath(getattr(module, "__file__", None) or "/")
        inside = file[len(self._root) :] if file.startswith(self._root) else ""
        return "" if "test" in inside or "site-packages" in inside else inside

    def _start_again(self) -> None:
        """Import the target anew, with no state but that of its files."""
        modules = list(sys.modules.items())
        old = [name for name, module in modules if self._place(module)]
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
            parts = [self._builtin(one) for one in value]
            return value if all(map(operator.is_, parts, value)) else kind(parts)
        base: Any = next((one for one in BUILTINS if isinstance(value, one)), None)
        known = self._old.get(self._place(kind), [kind.__name__])
        if base is None or kind is base or kind.__name__ in known:
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


def by_name(function: Any, values: Any, named: Any) -> Any:
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


def ended(function: Any, values: Any, named: Any) -> Any:
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
