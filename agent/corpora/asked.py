"""Queries on their way through the pool, and their vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.corpora.formats import Query, read_query
from agent.corpora.matching import has_words
from agent.corpora.merging import Hit
from agent.corpora.passages import Finding, Label
from agent.problem import problem_from_text
from agent.secrets.masking import mask_secrets

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agent.types import Problem


@dataclass(slots=True, eq=False)
class Asked:
    """One query on its way."""

    problem: Problem
    labels: tuple[Label, ...]
    top_k: int
    at_least: float
    query: Query = field(init=False)
    keywords: tuple[str, ...] = ()
    exact: tuple[Finding, ...] = ()
    hits: list[Hit] = field(default_factory=list)
    searched: dict[Label, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.query = read_query(mask_secrets(self.problem.text).text)  # it may be sent

    @property
    def has_words(self) -> bool:
        """Whether there is anything to search for."""
        return has_words(self.query.text)


@dataclass(frozen=True, slots=True)
class QueryVectors:
    """Vectors of the queries, float32 (t, d), by their texts in each corpus's form."""

    forms: Sequence[Mapping[Label, str]]
    places: Mapping[str, int]
    vectors: NDArray[np.float32]
    asked: Sequence[Asked]

    def rows(self, label: Label) -> NDArray[np.float32]:
        """(q, d): all queries in a corpus's form."""
        chosen: NDArray[np.float32] = self.vectors[
            [self.places[form[label]] for form in self.forms]
        ]
        return chosen

    def row(self, asked: Asked, label: Label) -> NDArray[np.float32]:
        """(d,): one of them."""
        number = next(n for n, one in enumerate(self.asked) if one is asked)
        form = self.forms[number]
        row: NDArray[np.float32] = self.vectors[self.places[form.get(label, asked.query.text)]]
        return row


def as_problem(query: str | Problem) -> Problem:
    """A query's text as a problem. Raises ProblemError where it is empty."""
    return problem_from_text(query, "<query>") if isinstance(query, str) else query
