"""Plans: intents read from an issue, their grounding in a snapshot, and a search for the best plan.

An intent is one search: `text` is an imperative sentence for people and models, `query` has the
words to search for. All intents are scored over one corpus by the retriever's signals. It is loaded
with the terms of all queries, and each query is scored over the postings of its own terms.

The search expands the plan with the highest value first, within a budget. It is deterministic: the
frontier is ordered by falling value, then by the plans themselves.
"""

from __future__ import annotations

import heapq
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from agent.retrieval.index import Terms
from agent.retrieval.ranking import (
    Frame,
    LexicalQuery,
    MentionPlace,
    RankingInput,
    candidate_files,
    make_query,
    neighbours,
    read_mentions,
    signals_over,
    text_parts,
)
from agent.types import Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agent.retrieval.index import Corpus, Index
    from agent.retrieval.ranking import EvidenceSource, RetrievalOptions, Signals
    from agent.types import Ranking
    from agent.types.protocols import Snapshot


Origin = Literal["title", "sentence", "error", "frame", "name", "neighbour", "mutation", "model"]

MAX_INTENT_CHARS = 240
"""A longer sentence is probably a paragraph without full stops.

It is cut, because its beginning usually names the subject.
"""

MAX_SENTENCES = 16
MAX_NAMES = 8
MAX_FRAMES = 4
MAX_ERRORS = 3
"""Maximum intents from each origin.

Each one costs a ranking, and later ones are rarely relevant.
"""

