"""Intents of an issue, their grounding in a snapshot, and a search for the best plan of them.

An intent leads to the symbols of the nearest synthetic intents in the vector store; where there are
none, the retriever's signals score it over one corpus. The search is deterministic: the
frontier is ordered by falling value, then by the plans themselves.
"""

from __future__ import annotations

import heapq
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from agent.retrieval.index import Terms
from agent.retrieval.ranking import (
    LexicalQuery,
    MentionPlace,
    candidate_files,
    make_query,
    neighbours,
    read_mentions,
    signals_over,
    text_parts,
)
from agent.search.passages import Passage
from agent.types import Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.index import Corpus, Index
    from agent.retrieval.ranking import Signals
    from agent.types import Ranking
    from agent.types.protocols import Snapshot


Origin = Literal["title", "sentence", "error", "frame", "name", "neighbour", "mutation"]

MAX_INTENT_CHARS = 240
"""A longer sentence, probably a paragraph without full stops, is cut."""

# Maximum intents from each origin: each one costs a ranking, and later ones are rarely relevant.
MAX_SENTENCES = 16
_MAX_NAMES = 8
_MAX_FRAMES = 4
_MAX_ERRORS = 3

_MIN_WORDS = 3  # minimum words of a sentence: excludes "Steps to reproduce" and "Thanks!"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`'\"(\[])|\n+")
_MARKS = re.compile(r"^[\s>#*+\-|]+(?:\[[ xX]?\]\s*)?|[\s*|]+$")
_WORDS = re.compile(r"[A-Za-z_]\w{2,}")
_LINK = re.compile(r"!?\[([^\]\n]{0,200})\]\([^)\n]{0,500}\)|https?://\S+")
_ERROR = re.compile(r"^[\w.]{0,100}?\w*(?:Error|Exception|Warning)\b[^\n]{3,300}", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Intent:
    """One search of a plan: a sentence to show, and the words to search for, which identify it."""

    text: str
    query: str
    origin: Origin


Plan = tuple[Intent, ...]
"""Intents in display order. No two have the same query."""


def plan_of(intents: Iterable[Intent]) -> Plan:
    """Return the plan of these intents. Each query stays once, at its first position."""
    by_query: dict[str, Intent] = {}
    for intent in intents:
        by_query.setdefault(intent.query, intent)
    return tuple(by_query.values())


def key_of(plan: Plan) -> tuple[str, ...]:
    """Return the queries: they identify and order plans."""
    return tuple(intent.query for intent in plan)


_WORDING: dict[Origin, str] = {
    "title": "Find the code behind: {}",
    "sentence": "Find what this says: {}",
    "error": "Find what raises: {}",
    "frame": "Look where the error passed: {}",
    "name": "Look at {}",
    "neighbour": "Look around {}",
    "mutation": "{}",  # shown by the sentence that it extends
}


def intent_of(words: str, origin: Origin) -> Intent:
    """Return an intent to find these words, cut to the length of a sentence."""
    words = " ".join(words.split())
    if len(words) > MAX_INTENT_CHARS:
        words = words[:MAX_INTENT_CHARS].rpartition(" ")[0] or words[:MAX_INTENT_CHARS]
    return Intent(_WORDING[origin].format(words), words, origin)


def intents_in(problem: Problem) -> Plan:
    """Return the intents of an issue: title, errors, frames, names, sentences; each query once."""
    prose, code = text_parts(problem.body)
    mentions = read_mentions(problem)
    frames = sorted(mentions.frames, key=lambda frame: frame.rank)[:_MAX_FRAMES]
    files = [frame.path.replace("\\", "/").rpartition("/")[2] for frame in frames]
    texts: Mapping[Origin, Iterable[str]] = {
        "title": [problem.title],
        "error": _ERROR.findall(f"{prose}\n{code}")[-_MAX_ERRORS:],
        "frame": [
            f"{frame.function} in {file}" if frame.function else file
            for frame, file in zip(frames, files, strict=True)
        ],
        "name": [m.name for m in mentions.names if m.place is not MentionPlace.CODE][:_MAX_NAMES],
        "sentence": sentences(prose)[:MAX_SENTENCES],
    }
    return plan_of(intent_of(text, origin) for origin, own in texts.items() for text in own)


def sentences(prose: str) -> list[str]:
    """Return the distinct sentences of a text in order, without Markdown marks and links."""
    parts = _SENTENCE_END.split(_LINK.sub(r"\1", prose))
    cleaned = (_MARKS.sub("", part) for part in parts)
    return list(dict.fromkeys(one for one in cleaned if len(_WORDS.findall(one)) >= _MIN_WORDS))


# -------------------------------------------------------------------------------------- grounding

HITS = 6
"""Number of best pieces that count as the result of an intent; more are too vague to use."""

_BACKGROUND = 4  # in multiples of HITS: ranks that the first hits are compared with


@dataclass(frozen=True, slots=True)
class Grounded:
    """The result of an intent: its best HITS pieces of the corpus by number.

    `strength`: cosine of the nearest synthetic intent, or share of its words in the best hit.
    `specificity`: lead of the hits over the next.
    """

    intent: Intent
    hits: tuple[int, ...]
    strength: float
    specificity: float

    @property
    def quality(self) -> float:
        """Return how well the intent matches code, in [0, 1]. It is the weight of its ranking."""
        return self.strength * (1.0 + self.specificity) / 2.0


Nearest = Callable[[Sequence[str]], Sequence[Sequence[tuple[Passage, float]]]]
"""Finds the stored passages nearest to each text, and their cosines, best first."""


@dataclass(slots=True)
class Grounder:
    """Ranks queries over the candidate files of the issue `about`, each once, up to `limit`.

    `nearest` searches synthetic intents.
    """

    about: Problem
    snapshot: Snapshot
    index: Index
    limit: int = 40
    cancel: threading.Event = field(default_factory=threading.Event)
    nearest: Nearest | None = None
    _terms: Terms = field(default_factory=Terms)
    _corpus: Corpus | None = None
    _loaded: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    _grounded: dict[str, Grounded] = field(default_factory=dict)
    _numbers: dict[tuple[str, int], int] = field(default_factory=dict)  # of definitions, by place

    @property
    def spent(self) -> int:
        """The number of queries ranked so far."""
        return len(self._grounded)

    @property
    def corpus(self) -> Corpus:
        """Return the loaded corpus. Its pieces and their numbers never change."""
        return self._load(self._loaded)

    def prepare(self, text: str) -> None:
        """Load the terms of a text. Later queries may use any of these terms."""
        self._load(make_query(Problem(text, ""), self._terms).hashes)

    def ground(self, intents: Sequence[Intent]) -> tuple[Grounded, ...] | None:
        """Return the result of each intent, or None if that would exceed the limit."""
        fresh = {i.query: i for i in intents if i.query not in self._grounded}
        if self.spent + len(fresh) > self.limit:
            return None
        if self.nearest is not None and fresh:
            for query, passages in zip(fresh, self.nearest(list(fresh)), strict=True):
                if one := self._by_intents(fresh[query], passages):
                    self._grounded[query] = one
        rest = [query for query in fresh if query not in self._grounded]
        for query, own in zip(rest, self.signals([Problem(q, "") for q in rest]), strict=True):
            self._grounded[query] = _grounded(fresh[query], own)
        return tuple(self._grounded[intent.query] for intent in intents)

    def _by_intents(
        self, intent: Intent, passages: Iterable[tuple[Passage, float]]
    ) -> Grounded | None:
        """Ground an intent in the symbols that these intents were written for; None for none."""
        if not self._numbers:
            corpus = self.corpus
            self._numbers = {
                (corpus.path_of(number), corpus.pieces[number].start): number
                for number, symbol in enumerate(corpus.symbols)
                if symbol
            }
        cosines: dict[int, float] = {}
        for passage, cosine in passages:
            number = self._numbers.get((passage.path, passage.start))
            if number is not None and cosine > 0.0:
                cosines.setdefault(number, cosine)
        return _made(
            intent, list(cosines), list(cosines.values()), max(cosines.values(), default=0)
        )

    def signals(self, problems: Sequence[Problem]) -> list[Signals]:
        """Return the signals of each problem over the same pieces. Raises Cancelled."""
        queries = [make_query(problem, self._terms) for problem in problems]
        corpus = self._load(np.concatenate([self._loaded[:0], *(one.hashes for one in queries)]))
        signals = []
        for problem, query in zip(problems, queries, strict=True):
            own = _narrowed(corpus, self._loaded, query)
            signals.append(
                signals_over(
                    problem, read_mentions(problem), own, query, self._terms, self.index.encoder
                )
            )
        return signals

    def _load(self, terms: NDArray[np.uint64]) -> Corpus:
        if self._corpus is None or not np.isin(terms, self._loaded).all():
            self._loaded = np.union1d(self._loaded, terms)
            files = candidate_files(self.snapshot, self.about, read_mentions(self.about))
            self._corpus = self.index.load(self.snapshot, files, self._loaded, self.cancel)
        return self._corpus


def _narrowed(corpus: Corpus, loaded: NDArray[np.uint64], query: LexicalQuery) -> Corpus:
    """Return the corpus with only the postings of the query's terms, numbered as in the query."""
    numbers = np.full(loaded.size, -1, dtype=np.int64)
    numbers[np.searchsorted(loaded, query.hashes)] = np.arange(query.hashes.size)
    terms = numbers[corpus.term]
    own = terms >= 0
    return replace(
        corpus,
        piece=corpus.piece[own],
        term=terms[own],
        counts=corpus.counts[own],
        name_counts=corpus.name_counts[own],
    )


def _grounded(intent: Intent, signals: Signals) -> Grounded:
    scores = signals.pieces
    best = np.argsort(-scores, kind="stable")[: HITS * (1 + _BACKGROUND)]
    best = best[scores[best] > 0.0]
    coverage = signals.piece_columns["coverage"][best[:HITS]].max(initial=0.0)
    made = _made(intent, best.tolist(), scores[best].tolist(), float(coverage))
    return made or Grounded(intent, (), 0.0, 0.0)


def _made(
    intent: Intent, pieces: Sequence[int], scores: Sequence[float], strength: float
) -> Grounded | None:
    """Return the result of an intent with these scored pieces, best first; None without any."""
    if not pieces:
        return None
    first, after = scores[:HITS], scores[HITS : HITS * (1 + _BACKGROUND)]
    specificity = 1.0
    if after:
        specificity -= (sum(after) / len(after)) / (sum(first) / len(first))
    return Grounded(intent, tuple(pieces[:HITS]), strength, specificity)


def numbers_of(ranking: Ranking, corpus: Corpus) -> dict[int, int]:
    """Return the rank (from 0) by piece number, for ranked pieces of the corpus."""
    chunks = [scored.chunk for scored in ranking.chunks]
    ranks = {(c.path, c.start, c.end, c.symbol): rank for rank, c in enumerate(chunks)}
    paths = {chunk.path for chunk in chunks}
    numbers: dict[int, int] = {}
    for file, source in enumerate(corpus.files):
        for number, piece in corpus.pieces_of(file) if source.path in paths else ():
            rank = ranks.get((source.path, piece.start, piece.end, piece.symbol))
            if rank is not None:
                numbers[number] = rank
    return numbers


def mentioned(signals: Signals) -> Mapping[int, float]:
    """Return the sum of evidence for each piece that the issue names."""
    pieces = signals.evidence.pieces
    return {n: sum(sorted(r.value for r in pieces[n].values())) for n in sorted(pieces)}


# ------------------------------------------------------------------------------------- the search

TOKENS_A_TERM = 2.0
"""Prompt tokens for each term that the index counts in a piece (median of ten projects)."""

# Weights of the parts of a plan's value. They were set by judgement, so that no part decides alone.
_GROUNDING, _MENTIONS, _SUPPORT, _PRICE = 1.0, 0.5, 1.0, 0.3

_RANK_OFFSET = 10  # of the support formula: it makes the first ranks nearly equal

MAX_INTENTS = 8
"""Maximum intents of a plan: a fix rarely needs more locations."""

_NAMES = 2  # symbol names that a rephrased intent adds
_ADDED = 2  # further intents from each source that one expansion tries


@dataclass(frozen=True, slots=True)
class ScoredPlan:
    """A plan as the results of its intents, and its value."""

    grounded: tuple[Grounded, ...] = ()
    value: float = 0.0

    @property
    def plan(self) -> Plan:
        """Return the intents."""
        return tuple(one.intent for one in self.grounded)

    @property
    def order(self) -> tuple[float, tuple[str, ...]]:
        """Return a total sort key: highest value first, then the queries."""
        return (-self.value, key_of(self.plan))


@dataclass(slots=True)
class PlanSearch:
    """One search. `expansions`: maximum number of plans whose neighbours are tried.

    `pool`: intents that may be added. `ranks`: rank in the issue's ranking from 0, by piece.
    `mentions`: evidence by piece. `tokens`: size of the context. `width`: of a beam search, in
    which each round forgets all plans but the best; None: best-first.
    """

    grounder: Grounder
    pool: Plan
    ranks: Mapping[int, int]
    mentions: Mapping[int, float]
    tokens: int
    expansions: int = 6
    width: int | None = None
    _seen: set[tuple[str, ...]] = field(default_factory=set)
    _best: ScoredPlan | None = None
    _frontier: list[tuple[tuple[float, tuple[str, ...]], ScoredPlan]] = field(default_factory=list)

    def best(self, start: Plan) -> ScoredPlan:
        """Return the best plan that is reached from `start`."""
        self._offer([start])
        left = self.expansions
        while left and self._frontier:
            count = min(left, self.width or 1, len(self._frontier))
            chosen = [heapq.heappop(self._frontier)[1] for _ in range(count)]
            if self.width is not None:
                self._frontier.clear()
            for scored in chosen:
                self._offer(self.neighbours(scored.grounded))
            left -= count
        return self._best or ScoredPlan()

    def _offer(self, plans: Iterable[Plan]) -> None:
        for plan in plans:
            key = key_of(plan)
            if key in self._seen or not plan:
                continue
            self._seen.add(key)
            grounded = self.grounder.ground(plan)
            if grounded is not None:
                scored = ScoredPlan(grounded, self.value(grounded))
                heapq.heappush(self._frontier, (scored.order, scored))
                if self._best is None or scored.order < self._best.order:
                    self._best = scored

    def value(self, plan: Sequence[Grounded]) -> float:
        """Return the value of a plan.

            _GROUNDING * (1 - product over intents of (1 - quality * novelty / 2))
            + _MENTIONS * share of the names in the issue that the hits cover
            + _SUPPORT  * mean over hits of offset / (offset + rank in the issue's own ranking)
            - _PRICE    * tokens of all hits / available tokens

        Novelty is the share of an intent's hits that no earlier intent found.
        """
        seen: set[int] = set()
        doubt = 1.0
        for intent in plan:
            fresh = sum(piece not in seen for piece in intent.hits)
            doubt *= 1.0 - intent.quality * (fresh / max(1, len(intent.hits))) / 2.0
            seen.update(intent.hits)
        hits = sorted(seen)
        named = sum(self.mentions[piece] for piece in hits if piece in self.mentions)
        gains = _GROUNDING * (1.0 - doubt) + _MENTIONS * (
            named / sum(self.mentions.values()) if named > 0.0 else 0.0
        )
        ranks = sorted(self.ranks[piece] for piece in hits if piece in self.ranks)
        support = sum(_RANK_OFFSET / (_RANK_OFFSET + rank) for rank in ranks) / max(1, len(hits))
        tokens = float(self.grounder.corpus.text_lengths[hits].sum()) * TOKENS_A_TERM
        return gains + _SUPPORT * support - _PRICE * (tokens / max(1, self.tokens))

    def neighbours(self, plan: Sequence[Grounded]) -> Iterator[Plan]:
        """Yield plans with one intent dropped, added, or with the names of its first hits."""
        intents = tuple(one.intent for one in plan)
        if len(intents) > 1:
            yield from (intents[:at] + intents[at + 1 :] for at in range(len(intents)))
        if len(intents) < MAX_INTENTS:
            queries = {intent.query for intent in intents}
            for source in (self.pool, self._around(plan)):
                unused = [intent for intent in source if intent.query not in queries]
                yield from (plan_of((*intents, intent)) for intent in unused[:_ADDED])
        for at, grounded in enumerate(plan):
            symbols = self.grounder.corpus.symbols
            names = [self._name(n) for n in grounded.hits if symbols[n]][:_NAMES]
            if names and grounded.intent.origin != "mutation":
                query = intent_of(" ".join((grounded.intent.query, *names)), "mutation").query
                other = Intent(grounded.intent.text, query, "mutation")
                yield plan_of((*intents[:at], other, *intents[at + 1 :]))

    def _around(self, plan: Sequence[Grounded]) -> list[Intent]:
        """Return intents for callers, callees and relatives of the best hits, most shared first."""
        hits = {grounded.hits[0]: 1.0 for grounded in plan if grounded.hits}
        if not hits:
            return []
        corpus = self.grounder.corpus
        related = neighbours(corpus, hits, {}).pieces
        worth = {n: sum(sorted(r.value for r in related[n].values())) for n in related}
        shown = {piece for grounded in plan for piece in grounded.hits}
        best = sorted((n for n in worth if n not in shown), key=lambda n: (-worth[n], n))
        return [intent_of(self._name(n), "neighbour") for n in best if corpus.symbols[n]]

    def _name(self, piece: int) -> str:
        corpus = self.grounder.corpus
        return f"{corpus.symbols[piece]} in {corpus.path_of(piece).rpartition('/')[2]}"
