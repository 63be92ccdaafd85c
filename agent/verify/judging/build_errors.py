"""Reads why a test did not compile, in the words of Go, rustc and javac (through Maven). Pure."""

from __future__ import annotations

import re

# One error of a compiler. What cargo says of the whole build is none, nor a note below an error.
_ERROR = re.compile(
    r"^(?:error(?:\[E\d+\])?: (?!could not compile|aborting due)(?P<rust>.+)"
    r"|\S+\.go:\d+:\d+: (?!too many errors)(?P<go>.+)"
    r"|\[ERROR\] \S+\.java:\[\d+,\d+\] (?P<java>.+(?:\n(?:\[ERROR\])?\s*symbol: .+)?))$",
    re.MULTILINE,
)

# An error that says no more than that a name does not exist.
_MISSING = re.compile(
    r"undefined: (?:\w+\.)*(\w+)|has no field or method (\w+)|unknown field '?(\w+)'? in struct"
    r"|unresolved import `(?:\w+::)*(\w+)`|cannot find [\w ,-]+ `(\w+)` in|named `(\w+)` found"
    r"|no field `(\w+)` on type|has no field named `(\w+)`"
    r"|cannot find symbol\n(?:\[ERROR\])?\s*symbol:\s+\w+\s+(\w+)"
)


def names_of_build(text: str) -> tuple[str, ...] | None:
    """Return the names for whose lack alone a build failed, sorted.

    () if it failed for other reasons too, None if the text holds no error of a compiler.
    """
    errors = [next(filter(None, found.groups())) for found in _ERROR.finditer(text)]
    if not errors:
        return None
    missing = [_MISSING.search(error) for error in errors]
    names = {next(filter(None, one.groups())) for one in missing if one is not None}
    return tuple(sorted(names)) if all(missing) else ()
