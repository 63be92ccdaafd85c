"""What may not leave in a patch: keys that the reply brings, and masks in the place of values.

A model that was talked into it could copy a key of another place into a file; one that was shown a
masked line could write the mask over the value. Only keys whose own form tells them count here:
a random-looking value of a telling name may be a fixture that the change needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from agent.patching.paths import is_allowed
from agent.secrets.finding import find_secrets, is_placeholder
from agent.secrets.masking import MASK
from agent.types import FileChange


@dataclass(frozen=True, slots=True)
class Leak:
    """A changed file that may not be written, and why. The reason never repeats the value."""

    path: str
    reason: str


def leaks(changes: Sequence[FileChange], allow: Collection[str] = ()) -> tuple[Leak, ...]:
    """One entry for each file that would hold a key or a mask that no file held before.

    `allow`: patterns of paths that are not looked at, as in `paths.check_path`.
    """
    had = {value for change in changes for value in _values(_text(change.before))}
    written = (change for change in changes if not is_allowed(change.path, allow))
    found = ((change.path, _problem(change, had)) for change in written)
    return tuple(Leak(path, problem) for path, problem in found if problem)


def _problem(change: FileChange, had: Collection[str]) -> str:
    before, after = _text(change.before), _text(change.after)
    if after.count(MASK) > before.count(MASK):
        return (
            f'line {_line(after, after.index(MASK))} would hold "{MASK}", which stands for a value '
            "that is not shown: the value would be lost. Quote and change other lines only"
        )
    for found in find_secrets(after):
        value = after[found.start : found.end]
        if found.known_form and value not in had and not is_placeholder(value):
            return (
                f"line {_line(after, found.start)} would add what looks like a secret "
                f"({found.what}); read it from the environment or a file, or write a value that "
                f"says that it is made up (a user's --allow {change.path} lets it pass)"
            )
    return ""


def _values(text: str) -> Iterator[str]:
    return (text[found.start : found.end] for found in find_secrets(text))


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1
