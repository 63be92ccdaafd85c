"""Notices when the code under test changes the test runner that judges it.

It runs inside the sandbox beside our runners, under Python 3.7 or later. What the runner brought is
remembered before any file of the target is imported, and compared once tests are collected and
again when they have run. Fixtures that patch for the length of one test are gone by then.
"""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Iterator
from typing import Any

# What decides whether a test passes; code under test has no business to replace any of it.
PACKAGES = ("_pytest.", "pluggy.")
MODULES = ("unittest.case", "unittest.loader", "unittest.result", "unittest.suite")
OWN = "patchshot_"

# Of functions that were replaced, by name: enough to say what happened.
TRACES_LIMIT = 200

# Hooks by which a plugin can choose tests, run them in its own way, or rewrite what came of them.
STEERING = (
    "pytest_collect_file",
    "pytest_collection_modifyitems",
    "pytest_ignore_collect",
    "pytest_itemcollected",
    "pytest_make_collect_report",
    "pytest_pycollect_makeitem",
    "pytest_pyfunc_call",
    "pytest_report_teststatus",
    "pytest_runtest_call",
    "pytest_runtest_logreport",
    "pytest_runtest_makereport",
    "pytest_runtest_protocol",
    "pytest_runtest_setup",
    "pytest_runtestloop",
    "pytest_sessionfinish",
)

# Marks the body of a function, which can be exchanged while the function stays.
CODE = " (code)"

_CALLABLE = (types.FunctionType, types.BuiltinFunctionType, type)


class Watch:
    """Remembers the machinery of this moment; `own` is one more module to look at."""

    def __init__(self, own: str) -> None:
        self._modules = sorted(
            name
            for name in sys.modules
            if name.startswith((*PACKAGES, OWN)) or name in MODULES or name == own
        )
        self._before = dict(_machinery(self._modules))

    def changed(self) -> list[str]:
        """Dotted names of what is no longer what it was."""
        now = dict(_machinery(self._modules))
        gone = (name for name, value in self._before.items() if now.get(name) is not value)
        return sorted({name[: -len(CODE)] if name.endswith(CODE) else name for name in gone})


def steering(config: Any) -> list[str]:
    """Who beside pytest itself has a say in which tests run and what comes of them."""
    found = set()
    for name in STEERING:
        # Not `config.hook`: in some versions that is a proxy without implementations.
        caller = getattr(config.pluginmanager.hook, name, None)
        for implementation in getattr(caller, "get_hookimpls", list)():
            module = getattr(implementation.function, "__module__", "") or ""
            if not module.startswith(("_pytest.", "patchshot_")):
                found.add(name + " of " + _plugin_name(implementation))
    return sorted(found)


def _plugin_name(implementation: Any) -> str:
    """The plugin's name; its class where pytest made a name of its address."""
    name = str(implementation.plugin_name)
    return type(implementation.plugin).__qualname__ if name.isdigit() else name


def _machinery(modules: list[str]) -> Iterator[tuple[str, Any]]:
    for name in modules:
        yield from _of_module(name, sys.modules.get(name))
    for name, value in list(vars(builtins).items()):
        yield "builtins." + name, value


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
