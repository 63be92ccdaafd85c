"""Whether edited files still parse: each state of a file once, and in all only so much of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.patching.filetext import FileText, Spliced
from agent.patching.matching import Match
from agent.patching.syntax import parses

# Bytes of one file (2 MB take a second in the slowest grammar), and of all that one reply has
# parsed. Beyond either nothing is checked, and tiers that rely on it are not used.
MAX_PARSED = 2 * 1024 * 1024
_MAX_IN_ALL = 6 * 1024 * 1024


@dataclass(slots=True)
class Checker:
    """Remembers what parsed. `left`: bytes that may still be parsed."""

    left: int = _MAX_IN_ALL
    _known: dict[tuple[str, bytes], bool] = field(default_factory=dict)

    def affords(self, data: bytes) -> bool:
        """Whether a file of that size is checked."""
        return len(data) <= min(MAX_PARSED, self.left)

    def spend(self, data: bytes) -> bool:
        """Take the size of a file off what is left; False if it is too large."""
        if not self.affords(data):
            return False
        self.left -= len(data)
        return True

    def intact(self, path: str, file: FileText, match: Match) -> bool:
        """Whether a file that parses does so after a match too, as far as it is checked."""
        if not self.affords(file.data):
            return True
        new = file.splice(match.start, match.end, match.replacement)
        if not isinstance(new, Spliced):
            return True  # said so when it is spliced
        return self._parses(path, new.data) or not self._parses(path, file.data)

    def _parses(self, path: str, data: bytes) -> bool:
        key = (path, data)
        if key not in self._known:
            self._known[key] = parses(path, data) if self.spend(data) else True
        return self._known[key]