_MIN_WORDS = 3  # minimum words of a sentence: excludes "Steps to reproduce" and "Thanks!"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`'\"(\[])|\n+")
_MARKS = re.compile(r"^[\s>#*+\-|]+(?:\[[ xX]?\]\s*)?|[\s*|]+$")
_WORDS = re.compile(r"[A-Za-z_]\w{2,}")
_LINK = re.compile(r"!?\[([^\]\n]{0,200})\]\([^)\n]{0,500}\)|https?://\S+")
_ERROR = re.compile(r"^[\w.]{0,100}?\w*(?:Error|Exception|Warning)\b[^\n]{3,300}", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Intent:
    """One search of a plan. Intents with the same `query` count as equal."""

    text: str
    query: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class IntentPlan:
    """Intents in display order. No two have the same query."""

    intents: tuple[Intent, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """Return the queries: they identify and order plans."""
        return tuple(intent.query for intent in self.intents)


def plan_of(intents: Iterable[Intent]) -> IntentPlan:
    """Return the plan of these intents. Each query is kept once, at its first position."""
    found: dict[str, Intent] = {}
    for intent in intents:
        found.setdefault(intent.query, intent)
    return IntentPlan(tuple(found.values()))


def intent_of(words: str, origin: Origin) -> Intent:
    """Return an intent to find these words, cut to the length of a sentence."""
    words = _shortened(" ".join(words.split()))
    return Intent(_WORDING[origin].format(words), words, origin)


_WORDING: dict[Origin, str] = {
    "title": "Find the code behind: {}",
    "sentence": "Find what this says: {}",
    "error": "Find what raises: {}",
    "frame": "Look where the error passed: {}",
    "name": "Look at {}",
    "neighbour": "Look around {}",
    "mutation": "Find {}",
    "model": "{}",
}


def intents_in(problem: Problem) -> tuple[Intent, ...]:
    """Return the intents of an issue: title, errors, frames, names, sentences; each query once."""
    return plan_of(_intents(problem)).intents


def _intents(problem: Problem) -> Iterator[Intent]:
    yield intent_of(problem.title, "title")
    prose, code = text_parts(problem.body)
    for found in list(_ERROR.findall(f"{prose}\n{code}"))[-MAX_ERRORS:]:
        yield intent_of(found, "error")
    mentions = read_mentions(problem)
    for frame in sorted(mentions.frames, key=lambda frame: frame.rank)[:MAX_FRAMES]:
        yield intent_of(_frame_words(frame), "frame")
    names = [m.name for m in mentions.names if m.place is not MentionPlace.CODE]
    yield from (intent_of(name, "name") for name in names[:MAX_NAMES])
    yield from (intent_of(text, "sentence") for text in sentences(prose)[:MAX_SENTENCES])


def _frame_words(frame: Frame) -> str:
    name = frame.path.replace("\\", "/").rpartition("/")[2]
    return f"{frame.function} in {name}" if frame.function else name


def sentences(prose: str) -> list[str]:
    """Return the distinct sentences of a text in order, without Markdown marks and links."""
    parts = _SENTENCE_END.split(_LINK.sub(r"\1", prose))
    cleaned = (_MARKS.sub("", part) for part in parts)
    return list(dict.fromkeys(part for part in cleaned if _says_something(part)))


def _says_something(text: str) -> bool:
    return len(_WORDS.findall(text)) >= _MIN_WORDS


def _shortened(text: str) -> str:
    if len(text) <= MAX_INTENT_CHARS:
        return text
    return text[:MAX_INTENT_CHARS].rpartition(" ")[0] or text[:MAX_INTENT_CHARS]


@dataclass(slots=True)
class SeveralQueries:
    """Scores texts over the candidate files of the problem `about`. Not thread-safe.

    History and neighbours are not used: they describe what an issue changes, and the intents of a
    plan are parts of one issue.
    """

    about: Problem
    snapshot: Snapshot
    index: Index
    sources: tuple[EvidenceSource, ...]
    options: RetrievalOptions
    cancel: threading.Event = field(default_factory=threading.Event)
    _terms: Terms = field(default_factory=Terms)
    _corpus: Corpus | None = None
    _known: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, dtype=np.uint64))

    @property
    def corpus(self) -> Corpus:
        """Return the loaded corpus. Its pieces and their numbers never change."""
        return self._loaded(self._known)

    def prepare(self, text: str) -> None:
        """Load the terms of a text. Later queries may use any of these terms."""
        self._loaded(np.array(sorted(self._hashes(text)), dtype=np.uint64))

    def signals(self, problems: Sequence[Problem]) -> list[Signals]:
        """Return the signals of each problem over the same pieces. Raises Cancelled."""
        queries = [make_query(problem, self._terms) for problem in problems]
        wanted = [query.hashes for query in queries]
        corpus = self._loaded(np.unique(np.concatenate(wanted)) if wanted else self._known)
        found = []
        for problem, query in zip(problems, queries, strict=True):
            own = replace(self._source(corpus), corpus=narrowed(corpus, self._known, query))
            mentions = read_mentions(problem)
            found.append(signals_over(problem, mentions, own, query, self._terms, neighbours=False))
        return found

    def _hashes(self, text: str) -> set[int]:
        return set(make_query(Problem(text, ""), self._terms).hashes.tolist())

    def _source(self, corpus: Corpus) -> RankingInput:
        return RankingInput(self.snapshot, corpus, self.index.encoder, None, self.sources)

    def _loaded(self, wanted: NDArray[np.uint64]) -> Corpus:
        if self._corpus is None or not np.isin(wanted, self._known).all():
            self._known = np.union1d(self._known, wanted)
            files = candidate_files(self.snapshot, self.about, read_mentions(self.about))
            self._corpus = self.index.load(self.snapshot, files, self._known, self.cancel)
        return self._corpus


def narrowed(corpus: Corpus, known: NDArray[np.uint64], query: LexicalQuery) -> Corpus:
    """Return the corpus with only the postings of the query's terms, numbered as in the query.

    `known` uint64 (k,), ascending: the terms that the corpus was loaded with. They include the
    query's terms.
    """
    numbers = np.full(known.size, -1, dtype=np.int64)
    numbers[np.searchsorted(known, query.hashes)] = np.arange(query.hashes.size)
    terms = numbers[corpus.term]
    kept = terms >= 0
    return replace(
        corpus,
        piece=corpus.piece[kept],
        term=terms[kept],
        counts=corpus.counts[kept],
        name_counts=corpus.name_counts[kept],
    )


HITS = 6
"""Number of best pieces that count as the result of an intent.

A longer list is too vague to use.
"""

