"""Asks the target's own interpreter which of the given Python files it cannot parse.

It runs inside the sandbox, in the workspace, under Python 3.7 or later. It prints one line with a
JSON list: `[{"path", "line", "message"}, ...]`; nothing of the target is imported or executed.
"""

from __future__ import annotations

import ast
import json
import sys
import warnings
from pathlib import Path


def problem(path: str) -> dict[str, object] | None:
    """Say what is wrong with one file, or None. A file that is not there is not wrong."""
    try:
        source = Path(path).read_bytes()
    except OSError:
        return None
    try:
        compile(source, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except SyntaxError as error:
        return {"path": path, "line": error.lineno or 1, "message": str(error.msg)}
    except ValueError as error:  # NUL bytes
        return {"path": path, "line": 1, "message": str(error)}
    except (MemoryError, RecursionError):  # nested too deeply to tell
        return None
    return None


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps([found for found in map(problem, sys.argv[1:]) if found]))  # noqa: T201
