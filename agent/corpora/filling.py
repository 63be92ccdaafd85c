"""Filling the store with a corpus, and saying truly what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.corpora.passages import CorpusUnavailable, Label
from agent.errors import ProviderError

if TYPE_CHECKING:
    from agent.corpora.shelf import Shelf
    from agent.corpora.vectors import Filled, PassageVectors


@dataclass(frozen=True, slots=True)
class CorpusReport:
    """What indexing a corpus came to. `note` says why it is not whole, "" where it is."""

    label: Label
    passages: int
    filled: Filled | None
    note: str = ""

    @property
    def complete(self) -> bool:
        """Whether every passage has its vector, and there is one at all."""
        return not self.note and self.passages > 0


async def fill_corpus(
    label: Label,
    opened: Callable[[Label], Awaitable[Shelf]],
    vectors: PassageVectors | None,
    progress: Callable[[int, int], None],
) -> CorpusReport:
    """Put the vectors of all its passages into the store. Raises StoreError.

    A corpus that is not there, is empty or could not be embedded is a report with a note.
    """
    try:
        shelf = await opened(label)
    except CorpusUnavailable as error:
        return CorpusReport(label, 0, None, str(error))
    count = len(shelf.passages)
    if not count:
        return CorpusReport(label, 0, None, "nothing of it was found in this project")
    if vectors is None:
        return CorpusReport(label, count, None, "no vectors: words alone")
    try:
        filled = await vectors.fill(label, shelf.passages, progress)
    except ProviderError as error:
        return CorpusReport(label, count, None, f"nothing was embedded: {error}")
    note = f"{filled.failed:,} texts were not embedded: index again" if filled.failed else ""
    return CorpusReport(label, count, filled, note)
