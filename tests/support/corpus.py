"""A corpus of files in memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from agent.retrieval.index import Corpus, Index, all_files
from tests.support.fakes import MemorySnapshot
from tests.support.ignored_events import ignore

NO_TERMS = np.empty(0, dtype=np.uint64)


def corpus_of(files: Mapping[str, str], hashes: NDArray[np.uint64] = NO_TERMS) -> Corpus:
    """Return the corpus of all files, with the postings of the terms."""
    snapshot = MemorySnapshot(files)
    return Index(ignore).load(snapshot, all_files(snapshot), hashes)
