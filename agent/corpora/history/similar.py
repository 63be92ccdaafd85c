"""Past changes that resemble the problem, to be shown beside the code: how it was done before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent.corpora.history.evidence import MAX_FILES, most_similar, similarities
from agent.corpora.history.source import passage_of
from agent.corpora.history.store import NoHistory
from agent.errors import RepositoryError
from agent.events import Notice
from agent.repository.languages import is_test_path
from agent.retrieval.identifiers import Terms
from agent.retrieval.lexical import make_query

if TYPE_CHECKING:
    from agent.corpora.history.store import HunkHistory
    from agent.corpora.history.table import HunkTable
    from agent.corpora.passages import Passage
    from agent.protocols import Snapshot, TokenCounter
    from agent.types import Problem

MOST = 2
"""Changes shown: one may be chance, and a third says what two have said."""

_LOOKED_AT = 30  # the best by similarity; what is too large gives way to the next


def similar_changes(
    history: HunkHistory,
    problem: Problem,
    snapshot: Snapshot,
    counter: TokenCounter,
    tokens: int,
    most: int = MOST,
) -> tuple[Passage, ...]:
    """The past changes most like the problem, best first: at most `most`, within `tokens` together.

    Changes to code, one a commit; each is taken whole or not at all. None where there is no
    history, or where git fails, which is one Notice. Raises `pool.Cancelled`.
    """
    chosen: list[Passage] = []
    left = tokens
    try:
        for passage in _by_similarity(history, problem, snapshot):
            cost = counter.count(passage.text)
            if len(chosen) < most and cost <= left:
                chosen.append(passage)
                left -= cost
    except NoHistory:
        return ()
    except RepositoryError as error:
        history.reporter(Notice(f"no similar changes: {error}", "warning"))
    return tuple(chosen)


def _by_similarity(history: HunkHistory, problem: Problem, snapshot: Snapshot) -> Iterator[Passage]:
    table = history.table(snapshot)
    similar = similarities(table, make_query(problem, Terms()))
    best = most_similar(table, similar, _LOOKED_AT, MAX_FILES)
    places = list(_one_a_commit(table, best.tolist()))
    commits = history.some(snapshot, [commit for commit, _ in places])
    for commit, order in places:
        if commit in commits and order < len(commits[commit].commit.hunks):
            counted = commits[commit]
            yield passage_of(counted, counted.commit.hunks[order])


def _one_a_commit(table: HunkTable, best: list[int]) -> Iterator[tuple[str, int]]:
    """Commit and number of the hunk of the best occurrence in code of each commit and text."""
    commits: set[int] = set()
    texts: set[int] = set()
    for occurrence in best:
        commit, text = int(table.commit[occurrence]), int(table.text[occurrence])
        aside = is_test_path(table.paths[int(table.path[occurrence])])
        if aside or commit in commits or text in texts:
            continue
        commits.add(commit)
        texts.add(text)
        yield table.commits[commit], int(table.order[occurrence])
