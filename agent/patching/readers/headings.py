"""Which file a piece of a reply is about: what the lines above it say."""

from __future__ import annotations

import re

from agent.patching.readers.fences import lines_above, path_of_info
from agent.patching.readers.names import looks_like_path, path_on_line, paths_in_prose

_FENCE = re.compile(
    r"\s*(?:(?:`{3,}|~{3,})([^`]*)"
    r"|</?(?:source|sourcecode|code|codeblock|pre|diff|content)>[\w+.#-]*)\s*"
)
_NAME_WITHOUT_ENDING = re.compile(r"[\w.@~+/ -]+")

# Lines above a piece among which its path is looked for.
_LOOK_BACK = 5


def path_above(text: str, start: int, floor: int, previous: str, *, infer: bool) -> str | None:
    """The path named above an offset, not above `floor`, where the piece before it ends.

    `infer`: the only path that the nearest line mentions counts, and `previous` where it mentions
    none. Without it, `previous` counts only if nothing but fences lies between.
    """
    for line in lines_above(text, start, floor, _LOOK_BACK):
        fence = _FENCE.fullmatch(line) if len(line) < 300 else None
        named = path_of_info(fence[1]) if fence and fence[1] else None
        if named:
            return named
        if fence or not line.strip():
            continue
        path = path_on_line(line)
        if path and (path == previous or looks_like_path(path) or _is_alone(line, path)):
            return path
        return _inferred(line, previous) if infer else None
    return previous or None


def _is_alone(line: str, path: str) -> bool:
    """A name without an ending (`Dockerfile`, `bin/run`) must not be a word of a sentence."""
    return bool(_NAME_WITHOUT_ENDING.fullmatch(path)) and not line.rstrip().endswith((":", "."))


def _inferred(line: str, previous: str) -> str | None:
    mentioned = paths_in_prose(line)
    if len(mentioned) == 1:
        return mentioned[0]
    return previous or None if not mentioned else None
