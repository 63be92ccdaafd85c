"""Records which of the lines that a patch changes are executed, and by which test.

It runs inside the sandbox beside our runners, under Python 3.7 or later, with the standard library
only. An order (a JSON file that PATCHSHOT_TRACE names) says what to look for:

    lines   by path: the lines of functions that the patch changes
    names   what the changed statements of modules and classes bind
    files   all changed files
    tests   the ids of the tests that decide; nothing else is recorded, apart from imports
    reverse whether tests run in the opposite order
    seed    for `random`

`Account` has what one test did; "" stands for what happened outside of these tests. A child process
that inherits the environment appends its lines to a file beside the order (`sitecustomize.py` in
the folder `children`). Python 3.12 and later has `sys.monitoring`; before that `sys.settrace` is
used, which a test or a coverage plugin may replace: what is executed then is not recorded.
"""

# ruff: noqa: PTH108, PTH118, PTH120, PTH123
# (pathlib would be imported for a few calls; frames are what this module reads)

from __future__ import annotations

import ast
import json
import os
import random
import sys
import tempfile
import threading
import types
from typing import Any

VARIABLE = "PATCHSHOT_TRACE"

_NO_TOOL = -2  # every id of `sys.monitoring` is taken

# Of the lines, names and files of one account: enough to say what was executed.
MOST = 100

_IN_A_FUNCTION = 0x1  # CO_OPTIMIZED, which modules and class bodies lack (inspect.CO_OPTIMIZED)
_TEST_FOLDERS = {"tests", "testdata"}

# What reads source files to show them, which is no test of their text.
_SHOW_SOURCE = ("traceback", "warnings", "logging", "_pytest", "pluggy", "unittest", "pdb")


class Account:
    """What was executed: `path:line`, the names used, and the changed files that were read.

    `read` are those that the project's code opened, `opened` those that a test opened itself.
    """

    def __init__(self) -> None:
        self.values: dict[str, set[str]] = {
            kind: set() for kind in ("lines", "names", "read", "opened")
        }

    def as_line(self) -> dict[str, list[str]]:
        """Return the fields of a report line."""
        return {kind: sorted(values)[:MOST] for kind, values in self.values.items()}