_BACKGROUND = 4  # in multiples of HITS: ranks that the first hits are compared with
TOKENS_A_TERM = 2.0
"""Estimated prompt tokens for each term that the index counts in a piece (median of ten
projects).
"""


@dataclass(frozen=True, slots=True)
class Grounded:
    """The result of an intent: its best HITS pieces of the corpus by number.

    `strength` in [0, 1]: the share of the intent's words that its best hit contains, weighted by
    rarity. `specificity` in [0, 1]: how much higher the first HITS score than the next ones.
    """

    intent: Intent
    hits: tuple[int, ...]
    strength: float
    specificity: float

    @property
    def quality(self) -> float:
        """Return how well the intent matches code, in [0, 1]. It is the weight of its ranking."""
        return self.strength * (1.0 + self.specificity) / 2.0


@dataclass(slots=True)
class Grounder:
    """Grounds intents and ranks each distinct query once, up to `limit` queries."""

    queries: SeveralQueries
    limit: int
    _known: dict[str, Grounded] = field(default_factory=dict)

    @property
    def spent(self) -> int:
        """Return the number of queries ranked so far."""
        return len(self._known)

    @property
    def corpus(self) -> Corpus:
        """Return the corpus whose piece numbers the results use."""
        return self.queries.corpus

    def ground(self, intents: Sequence[Intent]) -> tuple[Grounded, ...] | None:
        """Return the result of each intent, or None if that would exceed the limit."""
        fresh = {i.query: i for i in intents if i.query not in self._known}
        if self.spent + len(fresh) > self.limit:
            return None
        signals = self.queries.signals([Problem(query, "") for query in fresh])
        for intent, own in zip(fresh.values(), signals, strict=True):
            self._known[intent.query] = grounded(intent, own)
        return tuple(self._known[intent.query] for intent in intents)


def grounded(intent: Intent, signals: Signals) -> Grounded:
    """Compute the result of an intent from the signals of its query."""
    scores = signals.pieces
    best = _best(scores, HITS * (1 + _BACKGROUND))
    if not best.size:
        return Grounded(intent, (), 0.0, 0.0)
    coverage = signals.piece_columns["coverage"][best[:HITS]]
    hits = tuple(best[:HITS].tolist())
    return Grounded(intent, hits, float(coverage.max()), _standing_out(scores[best]))


def _best(scores: NDArray[np.float64], limit: int) -> NDArray[np.int64]:
    """Return positions of the `limit` highest scores above 0; ties by position."""
    positions = np.flatnonzero(scores > 0.0)
    if positions.size > limit:
        least = np.partition(scores[positions], -limit)[-limit]
        positions = positions[scores[positions] >= least]
    order = np.argsort(-scores[positions], kind="stable")
    return positions[order][:limit].astype(np.int64)


def _standing_out(scores: NDArray[np.float64]) -> float:
    """Return 1 - mean score of the following ranks / mean score of the hits."""
    after = scores[HITS : HITS * (1 + _BACKGROUND)]
    first = float(scores[:HITS].mean())
    return 1.0 - float(after.mean()) / first if after.size and first > 0.0 else 1.0


def numbers_of(ranking: Ranking, corpus: Corpus) -> dict[int, int]:
    """Return the rank (from 0) by piece number, for ranked pieces of the corpus."""
    places = {
        (c.path, c.start, c.end, c.symbol): rank
        for rank, c in enumerate(scored.chunk for scored in ranking.chunks)
    }
    paths = {place[0] for place in places}
    found: dict[int, int] = {}
    for file, source in enumerate(corpus.files):
        for number, piece in corpus.pieces_of(file) if source.path in paths else ():
            rank = places.get((source.path, piece.start, piece.end, piece.symbol))
            if rank is not None:
                found[number] = rank
    return found


def tokens_of(corpus: Corpus, pieces: Sequence[int] | frozenset[int]) -> float:
    """Estimate the prompt tokens of the pieces."""
    return float(corpus.text_lengths[sorted(pieces)].sum()) * TOKENS_A_TERM


