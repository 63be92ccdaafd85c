"""Python's own parser, one file at a time."""

from __future__ import annotations

import ast
import threading
import warnings

# Up to Python 3.11.7 and 3.12.1 the parser counts the depth of all threads together and raises
# SystemError when two of them differ (https://github.com/python/cpython/issues/106905). Filters of
# warnings are common to all threads too.
_ONE_AT_A_TIME = threading.Lock()


def parse_python(source: str | bytes) -> ast.Module:
    """The syntax tree, without warnings of invalid escapes and the like. Raises as `ast.parse`."""
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)