class ExecutionTrace:
    """Follows the process from `start` on. `child`: where to append lines at once, or ""."""

    def __init__(self, order_file: str, child: str = "") -> None:
        with open(order_file, "rb") as file:
            order = json.loads(file.read().decode("utf-8"))
        self._root, self._seed, self.reverse = order["root"], order["seed"], order["reverse"]
        self._lines = {path: frozenset(lines) for path, lines in order["lines"].items()}
        self._names, self._files = frozenset(order["names"]), frozenset(order["files"])
        self._tests = frozenset(order["tests"])
        self._test_files = {test.partition("::")[0] for test in self._tests}
        self._children, self._seen_of_children = order_file + ".children", 0
        self._child = child
        # By the address of code objects, which are kept: hashing one takes long.
        self._known: dict[int, tuple[str, frozenset[str], Any]] = {}
        self._account = Account()
        self._audit = True
        self._imported = False
        self._monitoring: Any = getattr(sys, "monitoring", None)
        self._tool = -1
        self._function = ""  # the name of the function of the test that runs
        self._returned = self._raised = False
        self._own: dict[str, list[Any]] = {}  # by name: what the functions of the tests' files do

    def start(self) -> None:
        """Begin with what happens outside of tests."""
        if not self._child:
            random.seed(self._seed)
            for path in sorted(self._test_files):
                self._compile(self._root + path)
        if hasattr(sys, "addaudithook"):
            sys.addaudithook(self._on_audit)
        if self._monitoring is not None or not hasattr(sys, "addaudithook"):
            self._switch_on()

    def begin(self, test: str, function: str = "") -> Account:
        """Go on with a test. Returns the account of what came before it."""
        finished = self.end()
        self._function, self._returned = function if test in self._tests else "", False
        if test in self._tests:
            self._switch_on()
        return finished

    def end(self) -> Account:
        """End a test. Returns its account, with what child processes have written since."""
        finished, self._account = self._account, Account()
        self._switch_off()
        try:
            with open(self._children, encoding="utf-8", errors="replace") as file:
                file.seek(self._seen_of_children)
                text = file.read()
                self._seen_of_children = file.tell()
        except OSError:
            return finished
        for kind, tab, value in (line.partition("\t") for line in text.split("\n")):
            if tab and kind in finished.values:
                finished.values[kind].add(value)
        return finished

    def cut_short(self) -> bool:
        """Whether the function of the test that runs has not come to its own end."""
        return bool(self._function) and self._tool != _NO_TOOL and not self._returned

    def decides(self, test: str) -> bool:
        """Whether a test is one of those that decide."""
        return test in self._tests

    # ------------------------------------------------------------------------------- what happens

    def _switch_on(self) -> None:
        if self._monitoring is None:
            threading.settrace(self._on_call)
            sys.settrace(self._on_call)
            return
        events = self._monitoring.events
        if self._tool == _NO_TOOL:
            return
        if self._tool < 0:
            free = [i for i in (4, 3, 2, 1, 0) if self._monitoring.get_tool(i) is None]
            if not free:
                self._tool = _NO_TOOL
                return
            self._tool = free[0]
            self._monitoring.use_tool_id(self._tool, "patchshot")
            self._monitoring.register_callback(self._tool, events.PY_START, self._on_start)
            self._monitoring.register_callback(self._tool, events.LINE, self._on_line)
            self._monitoring.register_callback(self._tool, events.PY_RETURN, self._on_return)
        self._monitoring.set_events(self._tool, events.PY_START)
        self._monitoring.restart_events()

    def _switch_off(self) -> None:
        if self._monitoring is None:
            threading.settrace(None)
            sys.settrace(None)
        elif self._tool >= 0:
            self._monitoring.set_events(self._tool, 0)

    def _started(self, code: Any) -> str:
        """Note the names that code uses; return its path if it is of a changed file."""
        path, names, _ = self._known.get(id(code)) or self._learn(code)
        for name in names:
            self._note("names", name)
        return path

    def _on_call(self, frame: Any, event: str, arg: Any) -> Any:
        path = self._started(frame.f_code)
        if self._is_function(frame.f_code):
            return self._on_test
        return self._on_frame if path else None

    def _is_function(self, code: Any) -> bool:
        """Whether code is that of the running test: what we compiled, or of a base class of it."""
        if code.co_name != self._function:
            return False
        own = self._own.get(code.co_name)
        return _what(code) in own if own else self._path(code.co_filename) not in self._files

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

    def _on_test(self, frame: Any, event: str, arg: Any) -> Any:
        if event == "return":
            self._returned = self._returned or not self._raised
        self._raised = event == "exception"
        return self._on_test

    def _on_return(self, code: Any, offset: int, value: Any) -> None:
        self._returned = self._returned or self._is_function(code)

    def _on_frame(self, frame: Any, event: str, arg: Any) -> Any:
        if event == "line":
            self._add(frame.f_code, frame.f_lineno)
        return self._on_frame

    def _on_start(self, code: Any, offset: int) -> Any:
        path, events = self._started(code), self._monitoring.events
        if self._is_function(code):
            self._monitoring.set_local_events(self._tool, code, events.PY_RETURN)
        elif path:
            self._monitoring.set_local_events(self._tool, code, events.LINE)
        return self._monitoring.DISABLE

    def _on_line(self, code: Any, line: int) -> Any:
        self._add(code, line)
        return self._monitoring.DISABLE

    def _add(self, code: Any, line: int) -> None:
        path = self._known[id(code)][0]
        if line in self._lines[path]:
            self._note("lines", path + ":" + str(line))

    def _note(self, kind: str, value: str) -> None:
        values = self._account.values[kind]
        if value in values:
            return
        values.add(value)
        if self._child:
            with open(self._child, "a", encoding="utf-8") as file:
                file.write(kind + "\t" + value + "\n")

    def _learn(self, code: Any) -> tuple[str, frozenset[str], Any]:
        """Return the path if the code is of a changed file, and the changed names that it uses."""
        path = self._path(code.co_filename)
        own = bool(path) or code.co_filename.startswith(("<string>", "<attrs"))
        names: frozenset[str] = frozenset()
        if not code.co_flags & _IN_A_FUNCTION:
            path = ""
        elif own and not self._is_test(path):
            names = self._names.intersection(code.co_names)
        found = (path if path in self._lines else "", names, code)
        self._known[id(code)] = found
        return found

    def _is_test(self, path: str) -> bool:
        """Whether a path belongs to the tests, by its name or its folder."""
        *folders, name = path.split("/")
        return (
            path in self._test_files
            or not _TEST_FOLDERS.isdisjoint(folders)
            or folders[:1] in (["test"], ["testing"])
            or name.startswith(("test_", "conftest."))
            or name.endswith("_test.py")
        )

    def _path(self, file: str) -> str:
        """Return the path relative to the tree, or "" where the file is outside of it."""
        if file.startswith("<"):
            return ""
        real = os.path.realpath(file)
        return real[len(self._root) :] if real.startswith(self._root) else ""

    # -------------------------------------------------------------------------- files that are read

    def _on_audit(self, event: str, arguments: Any) -> None:
        if event == "exec":
            self._on_import(arguments[0])
            return
        if event != "open" or not self._audit:
            return
        name = arguments[0]
        if not isinstance(name, (str, bytes)):
            return
        self._audit = False
        try:
            path = self._path(os.fsdecode(name))
            if path in self._files:
                reader = self._reader(sys._getframe(1))
                if reader:
                    self._note("opened" if reader == "test" else "read", path)
        finally:
            self._audit = True

    def _on_import(self, code: Any) -> None:
        """Begin to follow when the first changed module is imported: `sys.settrace` is slow."""
        if self._monitoring is not None or self._imported:
            return
        self._imported = self._path(getattr(code, "co_filename", "<")) in self._lines
        if self._imported:
            self._switch_on()

    def _reader(self, frame: Any) -> str:
        """Return who opens a file: "test", "code", or "" for imports and displays of source."""
        library = False
        while frame is not None:
            module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            code = frame.f_code
            if module in _SHOW_SOURCE or code.co_name == "get_code":
                return ""
            path = self._path(code.co_filename)
            if path:
                return "test" if self._is_test(path) and not library else "code"
            library = library or "-packages" in code.co_filename
            frame = frame.f_back
        return ""