def mentioned(signals: Signals) -> Mapping[int, float]:
    """Return the sum of evidence for each piece that the issue names."""
    pieces = signals.evidence.pieces
    return {n: sum(sorted(r.value for r in pieces[n].values())) for n in sorted(pieces)}


GROUNDING, MENTIONS, SUPPORT, PRICE = 1.0, 0.5, 1.0, 0.3
"""Weights of the parts of a plan's value.

They were set by judgement, so that no part decides alone; no parameter sweep has been run.
"""

_RANK_OFFSET = 10
"""Offset of the support formula. It makes the first ranks nearly equal."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The data of one issue from which plans are scored.

    `ranks`: rank in the issue's ranking, from 0, by piece. `mentioned`: evidence by piece.
    `tokens`: size of the context to fill.
    """

    corpus: Corpus
    ranks: Mapping[int, int]
    mentioned: Mapping[int, float]
    tokens: int

    def value(self, plan: Sequence[Grounded]) -> float:
        """Return the value of a plan. It depends on the order of the intents.

            GROUNDING * (1 - product over intents of (1 - quality * novelty / 2))
            + MENTIONS * share of the names in the issue that the hits cover
            + SUPPORT  * how high the hits rank in the issue's own ranking
            - PRICE    * tokens of all hits / available tokens

        Novelty is the share of an intent's hits that no earlier intent found. In the product (a
        noisy-or in which each intent counts at most half) each further intent adds less, until
        its price exceeds its gain. All parts except the price are in [0, 1].
        """
        hits = frozenset(piece for intent in plan for piece in intent.hits)
        gains = GROUNDING * _grounding(plan) + MENTIONS * _share(self.mentioned, hits)
        price = tokens_of(self.corpus, hits) / max(1, self.tokens)
        return gains + SUPPORT * self._support(hits) - PRICE * price

    def _support(self, hits: frozenset[int]) -> float:
        """Return the mean over hits of offset / (offset + rank); 0 for an unranked hit."""
        ranks = sorted(self.ranks[piece] for piece in hits if piece in self.ranks)
        return sum(_RANK_OFFSET / (_RANK_OFFSET + rank) for rank in ranks) / max(1, len(hits))


def _grounding(plan: Sequence[Grounded]) -> float:
    seen: set[int] = set()
    doubt = 1.0
    for intent in plan:
        fresh = sum(piece not in seen for piece in intent.hits)
        novelty = fresh / len(intent.hits) if intent.hits else 0.0
        doubt *= 1.0 - intent.quality * novelty / 2.0
        seen.update(intent.hits)
    return 1.0 - doubt


def _share(weights: Mapping[int, float], hits: frozenset[int]) -> float:
    whole = sum(weights.values())
    found = sum(weights[piece] for piece in sorted(hits) if piece in weights)
    return found / whole if whole > 0.0 else 0.0


MAX_INTENTS = 8
"""Maximum intents of a plan.

A fix rarely needs more locations, and each intent weakens the others.
"""

_NAMES = 2  # symbol names that a rephrased intent adds
_ADDED = 2  # further intents from each source that one expansion tries


