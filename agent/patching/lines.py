"""Texts as lines, a search for runs of lines in linear time, and lines that leave others out. Each
distinct line becomes one letter, so that `str.find` searches for runs of lines.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from agent.patching.diff import Step, steps

# Number of occurrences that are searched. More make no difference: the edit is refused.
MAX_OCCURRENCES = 1000

# Lines of all occurrences of one search text that are compared.
_MAX_LINES = 200_000

# Typographic characters that word processors and models write for plain ones. They are mapped one
# to one, so that offsets in the translated text are offsets in the text.
_PUNCTUATION = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a", " "),
        **dict.fromkeys("\u202f\u205f\u3000", " "),
    }
)
_INDENT = re.compile(r"[ \t]*")
_WORD = re.compile(r"\w")


def plain_punctuation(text: str) -> str:
    """Return the text with plain quotes, dashes and spaces, and the same number of characters."""
    return text.translate(_PUNCTUATION)


def spaceless(line: str) -> str:
    """Return the line without any white space."""
    return "".join(line.split())


Normal = Callable[[str], str]

# The letter of each normalised line, the text in these letters, and the line of each letter.
_Letters = tuple[Mapping[str, int], str, Sequence[int]]


def indent_of(line: str) -> str:
    """Return the blanks and tabs at the start of a line."""
    found = _INDENT.match(line)
    return found[0] if found else ""


def is_blank(line: str) -> bool:
    """Whether a line has only white space."""
    return not line or line.isspace()


class Page:
    """A text and its lines, without line feeds. A line feed at the end begins no line."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._spelled: dict[tuple[Normal, bool], _Letters] = {}

    @functools.cached_property
    def lines(self) -> Sequence[str]:
        """The lines, split when first needed: an exact match needs none."""
        lines = self.text.split("\n")
        return lines if lines[-1] else lines[:-1]

    @functools.cached_property
    def starts(self) -> Sequence[int]:
        """The offset of each line and of the end of the text."""
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + len(line) + 1)
        starts[-1] = min(starts[-1], len(self.text))
        return starts

    def line_of(self, offset: int) -> int:
        """Return the 1-based line of an offset."""
        return self.text.count("\n", 0, offset) + 1

    @functools.cached_property
    def uses_tabs(self) -> bool:
        """Whether more lines are indented by tabs than by blanks."""
        tabs = sum(line.startswith("\t") for line in self.lines)
        return tabs > sum(line.startswith("  ") for line in self.lines)

    def runs(
        self, normal: Normal, lines: Sequence[str], *, blanks: bool = True
    ) -> list[Sequence[int]]:
        """Return the line indices of each occurrence of `lines` under a normalisation. Without
        `blanks`, blank lines of the file are passed over.
        """
        ids, text, at = self._letters(normal, blanks)
        keys = [ids.get(normal(line)) for line in lines]
        if not keys or None in keys:
            return []
        run = "".join(chr(key) for key in keys if key is not None)
        most = min(MAX_OCCURRENCES, max(2, _MAX_LINES // len(run)))
        result: list[Sequence[int]] = []
        start = text.find(run)
        while start >= 0 and len(result) < most:
            result.append(at[start : start + len(run)])
            start = text.find(run, start + 1)
        return result

    def _letters(self, normal: Normal, blanks: bool) -> _Letters:
        key = (normal, blanks)
        if key not in self._spelled:
            ids: dict[str, int] = {}
            at = [k for k, line in enumerate(self.lines) if blanks or not is_blank(line)]
            text = "".join(chr(ids.setdefault(normal(self.lines[k]), len(ids))) for k in at)
            self._spelled[key] = (ids, text, at)
        return self._spelled[key]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The search text and replacement of an edit with `\\n` ends, as texts and as lines."""

    search: str
    replace: str
    old: Sequence[str]
    new: Sequence[str]
    steps: Sequence[Step]

    @classmethod
    def of(cls, search: str, replace: str) -> Wanted:
        """Split both texts into lines. A final line feed begins no line."""
        old, new = _cut(search), _cut(replace)
        return cls(search, replace, old, new, steps(old, new))

    @classmethod
    def of_lines(cls, old: Sequence[str], new: Sequence[str]) -> Wanted:
        """Make it from lines."""
        return cls.of(*("".join(f"{line}\n" for line in lines) for lines in (old, new)))

    @property
    def added(self) -> Sequence[str]:
        """The lines of the replacement that the search text lacks."""
        return [line for step in self.changes for line in self.new[step.b_start : step.b_end]]

    @property
    def changes(self) -> Sequence[Step]:
        """The steps that change something."""
        return [step for step in self.steps if not step.equal]

    def around(self, step: Step) -> list[int]:
        """Return the non-blank old lines of a change with the nearest one on either side."""
        before = (i for i in range(step.a_start - 1, -1, -1) if not is_blank(self.old[i]))
        after = (i for i in range(step.a_end, len(self.old)) if not is_blank(self.old[i]))
        inside = (i for i in range(step.a_start, step.a_end) if not is_blank(self.old[i]))
        return [*islice(before, 1), *inside, *islice(after, 1)]

    def is_placed(self, step: Step, at: Mapping[int, int]) -> bool:
        """Whether a change stands among lines that are as far apart `at` their places."""
        around = self.around(step)
        inside = [index for index in around if step.a_start <= index < step.a_end]
        return all(i in at for i in inside) and all(
            i in at and j in at and at[j] - at[i] == j - i for i, j in pairwise(inside or around)
        )

    @property
    def says_something(self) -> bool:
        """Whether the search text has a letter or digit, which lenient tiers need."""
        return _WORD.search(self.search) is not None


def _cut(text: str) -> tuple[str, ...]:
    return tuple(text.removesuffix("\n").split("\n")) if text else ()


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
    changed = any(part.changes for part in parts)
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
    while old and new and is_blank(old[0]) and is_blank(new[0]):
        old, new = old[1:], new[1:]
    while old and new and is_blank(old[-1]) and is_blank(new[-1]):
        old, new = old[:-1], new[:-1]
    return old, new


# A whole file must have at least this share of the non-blank lines of the old one.
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
        problem = f"leaves lines out ({gap!r}), which would delete them"
    elif size > _SMALL and after.total() < size * _MIN_SIZE:
        problem = f"has {after.total()} of the file's {size} lines: that would delete the rest"
    elif size > _SMALL and common < size * _MIN_KEPT:
        problem = f"keeps {common} of the file's {size} lines: it seems to be another file"
    else:
        return None
    return f"the reply's whole file {problem}; give search and replace texts for what changes"


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
