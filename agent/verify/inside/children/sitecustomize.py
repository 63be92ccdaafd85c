"""Starts the execution trace in processes that tests start (see `patchshot_trace`).

Python imports a module of this name by itself. The one that it hides is run afterwards. The process
of the runner itself is left alone: it still has SANDBOX_REPORT, and starts its own trace.
"""

from __future__ import annotations

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120


def _start() -> None:
    order = os.environ.get("PATCHSHOT_TRACE", "")
    if not order or "SANDBOX_REPORT" in os.environ:
        return
    import patchshot_trace  # type: ignore[import-not-found]

    patchshot_trace.ExecutionTrace(order, child=order + ".children").start()


def _run_hidden() -> None:
    """Import the module of the same name that comes next on the path."""
    path = [folder for folder in sys.path if os.path.abspath(folder or ".") != _HERE]  # noqa: PTH100
    import importlib.machinery
    import importlib.util

    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


try:
    _start()
except Exception:  # noqa: BLE001, S110  (without a trace the process works as it would)
    pass
_run_hidden()