@dataclass(frozen=True, slots=True)
class Mutator:
    """Changes plans over one corpus. `pool`: the issue's intents that may be added to a plan."""

    corpus: Corpus
    pool: tuple[Intent, ...]

    def mutated(self, plan: Sequence[Grounded]) -> Iterator[IntentPlan]:
        """Yield neighbours of a plan, possibly repeated, but never the plan itself."""
        yield from _dropped(plan)
        if len(plan) < MAX_INTENTS:
            yield from self._added(plan)
        yield from self._rephrased(plan)

    def _added(self, plan: Sequence[Grounded]) -> Iterator[IntentPlan]:
        """Yield plans with one more intent of the issue, or one for code near the hits."""
        mine = _intents_of(plan)
        there = {intent.query for intent in mine}
        unused = [intent for intent in self.pool if intent.query not in there]
        around = [intent for intent in self._around(plan) if intent.query not in there]
        for intent in (*unused[:_ADDED], *around[:_ADDED]):
            yield plan_of((*mine, intent))

    def _around(self, plan: Sequence[Grounded]) -> list[Intent]:
        """Return intents for callers, callees and relatives of the best hits, most shared first."""
        hits = {grounded.hits[0]: 1.0 for grounded in plan if grounded.hits}
        if not hits:
            return []
        found = neighbours(self.corpus, hits, {}).pieces
        worth = {n: sum(sorted(r.value for r in found[n].values())) for n in found}
        shown = {piece for grounded in plan for piece in grounded.hits}
        best = sorted((n for n in worth if n not in shown), key=lambda n: (-worth[n], n))
        return [intent_of(self._name(n), "neighbour") for n in best if self.corpus.symbols[n]]

    def _rephrased(self, plan: Sequence[Grounded]) -> Iterator[IntentPlan]:
        """Yield plans in which one intent also has the names of its first hits."""
        intents = _intents_of(plan)
        for at, grounded in enumerate(plan):
            names = [self._name(n) for n in grounded.hits if self.corpus.symbols[n]][:_NAMES]
            query = " ".join((grounded.intent.query, *names))
            if names and grounded.intent.origin != "mutation":
                yield _with(intents, at, intent_of(query, "mutation"))

    def _name(self, piece: int) -> str:
        return f"{self.corpus.symbols[piece]} in {self.corpus.path_of(piece).rpartition('/')[2]}"


def _intents_of(plan: Sequence[Grounded]) -> tuple[Intent, ...]:
    return tuple(grounded.intent for grounded in plan)


def _with(intents: Sequence[Intent], at: int, *others: Intent) -> IntentPlan:
    """Return the plan with one intent replaced by others."""
    return plan_of((*intents[:at], *others, *intents[at + 1 :]))


def _dropped(plan: Sequence[Grounded]) -> Iterator[IntentPlan]:
    intents = _intents_of(plan)
    if len(intents) > 1:
        yield from (_with(intents, at) for at in range(len(intents)))


@dataclass(frozen=True, slots=True)
class ScoredPlan:
    """A plan, the results of its intents, and its value."""

    plan: IntentPlan
    grounded: tuple[Grounded, ...] = ()
    value: float = 0.0

    @property
    def order(self) -> tuple[float, tuple[str, ...]]:
        """Return a sort key with a total order: highest value first, then the queries."""
        return (-self.value, self.plan.key)


@dataclass(slots=True)
class PlanSearch:
    """One search. `expansions`: maximum number of plans whose neighbours are tried.

    Without `width` the search is best-first. With it, it is a beam search: each round tries the
    neighbours of the best `width` plans, and forgets all others.
    """

    scene: Scene
    grounder: Grounder
    mutator: Mutator
    expansions: int = 6
    width: int | None = None
    _seen: set[tuple[str, ...]] = field(default_factory=set)
    _judged: list[ScoredPlan] = field(default_factory=list)
    _frontier: list[tuple[tuple[float, tuple[str, ...]], ScoredPlan]] = field(default_factory=list)

    def best(self, *starts: IntentPlan) -> ScoredPlan:
        """Return the plan with the highest value that has been found.

        The search tries `starts` too. A later call continues it with as many expansions again, and
        never returns a plan of a lower value.
        """
        self._offer(starts)
        left = self.expansions
        while left and self._frontier:
            count = min(left, self.width or 1, len(self._frontier))
            chosen = [heapq.heappop(self._frontier)[1] for _ in range(count)]
            if self.width is not None:
                self._frontier.clear()
            for judged in chosen:
                self._offer(self.mutator.mutated(judged.grounded))
            left -= count
        return min(self._judged, key=lambda one: one.order, default=ScoredPlan(IntentPlan(())))

    def _offer(self, plans: Iterable[IntentPlan]) -> None:
        """Score new plans within the budget."""
        for plan in plans:
            if plan.key in self._seen or not plan.intents:
                continue
            self._seen.add(plan.key)
            found = self.grounder.ground(plan.intents)
            if found is not None:
                judged = ScoredPlan(plan, found, self.scene.value(found))
                self._judged.append(judged)
                heapq.heappush(self._frontier, (judged.order, judged))
