"""Filling the store with a corpus, and saying truly what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.corpora.passages import CorpusUnavailable, Label
from agent.corpora.pool import CorpusReport
from agent.errors import ProviderError
from agent.events import StageProgress

if TYPE_CHECKING:
    from agent.corpora.pool import Pool

STAGE = "vectors"


async def fill_corpus(pool: Pool, label: Label) -> CorpusReport:
    """Put the vectors of all its passages into the store. Raises StoreError.

    A corpus that is not there, is empty or could not be embedded is a report with a note.
    """
    reporter = pool.parts.reporter

    def progress(done: int, total: int) -> None:
        reporter(StageProgress(STAGE, done, total))

    try:
        shelf = await pool.shelf(label)
    except CorpusUnavailable as error:
        return CorpusReport(label, 0, None, str(error))
    count = len(shelf.passages)
    if not count:
        return CorpusReport(label, 0, None, "nothing of it was found in this project")
    if pool.parts.vectors is None:
        return CorpusReport(label, count, None, "no vectors: words alone")
    try:
        filled = await pool.parts.vectors.fill(label, shelf.passages, progress)
    except ProviderError as error:
        return CorpusReport(label, count, None, f"nothing was embedded: {error}")
    note = f"{filled.failed:,} texts were not embedded: index again" if filled.failed else ""
    return CorpusReport(label, count, filled, note)