def _what(code: Any) -> Any:
    """Return what code does, comparable; not where it stands."""
    values = [
        _what(one) if isinstance(one, types.CodeType) else repr(one) for one in code.co_consts
    ]
    return code.co_code, code.co_names, code.co_varnames, values


def _moved(order_file: str) -> str:
    """Move the order out of the tree, where tests may count files, and name it to children."""
    with open(order_file, "rb") as file:
        order = json.loads(file.read().decode("utf-8"))
    order["root"] = os.path.realpath(os.path.dirname(order_file)) + os.sep
    os.unlink(order_file)
    moved = os.path.join(tempfile.mkdtemp(prefix="order-"), "order.json")
    with open(moved, "w", encoding="utf-8") as file:
        json.dump(order, file)
    os.environ[VARIABLE] = moved
    return moved


def from_environment() -> Any:
    """Return a started trace if one is ordered, else None. Never raises."""
    order = os.environ.pop(VARIABLE, "")
    random.seed(0)  # the same numbers with the patch and on the base
    if not order:
        return None
    try:
        trace = ExecutionTrace(_moved(order))
        trace.start()
    except (OSError, ValueError, KeyError):
        return None
    # Code must not see how it was started, as far as that can be hidden.
    for arguments in (sys.argv, getattr(sys, "orig_argv", [])):
        arguments[:] = [""]
    return trace
