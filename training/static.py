"""Trains the static encoder: `python -m training.static --pairs DIR --output static.npz`.

Training is contrastive over batches of one project: the function that a commit changed against the
other functions in the batch (InfoNCE: van den Oord et al., "Representation Learning with
Contrastive Predictive Coding", 2018). The encoder thus learns to tell apart functions of one code
base. The vectors start from a sentence encoder's, reduced by principal components, if the extra
`local` is installed, else from noise.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent.retrieval.embedding import NAME_BOOST
from agent.retrieval.index.words import WORD, Terms, term_hash
from agent.retrieval.ranking.lexical import TITLE_WEIGHT
from training.minilm import minilm_vectors
from training.pairs import read_pairs
from training.projects import RANKER_PROJECTS
from training.writing import write_static

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from training.pairs import FunctionText, Pair

DEVELOPMENT = ("localstack/localstack", "fastapi/fastapi", "deepfakes/faceswap")
"""Projects for model selection; like all of `RANKER_PROJECTS`, they are kept out of training."""

DIMENSION = 128
MAX_TERMS = 50_000
MIN_DOCUMENTS = 6  # functions or messages that a term must occur in
MIN_PROJECTS = 2
NEGATIVES = 2  # other functions of the same files, for each pair
BATCH = 96  # pairs
TEMPERATURE = 0.05
VECTOR_RATE = 0.001  # with larger steps it memorises the training projects
WEIGHT_RATE = 0.02
DROPPED = 0.15  # share of the terms of each text that is dropped at every step
EPOCHS = 2
TEST_SHARE = 0.35  # share of pairs that show the lines added to tests
HIDE_SHARE = 0.5  # share of messages that lose the names of changed functions


@dataclass(frozen=True, slots=True)
class TermBag:
    """Terms of a text by their numbers, int32 (n,), and their weights float32 (n,)."""

    terms: NDArray[np.int32]
    weights: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Example:
    """A commit. `masked`: the message without the names of changed functions."""

    plain: TermBag
    masked: TermBag
    test: TermBag
    positives: tuple[TermBag, ...]
    negatives: tuple[TermBag, ...]


class TrainedTerms:
    """Numbers for the terms that occur often enough, by falling frequency."""

    def __init__(self, documents: Counter[str], projects: Mapping[str, int]) -> None:
        often = [
            t for t, n in documents.items() if n >= MIN_DOCUMENTS and projects[t] >= MIN_PROJECTS
        ]
        self.terms = sorted(often, key=lambda term: (-documents[term], term))[:MAX_TERMS]
        self.numbers = {term: number for number, term in enumerate(self.terms)}

    def bag(self, weights: Mapping[str, float]) -> TermBag:
        """Return the bag of the known terms, by number."""
        known = sorted((self.numbers[t], w) for t, w in weights.items() if t in self.numbers)
        return TermBag(
            np.array([number for number, _ in known], np.int32),
            np.array([weight for _, weight in known], np.float32),
        )


# --------------------------------------------------------------------------------------------- data


@dataclass(frozen=True, slots=True)
class _Counts:
    title: Counter[str]
    body: Counter[str]
    hidden: frozenset[str]
    test: Counter[str]
    positives: tuple[dict[str, float], ...]
    negatives: tuple[dict[str, float], ...]


def read_counts(pairs: Iterator[Pair], terms: Terms) -> dict[str, list[_Counts]]:
    """Return the term counts of every pair, by project."""
    found: dict[str, list[_Counts]] = {}
    for pair in pairs:
        names = {term for f in pair.functions for term in _name_terms(f, terms)}
        found.setdefault(pair.repo, []).append(
            _Counts(
                terms.count(pair.subject),
                terms.count(pair.body[:4000]),
                frozenset(names),
                terms.count(pair.test_added),
                tuple(_document(f, terms) for f in pair.functions[:4]),
                tuple(_document(f, terms) for f in pair.negatives[:NEGATIVES]),
            )
        )
    return found


def _name_terms(function: FunctionText, terms: Terms) -> Iterator[str]:
    """Yield the whole name and none of its parts: `parse_header`, not `parse` and `header`."""
    for word in WORD.findall(function.symbol):
        yield from terms.of_word(word)[:1]


def _document(function: FunctionText, terms: Terms) -> dict[str, float]:
    weights = {t: float(np.log1p(n)) for t, n in terms.count(function.text).items()}
    for term, count in terms.count(function.symbol).items():
        weights[term] = weights.get(term, 0.0) + NAME_BOOST * count
    return weights


def _query(title: Counter[str], rest: Counter[str], without: frozenset[str]) -> dict[str, float]:
    counts = title + rest
    return {
        t: float(np.log1p(n)) * (TITLE_WEIGHT if t in title else 1.0)
        for t, n in counts.items()
        if t not in without
    }


def make_examples(
    counts: Mapping[str, Sequence[_Counts]], vocabulary: TrainedTerms
) -> dict[str, list[Example]]:
    """Convert counts to term numbers and weights."""
    return {
        repo: [
            Example(
                vocabulary.bag(_query(c.title, c.body, frozenset())),
                vocabulary.bag(_query(c.title, c.body, c.hidden)),
                vocabulary.bag(_query(c.title, c.body + c.test, c.hidden)),
                tuple(vocabulary.bag(d) for d in c.positives),
                tuple(vocabulary.bag(d) for d in c.negatives),
            )
            for c in many
        ]
        for repo, many in sorted(counts.items())
    }


def count_vocabulary(counts: Mapping[str, Sequence[_Counts]]) -> TrainedTerms:
    """Return the terms that occur in enough texts of enough projects."""
    documents: Counter[str] = Counter()
    projects: Counter[str] = Counter()
    for _, many in sorted(counts.items()):
        seen: set[str] = set()
        for c in many:
            texts: list[Mapping[str, float]] = [{**c.title, **c.body}, *c.positives, *c.negatives]
            for document in texts:
                documents.update(document.keys())
                seen |= document.keys()
        projects.update(seen)
    return TrainedTerms(documents, projects)


# -------------------------------------------------------------------------------------------- model


def initial_vectors(terms: Sequence[str], seed: int) -> NDArray[np.float32]:
    """Return (len(terms), DIMENSION): a sentence encoder's vectors of the words, or noise."""
    noise = np.random.default_rng(seed).normal(0.0, 0.1, (len(terms), DIMENSION)).astype(np.float32)
    rows = minilm_vectors([term.replace("_", " ") for term in terms], batch=64, max_tokens=16)
    if rows is None:
        _say("starting from noise: the extra `train` is not installed as a whole")
        return noise
    vectors = rows.astype(np.float64)
    vectors -= vectors.mean(axis=0)
    _, _, axes = np.linalg.svd(vectors.T @ vectors)
    reduced = (vectors @ axes[:DIMENSION].T).astype(np.float32)
    return np.asarray(0.5 * reduced + 0.2 * noise, dtype=np.float32)


