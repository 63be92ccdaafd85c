"""Evidence for functions from documents and intents.

A section, docstring or intent that shares words with a problem is evidence for the symbols that it
names or belongs to. The features `docs` and `intents` are groups for `--without`.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent.retrieval.index import Terms
from agent.retrieval.ranking import MAX_AMBIGUITY, Evidence, make_query
from agent.search.passages import CorpusSource, CorpusUnavailable, Label, Passage
from agent.search.ranking import ProjectWords
from agent.search.word_index import WordIndex, WordIndexCache
from agent.types import Reason

if TYPE_CHECKING:
    from agent.retrieval.index import Corpus
    from agent.retrieval.ranking import Mentions
    from agent.types import Problem
    from agent.types.protocols import Snapshot

FEATURES: Mapping[Label, str] = {Label.DOCS: "docs", Label.INTENT: "intents"}

WEIGHTS: Mapping[Label, float] = {Label.DOCS: 0.3, Label.INTENT: 0.3}
"""Weight of the best passage in the plain sum, relative to 1 for the best chunk by words."""

MOST = 30
"""Maximum number of passages; later ones share only common words."""

_IN_SECTIONS = 0.5  # weight of a symbol that a section names, relative to the owner of a docstring
_NAME = re.compile(r"[A-Za-z_][\w.]{2,100}")


@dataclass(frozen=True, slots=True)
class PassageEvidence:
    """An `EvidenceSource` over one corpus of passages."""

    source: CorpusSource
    word_indexes: WordIndexCache

    def __call__(
        self, problem: Problem, mentions: Mentions, snapshot: Snapshot, corpus: Corpus, /
    ) -> Evidence:
        """Return evidence for pieces and their files; none if the corpus is unavailable."""
        del mentions
        label = self.source.label
        evidence = Evidence()
        try:
            passages = self.source.passages(snapshot, threading.Event())
        except CorpusUnavailable:
            return evidence
        best = best_by_words(self.word_indexes.of(passages), problem)
        if not best:
            return evidence
        symbols = _Symbols(corpus)
        top = best[0][1]
        for passage, score in best:
            weight = WEIGHTS[label] * score / top
            for piece, share in symbols.named_by(passage):
                note = f"[{label.value}] {passage.title[:80]}"
                reason = Reason(FEATURES[label], weight * share, note)
                evidence.add_piece(piece, reason)
                evidence.add_file(int(corpus.piece_file[piece]), reason)
        return evidence


def best_by_words(word_index: WordIndex, problem: Problem) -> list[tuple[Passage, float]]:
    """Return the passages that share the most words with the problem and their BM25, best first."""
    query = make_query(problem, Terms())
    weights = dict(zip(query.hashes.tolist(), query.weights.tolist(), strict=True))
    scores = word_index.bm25(weights)
    numbers = ProjectWords(weights).best(word_index, MOST)
    return [(word_index.passages[number], float(scores[number])) for number in numbers]


class _Symbols:
    """The pieces of a corpus by path and symbol, and by the last part of the symbol."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._by_leaf: defaultdict[str, list[int]] = defaultdict(list)
        for number, symbol in enumerate(corpus.symbols):
            if symbol:
                self._by_leaf[symbol.rpartition(".")[2]].append(number)

    def named_by(self, passage: Passage) -> Iterator[tuple[int, float]]:
        """Yield each piece that a passage belongs to or names, with its share of the passage's
        weight.
        """
        if passage.symbol:
            yield from ((number, 1.0) for number in self._own(passage))
            return
        names = dict.fromkeys(_NAME.findall(passage.text))
        found = [numbers for name in names if (numbers := self._find(name.strip(".")))]
        for numbers in found:
            share = _IN_SECTIONS / np.sqrt(len(numbers) * len(found))
            yield from ((number, float(share)) for number in numbers)

    def _own(self, passage: Passage) -> list[int]:
        leaf = passage.symbol.rpartition(".")[2]
        return [
            number
            for number in self._by_leaf.get(leaf, ())
            if self._corpus.symbols[number] == passage.symbol
            and self._corpus.path_of(number) == passage.path
        ]

    def _find(self, name: str) -> Sequence[int]:
        """Return the pieces for a name in prose (dotted, with underscore or inner capitals)."""
        leaf = name.rpartition(".")[2]
        telling = "." in name or "_" in name or sum(c.isupper() for c in name) > 1
        if not telling or len(leaf) < 3:
            return ()
        numbers = self._by_leaf.get(leaf, ())
        whole = [n for n in numbers if f".{self._corpus.symbols[n]}".endswith(f".{name}")]
        chosen = whole or list(numbers)
        return chosen if len(chosen) <= MAX_AMBIGUITY else ()
