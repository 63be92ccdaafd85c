"""Texts that leave lines out by `...`: search texts with their replacements, and whole files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from agent.patching.lines import Wanted, is_blank

_DOTS = r"(?:\.\.\.|\u2026)"
_SIGN = r"(?:#|//|--|;|/\*|<!--|\{/\*|%)"
_CLOSE = r"(?:\*/\}?|-->)?"
_WHAT = (
    r"(?:the )?(?:rest|remainder|remaining|existing|other|unchanged|previous|same|more)\b"
    r"[\w ,'()./-]{0,80}"
)
_ELISION = re.compile(
    rf"\s*(?:{_SIGN}\s*)?[\[(]?{_DOTS}[\])]?(?:[\w ,'()./-]{{0,80}}{_DOTS}?)?\s*{_CLOSE}\s*"
    rf"|\s*{_SIGN}\s*(?:{_DOTS}\s*)?{_WHAT}\s*{_DOTS}?\s*{_CLOSE}\s*",
    re.IGNORECASE,
)
# Comments that can only stand for omitted code; `...` alone may be Python syntax.
_SURE = re.compile(
    rf"\s*{_SIGN}\s*(?:"
    rf"{_DOTS}(?:\s*{_WHAT}\s*{_DOTS}?)?|{_WHAT}\s*{_DOTS}"
    r"|(?:the )?(?:rest|remainder) of (?:the |this )?(?:\w+ )?(?:code|file|function|method|class"
    r"|body|implementation|module|logic)(?: (?:remains|stays|is|as|goes)[\w ]{0,40})?\.?"
    r"|(?:the )?existing (?:code|implementation|logic)(?: (?:here|remains|stays)[\w ]{0,40})?\.?"
    rf")\s*{_CLOSE}\s*",
    re.IGNORECASE,
)
# A text without one of these has no line that matches `_SURE`.
_HINT = re.compile(rf"{_DOTS}|(?:rest|remainder)\sof\s|existing\s", re.IGNORECASE)
_MAX_LINE = 200

# Number of parts between elisions.
_MAX_PARTS = 12


def is_elision(line: str) -> bool:
    """Whether a line may stand for omitted lines."""
    return len(line) <= _MAX_LINE and _ELISION.fullmatch(line) is not None


def surely_elided(line: str) -> bool:
    """Whether a line is a comment that can only stand for omitted lines."""
    return len(line) <= _MAX_LINE and (line.strip() == "…" or _SURE.fullmatch(line) is not None)


def abbreviates(wanted: Wanted) -> str | None:
    """Return a line of the replacement, not in the search text, that stands for omitted lines."""
    if not _HINT.search(wanted.replace):
        return None
    own = {line.strip() for line in wanted.old}
    lines = (line.strip() for line in wanted.new if surely_elided(line))
    return next((line for line in lines if line not in own), None)


def elision_parts(wanted: Wanted) -> Sequence[Wanted]:
    """Return the runs of lines between elisions; none if both sides do not omit as many runs."""
    old, new = _split(wanted.old), _split(wanted.new)
    if len(old) != len(new) or not 2 <= len(old) <= _MAX_PARTS:
        return ()
    pairs = [_trimmed(*pair) for pair in zip(old, new, strict=True)]
    # An elision at either end only means that the file goes on there.
    while pairs and not any(pairs[0]):
        pairs.pop(0)
    while pairs and not any(pairs[-1]):
        pairs.pop()
    parts = [Wanted.of_lines(*pair) for pair in pairs]
    changed = any(not step.equal for part in parts for step in part.steps)
    return parts if changed and all(part.says_something for part in parts) else ()


def _split(lines: Sequence[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for line in lines:
        if is_elision(line):
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def _trimmed(old: list[str], new: list[str]) -> tuple[list[str], list[str]]:
    """Drop the blank lines that both sides begin or end with: they belong to the elision."""
    while old and new and is_blank(old[0]) and is_blank(new[0]):
        old, new = old[1:], new[1:]
    while old and new and is_blank(old[-1]) and is_blank(new[-1]):
        old, new = old[:-1], new[:-1]
    return old, new


# -------------------------------------------------------------------------------------- whole files

# A whole file must have at least this share of the non-blank lines of the old one. A shorter one is
# an excerpt, and writing it would delete the rest.
_MIN_SIZE = 0.5
# A version of a file must keep this share of its lines, unless the file is small.
_MIN_KEPT = 0.2
_SMALL = 10


def not_whole(old: str, new: str) -> str | None:
    """Return why `new` is refused as the whole new text of a file with the text `old`, or None."""
    before, after = _lines(old), _lines(new)
    size, common = before.total(), (before & after).total()
    gap = _gap(new, before)
    if gap is not None:
        return (
            f"the reply's whole file leaves lines out ({gap!r}): that would delete them; write "
            "every line, or give search and replace texts for what changes"
        )
    if size <= _SMALL:
        return None
    if after.total() < size * _MIN_SIZE:
        return (
            f"the reply shows {after.total()} lines as the whole file, which has {size}: that "
            "would delete the rest; give search and replace texts for what changes"
        )
    if common < size * _MIN_KEPT:
        return (
            f"the reply's whole file keeps {common} of the file's {size} lines: it seems to be "
            "another file; give search and replace texts for what changes"
        )
    return None


def _gap(new: str, before: Counter[str]) -> str | None:
    """Return a line that stands for others and is no body of a definition (`def f(self): ...`)."""
    last = ""
    for line in new.split("\n"):
        stripped = line.strip()
        if is_elision(line) and stripped not in before and not last.endswith(":"):
            return stripped
        last = stripped or last
    return None


def is_version_of(old: str, new: str) -> bool:
    """Whether `new` has at least half of the lines of `old`."""
    before, after = _lines(old), _lines(new)
    return 2 * (before & after).total() >= before.total() > 0


def _lines(text: str) -> Counter[str]:
    return Counter(line.strip() for line in text.split("\n") if line.strip())