def train(
    examples: Mapping[str, Sequence[Example]],
    vocabulary: TrainedTerms,
    start: NDArray[np.float32],
    seed: int,
    epochs: int,
    rarity: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Return vectors (v, d), query weights (v,) and document weights (v,), all float32."""
    import torch

    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    table = torch.nn.Parameter(torch.from_numpy(start.copy()))
    first = torch.from_numpy(np.log(np.expm1(rarity / rarity.mean() + 1e-3)))
    roles = torch.nn.Parameter(torch.stack([first, first]))
    optimiser = torch.optim.Adam(
        [{"params": [table], "lr": VECTOR_RATE}, {"params": [roles], "lr": WEIGHT_RATE}]
    )
    total = epochs * sum(len(many) // BATCH + 1 for many in examples.values())
    step = 0
    training = {repo: many for repo, many in examples.items() if repo not in RANKER_PROJECTS}
    _say(f"before: {evaluate(examples, start, np.log1p(np.exp(np.stack([first, first]))))}")
    for epoch in range(epochs):
        began, losses = time.monotonic(), []
        for batch in _batches(training, rng):
            for group, rate in zip(optimiser.param_groups, (VECTOR_RATE, WEIGHT_RATE), strict=True):
                group["lr"] = rate * max(0.02, 1 - step / total)
            loss = _loss(batch, table, roles, rng)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
            step += 1
        weights = torch.nn.functional.softplus(roles).detach().numpy()
        found = evaluate(examples, table.detach().numpy(), weights)
        seconds = time.monotonic() - began
        _say(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}, {seconds:.0f} s, {found}")
    weights = torch.nn.functional.softplus(roles).detach().numpy()
    return table.detach().numpy(), weights[0], weights[1]


def _batches(
    training: Mapping[str, Sequence[Example]], rng: np.random.Generator
) -> Iterator[list[Example]]:
    batches: list[list[Example]] = []
    for _, many in sorted(training.items()):
        order = rng.permutation(len(many))
        for at in range(0, len(many), BATCH):
            batch = [many[int(number)] for number in order[at : at + BATCH]]
            if len(batch) >= 8:
                batches.append(batch)
    for number in rng.permutation(len(batches)):
        yield batches[int(number)]


def _loss(batch: Sequence[Example], table: Any, roles: Any, rng: np.random.Generator) -> Any:
    import torch

    queries, documents = [], []
    for example in batch:
        dice = rng.random(2)
        queries.append(
            example.test
            if dice[0] < TEST_SHARE
            else example.masked
            if dice[1] < HIDE_SHARE and example.masked.terms.size
            else example.plain
        )
        documents.append(example.positives[int(rng.integers(len(example.positives)))])
    extra = [bag for example in batch for bag in example.negatives]
    q = _embed(queries, table, roles[0], DROPPED)
    d = _embed([*documents, *extra], table, roles[1], DROPPED)
    scores = q @ d.T / TEMPERATURE
    # A function that two commits of a batch changed is not a negative.
    keys = [(b.terms.tobytes(), b.weights.tobytes()) for b in [*documents, *extra]]
    same = np.array(
        [[keys[i] == keys[j] and i != j for j in range(len(keys))] for i in range(len(batch))]
    )
    scores = scores.masked_fill(torch.from_numpy(same), -1e4)
    return torch.nn.functional.cross_entropy(scores, torch.arange(len(batch)))


def _embed(bags: Sequence[TermBag], table: Any, role: Any, drop: float = 0.0) -> Any:
    import torch

    terms = torch.from_numpy(np.concatenate([bag.terms for bag in bags]).astype(np.int64))
    weights = torch.from_numpy(np.concatenate([bag.weights for bag in bags]))
    offsets = np.cumsum([0, *(bag.terms.size for bag in bags[:-1])])
    if drop:
        weights = weights * (torch.rand(weights.shape) >= drop)
    weighted = weights * torch.nn.functional.softplus(role[terms])
    sums = torch.nn.functional.embedding_bag(
        terms,
        table,
        torch.from_numpy(offsets.astype(np.int64)),
        mode="sum",
        per_sample_weights=weighted,
    )
    return torch.nn.functional.normalize(sums, dim=1, eps=1e-6)


# --------------------------------------------------------------------------------------- evaluation


def evaluate(
    examples: Mapping[str, Sequence[Example]],
    table: NDArray[np.float32],
    weights: NDArray[np.float32],
) -> str:
    """Return the share of queries of development projects whose function is among the first 10.

    All functions of the project's examples are ranked.
    """
    said = []
    for repo in DEVELOPMENT:
        many = examples.get(repo, [])[:400]
        if not many:
            continue
        documents = [bag for e in many for bag in (*e.positives, *e.negatives)]
        own = np.repeat(np.arange(len(many)), [len(e.positives) + len(e.negatives) for e in many])
        positive = np.concatenate(
            [[True] * len(e.positives) + [False] * len(e.negatives) for e in many]
        )
        d = _vectors(documents, table, weights[1])
        q = _vectors([e.masked for e in many], table, weights[0])
        scores = q @ d.T
        best = np.array([scores[i][(own == i) & positive].max() for i in range(len(many))])
        rank = (scores > best[:, None]).sum(axis=1)
        said.append(f"{repo.split('/')[1]} @10 {np.mean(rank < 10):.3f} of {len(documents)}")
    return ", ".join(said)


def _vectors(
    bags: Sequence[TermBag], table: NDArray[np.float32], role: NDArray[np.float32]
) -> NDArray[np.float32]:
    rows = np.stack([(bag.weights * role[bag.terms]) @ table[bag.terms] for bag in bags])
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9))


# ------------------------------------------------------------------------------------------ command


def main() -> None:
    """Parse the command line, train, evaluate and write the encoder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=Path, required=True, help="what training.mining wrote")
    parser.add_argument("--output", type=Path, required=True, help="the encoder's file")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    options = parser.parse_args()
    counts = read_counts(read_pairs(options.pairs), Terms())
    _say(", ".join(f"{repo} {len(many):,}" for repo, many in counts.items()))
    vocabulary = count_vocabulary(counts)
    examples = make_examples(counts, vocabulary)
    rarity = _rarity(examples, len(vocabulary.terms))
    _say(f"{len(vocabulary.terms):,} terms")
    start = initial_vectors(vocabulary.terms, options.seed)
    table, queries, documents = train(
        examples, vocabulary, start, options.seed, options.epochs, rarity
    )
    hashes = np.array([term_hash(term) for term in vocabulary.terms], np.uint64)
    order = np.argsort(hashes)
    data = write_static(hashes[order], table[order], queries[order], documents[order])
    options.output.write_bytes(data)
    _say(f"{options.output}: {len(data):,} bytes")


def _rarity(examples: Mapping[str, Sequence[Example]], size: int) -> NDArray[np.float32]:
    """Return the inverse document frequency of each term, (size,)."""
    bags = [bag for many in examples.values() for e in many for bag in (e.plain, *e.positives)]
    found = np.bincount(np.concatenate([bag.terms for bag in bags]), minlength=size)
    return np.log1p((len(bags) - found + 0.5) / (found + 0.5)).astype(np.float32)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
