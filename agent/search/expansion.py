"""Words that are added to a query or a problem: those of the project, or a model's keywords."""

from __future__ import annotations

import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from agent.errors import BudgetExceeded, ProviderError
from agent.retrieval.index import Terms
from agent.search.passages import CorpusSource, CorpusUnavailable
from agent.search.project import JsonLines
from agent.search.word_index import WordIndexCache, synonyms, word_for
from agent.shared.workers import in_thread
from agent.types.events import Notice

if TYPE_CHECKING:
    from agent.types import Problem, Prompt, Ranking
    from agent.types.protocols import ChatModel, Reporter, Retriever, Snapshot

MAX_WORDS = 12
_PROMPT_VERSION = 2  # increase this when prompts/keywords.md.j2 changes
_MAX_OUTPUT_TOKENS = 300
_WORD = re.compile(r"[^\W\d]\w{2,60}")
_NOT_KEYWORDS = frozenset({"keywords", "json", "here", "are", "the"})

FindWords = Callable[["Problem", "Snapshot"], Awaitable[Sequence[str]]]


class KeywordLine(BaseModel):
    """A model's keywords for one query. `key` identifies the query, the model and the prompt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    key: str
    keywords: tuple[str, ...]


@dataclass(slots=True)
class KeywordWriter:
    """Asks `chat` for keywords unless the file `path` contains them."""

    path: Path
    chat: ChatModel
    make_prompt: Callable[[str], Prompt]
    _lines: JsonLines[KeywordLine] = field(init=False)
    _saved: dict[str, tuple[str, ...]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Prepare the file without reading it."""
        self._lines = JsonLines(self.path, KeywordLine)

    async def keywords(self, query: str) -> tuple[str, ...]:
        """Return at most twelve words. Raises ProviderError, BudgetExceeded, OSError."""
        for line in self._lines.news():
            self._saved[line.key] = line.keywords
        text = f"{_PROMPT_VERSION}\0{self.chat.model}\0{query}"
        key = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        if key not in self._saved:
            prompt = self.make_prompt(query)
            reply = await self.chat.complete(prompt, max_output_tokens=_MAX_OUTPUT_TOKENS)
            self._saved[key] = parse_keywords(reply.text)
            self._lines.append(KeywordLine(key=key, keywords=self._saved[key]))
        return self._saved[key]


def parse_keywords(reply: str) -> tuple[str, ...]:
    """Return the distinct words of a reply in order. The reply may have any shape."""
    words = (word for word in _WORD.findall(reply[:4_000]) if word.lower() not in _NOT_KEYWORDS)
    return tuple(dict.fromkeys(words))[:MAX_WORDS]


@dataclass(frozen=True, slots=True)
class ExpandingRetriever:
    """A `Retriever` that adds words to one problem; other problems go on as they are.

    The words only rank: no prompt has them. If they cannot be found, ranking goes on without.
    """

    inner: Retriever
    problem: Problem | None  # None: every problem
    find_words: FindWords
    reporter: Reporter

    async def rank(self, problem: Problem, snapshot: Snapshot) -> Ranking:
        """Rank the problem with the added words, which a note of the ranking lists."""
        words: Sequence[str] = ()
        if self.problem is None or problem == self.problem:
            try:
                words = await self.find_words(problem, snapshot)
            except (ProviderError, BudgetExceeded, OSError, CorpusUnavailable) as error:
                self.reporter(Notice(f"ranked without further words: {error}", "warning"))
        if not words:
            return await self.inner.rank(problem, snapshot)
        added = " ".join(words)
        wider = replace(problem, body=f"{problem.body}\n\n{added}".strip())
        ranking = await self.inner.rank(wider, snapshot)
        return replace(ranking, notes=(*ranking.notes, f"ranked with the words {added} too"))


@dataclass(frozen=True, slots=True)
class ProjectWordsFinder:
    """Finds words that occur together with those of a problem's title in what symbols do."""

    source: CorpusSource
    word_indexes: WordIndexCache

    async def __call__(self, problem: Problem, snapshot: Snapshot) -> Sequence[str]:
        """Return at most MAX_WORDS, the strongest first. Raises CorpusUnavailable."""

        def find(cancel: threading.Event) -> list[str]:
            word_index = self.word_indexes.of(self.source.passages(snapshot, cancel))
            terms = synonyms(word_index, dict.fromkeys(Terms().count_hashes(problem.title), 1.0))
            best = sorted(terms, key=lambda term: (-terms[term], term))
            words = (word_for(word_index, term) for term in best)
            return list(dict.fromkeys(word for word in words if word))[:MAX_WORDS]

        return await in_thread(find)
