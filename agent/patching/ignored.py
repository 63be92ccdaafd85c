"""Files that an edit would be lost in: ignored by git (gitignore(5)), or generated.

Git does not show what it ignores: a new file there would never be seen in a review, and build
folders and environments are such places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, lru_cache

# Far more than people write. A hostile file may not take the time of a run.
_MOST_RULES = 2_000
_LONGEST_RULE = 300

_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class _Rule:
    """One line. `parts` are its patterns by folder; `**` stands for any number of folders."""

    text: str
    parts: tuple[str, ...]
    negated: bool
    folders_only: bool


def ignoring_rule(path: str, read: Callable[[str], bytes | None]) -> str | None:
    """Return the rule that covers a path, with the name of its file; None where none does.

    `read` returns the content of a file of the project. A path in an ignored folder is ignored,
    whatever later rules say.
    """
    parts = path.split("/")
    for depth in range(1, len(parts) + 1):
        found = _deciding(parts[:depth], read, folder=depth < len(parts))
        if found is not None:
            return found
    return None


def _deciding(
    parts: Sequence[str], read: Callable[[str], bytes | None], *, folder: bool
) -> str | None:
    """Return the last rule that covers a file or folder itself, from the innermost file."""
    for level in reversed(range(len(parts))):
        name = "/".join((*parts[:level], ".gitignore"))
        for rule in reversed(_rules(read(name) or b"")):
            covers = folder or not rule.folders_only
            if covers and _fits(rule.parts, tuple(parts[level:])):
                return None if rule.negated else f"{rule.text} of {name}"
    return None


@lru_cache(64)
def _rules(data: bytes) -> tuple[_Rule, ...]:
    lines = data.decode("utf-8-sig", "replace").splitlines()[:_MOST_RULES]
    return tuple(rule for line in lines for rule in _parsed(line))


def _parsed(line: str) -> Iterator[_Rule]:
    text = line if line.endswith("\\ ") else line.rstrip(" ")
    negated = text.startswith("!")
    pattern = text[negated:]
    if not pattern.strip("/") or text.startswith("#") or len(text) > _LONGEST_RULE:
        return
    folders_only = pattern.endswith("/")
    parts = pattern.rstrip("/").split("/")
    if len(parts) == 1:
        parts = ["**", *parts]
    elif not parts[0]:
        parts = parts[1:]
    yield _Rule(text, tuple(map(_translated, parts)), negated, folders_only)


def _translated(part: str) -> str:
    """Write a part as `fnmatch` has it: `[^a]` is `[!a]` there, and it knows no backslash."""
    return _ESCAPED.sub(_literal, part).replace("[^", "[!")


def _literal(escaped: re.Match[str]) -> str:
    return f"[{escaped[1]}]" if escaped[1] in "*?[" else escaped[1]


def _fits(patterns: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Whether the patterns match all of the parts; each pair is compared once."""

    @cache
    def fits(at: int, part: int) -> bool:
        if at == len(patterns):
            return part == len(parts)
        if patterns[at] == "**":
            last = at + 1 == len(patterns)  # `a/**` covers what is in `a`, not `a` itself
            return (
                (part < len(parts))
                if last
                else any(fits(at + 1, later) for later in range(part, len(parts) + 1))
            )
        return (
            part < len(parts) and fnmatchcase(parts[part], patterns[at]) and fits(at + 1, part + 1)
        )

    return fits(0, 0)


# --------------------------------------------------------------------------------- generated files

# Generators mark their files at the top: `@generated` (Buck, Phabricator), and the sentence of
# https://go.dev/s/generatedcode, which others write in their own words.
_HEAD = 1500
_MARK = re.compile(
    r"^\s*(?:#|//|/\*|\*|--|;|<!--|%|\"\"\"|''')[^\n]*"
    r"(?:@generated\b|\bgenerated\b[^\n]*\bdo not (?:edit|modify)\b"
    r"|\bdo not (?:edit|modify)\b[^\n]*\bgenerated\b)",
    re.IGNORECASE | re.MULTILINE,
)


def is_generated(content: bytes) -> bool:
    """Whether a comment at the top of a file says that a program generates it."""
    return _MARK.search(content[:_HEAD].decode("utf-8", "replace")) is not None
