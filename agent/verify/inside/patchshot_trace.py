"""Records whether the functions of the tests that decide run to their own return.

It runs inside the sandbox beside our runners, under Python 3.7 or later, with the standard library
only. An order (a JSON file that PATCHSHOT_TRACE names) has the ids of the `tests` that decide, the
`seed` for `random`, and whether tests run in the `reverse` order.
"""

# ruff: noqa: PTH108, PTH118, PTH120, PTH123
# (pathlib would be imported for a few calls)

from __future__ import annotations

import ast
import json
import os
import random
import sys
import types
from typing import Any

VARIABLE = "PATCHSHOT_TRACE"


class EndTrace:
    """Follows the tests that decide, each from `begin` to `end`."""

    def __init__(self, order: Any, root: str) -> None:
        self.reverse = order["reverse"]
        self._tests = frozenset(order["tests"])
        self._function = ""  # the name of the function of the test that runs
        self._returned = self._raised = False
        self._own: dict[str, list[Any]] = {}  # by name: what the functions of the tests' files do
        for path in sorted({test.partition("::")[0] for test in self._tests}):
            self._compile(os.path.join(root, path))
        random.seed(order["seed"])

    def begin(self, test: str, function: str) -> None:
        """Follow a test with a function of this name, if it is one that decides."""
        self._function, self._returned = function if test in self._tests else "", False
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
        return self._on_test if self._is_function(frame.f_code) else None

    def _is_function(self, code: Any) -> bool:
        """Whether code is that of the running test: what we compiled, or of a base class of it."""
        if code.co_name != self._function:
            return False
        own = self._own.get(code.co_name)
        return own is None or _what(code) in own

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


def from_environment() -> Any:
    """Return a trace if one is ordered, else None. Never raises."""
    place = os.environ.pop(VARIABLE, "")
    random.seed(0)  # the same numbers with the patch and on the base
    try:
        with open(place, "rb") as file:
            order = json.loads(file.read().decode("utf-8"))
        os.unlink(place)
        trace = EndTrace(order, os.path.realpath(os.path.dirname(place)))
    except (OSError, ValueError, KeyError):
        return None
    # Code must not see how it was started, as far as that can be hidden.
    for arguments in (sys.argv, getattr(sys, "orig_argv", [])):
        arguments[:] = [""]
    return trace
