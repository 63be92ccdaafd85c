"""Corpora beside the code (history, documents, intents, memory), and one pool of results.

One search:

    from agent.corpora import open_pool

    async with open_pool("./target", corpora=("code", "docs")) as pool:
        found = await pool.search("where are cookies parsed", top_k=5)
    for hit in found.hits:
        print(hit.passage.corpus, hit.passage.place, round(hit.score, 3))
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.corpora.passages import Label
    from agent.corpora.pool import Pool
    from agent.protocols import Embedder, Reporter

__all__ = ["open_pool"]


def open_pool(
    repo: Path | str,
    *,
    corpora: Iterable[Label | str] = ("code", "docs", "intent"),
    commit: str | None = None,
    store: str | None = None,
    embedder: Embedder | None = None,
    cache: Path | None = None,
    data: Path | None = None,
    reporter: Reporter | None = None,
) -> AbstractAsyncContextManager[Pool]:
    """A pool over the repository at `repo`, for an `async with`.

    `commit` None: the work tree as it is. `store`: a URL as of `agent index --store`, None for the
    file in the cache folder. `embedder` None: the static vectors that ship with the package; no
    text leaves the machine then. `cache` and `data`: folders, None for the user's own. Settings
    and the environment are not read.

    Raises RepositoryError, StoreError or ConfigurationError when it is entered, and ValueError for
    a corpus that there is not.
    """
    from agent.corpora.opening import open_pool as open_one

    return open_one(
        repo,
        corpora=corpora,
        commit=commit,
        store=store,
        embedder=embedder,
        cache=cache,
        data=data,
        reporter=reporter or (lambda _: None),
    )
