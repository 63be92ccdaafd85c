"""Whether a text shown as a whole file is one, and of which file it is a version."""

from __future__ import annotations

from collections import Counter

from agent.patching.tiers.elision import is_elision

# Share of the file's non-blank lines that a whole file must have at least: what is far shorter is
# an excerpt, and writing it would delete the rest.
_MIN_SIZE = 0.5

# Share of them that it must have kept to be a version of that file; of small files any will do.
_MIN_KEPT = 0.2
_SMALL = 10


def not_whole(old: str, new: str) -> str | None:
    """Why `new` is not taken as the new content of a file with the text `old`; None if it is."""
    before, after = _lines(old), _lines(new)
    size, kept = before.total(), (before & after).total()
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
    if kept < size * _MIN_KEPT:
        return (
            f"the reply's whole file keeps {kept} of the file's {size} lines: it seems to be "
            "another file; give search and replace texts for what changes"
        )
    return None


def _gap(new: str, before: Counter[str]) -> str | None:
    """A line that stands for others, and is no body of a definition (`def f(self): ...`)."""
    last = ""
    for line in new.split("\n"):
        stripped = line.strip()
        if is_elision(line) and stripped not in before and not last.endswith(":"):
            return stripped
        last = stripped or last
    return None


def is_version_of(old: str, new: str) -> bool:
    """Whether `new` looks like `old` with changes: at least half of its lines are there."""
    before, after = _lines(old), _lines(new)
    return 2 * (before & after).total() >= before.total() > 0


def _lines(text: str) -> Counter[str]:
    return Counter(line.strip() for line in text.split("\n") if line.strip())
