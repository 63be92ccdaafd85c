"""Synonyms from the project's own words: what occurs where a term of the query occurs.

Normalised pointwise mutual information (Bouma, "Normalized (Pointwise) Mutual Information in
Collocation Extraction", 2009) over the passages of a corpus: 1 for terms that only occur together,
0 for independent ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from agent.corpora.formats import without_labels
from agent.retrieval.identifiers import WORD, Terms

if TYPE_CHECKING:
    from agent.corpora.shelf import Shelf

A_TERM = 2  # synonyms of one term: the third is seldom one
LEAST_TOGETHER = 3  # passages: twice is chance
LEAST_NPMI = 0.35
MOST_COMMON = 0.05  # of the passages: a term that is everywhere has no company of its own
WEIGHT = 0.3  # of a synonym beside the term that it stands for


def synonyms(shelf: Shelf, weights: Mapping[int, float]) -> dict[int, float]:
    """Further terms with their weights, by hash; none of them in `weights`. Deterministic."""
    found: dict[int, float] = {}
    size = len(shelf.passages)
    if not size or not shelf.owner.size:
        return found
    spread = np.diff(shelf.starts)
    for term in sorted(weights):
        part = shelf.postings(term)
        if part is None or not LEAST_TOGETHER <= part.stop - part.start <= MOST_COMMON * size + 3:
            continue
        holds = np.zeros(size, dtype=np.float64)
        holds[shelf.owner[part]] = 1.0
        together = np.add.reduceat(holds[shelf.owner], shelf.starts[:-1])
        good = np.flatnonzero((together >= LEAST_TOGETHER) & (spread <= MOST_COMMON * size + 3))
        own = float(part.stop - part.start)
        joint = together[good] / size
        pmi = np.log(joint / (own / size * spread[good] / size))
        npmi = np.where(joint < 1.0, pmi / -np.log(np.minimum(joint, 1.0 - 1e-9)), 0.0)
        taken = 0
        for at in np.lexsort((shelf.hashes[good], -npmi)).tolist():
            other = int(shelf.hashes[good[at]])
            if npmi[at] < LEAST_NPMI or taken == A_TERM:
                break
            if other in weights:
                continue
            taken += 1
            weight = WEIGHT * float(npmi[at]) * weights[term]
            found[other] = max(found.get(other, 0.0), weight)
    return found


def word_for(shelf: Shelf, term: int) -> str:
    """A word of the passages that has this term, for people; "" where none is found."""
    part = shelf.postings(term)
    if part is None:
        return ""
    terms = Terms()
    passage = shelf.passages[int(shelf.owner[part.start])]
    for word in WORD.findall(f"{passage.symbol} {without_labels(passage.text)}"):
        if term in terms.hashes_of_word(word):
            return str(word).lower()
    return ""
