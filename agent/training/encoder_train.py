"""Contrastive training of the encoder: a problem's vector close to the function that it is about.

InfoNCE (van den Oord et al., 2018) over the functions of a batch, which all come from one project:
what must be told apart at query time is told apart here.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from agent.errors import ConfigurationError
from agent.training.encoder_data import Batch, Example, Pool, Trial, Trials, make_batch
from agent.training.encoder_model import Weights, encode_lists, is_trained

if TYPE_CHECKING:
    from numpy.typing import NDArray

RECALL_AT = 10

_FEWEST = 2  # a single pair has nothing to be told apart from

GROUP = 16
"""Texts that are run together: more are no faster on a CPU, and pad more."""


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """How it is trained. The end is after `steps` batches, or after `minutes` when `steps` is 0.

    By steps, the same pairs and seed give the same batches and learning rates; by minutes, both
    depend on the machine's speed.
    """

    seed: int = 7
    steps: int = 0
    minutes: float = 60.0
    batch: int = 48
    # One for every second pair: each costs as much as a positive, and the batch has others.
    negatives: int = 24
    temperature: float = 0.05
    # The published model was made at 2e-5 in many steps; an hour on a CPU is a few hundred.
    rate: float = 5e-5
    decay: float = 0.01
    clip: float = 1.0
    warm_up: float = 0.06  # of the whole
    # The word table and the lowest layers know English and tokens; without them a step is cheaper.
    frozen_layers: int = 2
    query_tokens: int = 96
    issue_tokens: int = 192  # issues are longer than messages, and what the product reads
    document_tokens: int = 128
    issue_every: int = 10  # one batch in so many is of real issues
    threads: int = 2


@dataclass(frozen=True, slots=True)
class Score:
    """On the development issues: mean share of the answers among the first ten, and MRR."""

    recall: float
    reciprocal_rank: float

    @property
    def total(self) -> float:
        """What the best weights are chosen by."""
        return self.recall + self.reciprocal_rank


@dataclass(frozen=True, slots=True)
class Progress:
    """One line of the log. `loss` is the mean since the last one; `score` where it was measured."""

    step: int
    pairs: int
    seconds: float
    loss: float
    score: Score | None


class Tokenizer:
    """Texts to token ids, cut at a length. Wraps the packaged tokenizer."""

    def __init__(self, path: Path) -> None:
        import tokenizers

        self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(path))
        self._tokenizer.no_padding()

    def __call__(self, texts: Sequence[str], most: int) -> list[list[int]]:
        """Ids with `[CLS]` and `[SEP]`, at most so many a text."""
        self._tokenizer.enable_truncation(most)
        return [list(encoding.ids) for encoding in self._tokenizer.encode_batch(list(texts))]


def train(
    weights: Mapping[str, Tensor],
    tokenizer: Tokenizer,
    pairs: Pool,
    issues: Pool,
    options: TrainingOptions,
    *,
    each_step: Callable[[int, int, float, Weights], None],
) -> dict[str, Tensor]:
    """Train a copy of the weights and return it.

    `each_step` is told step, pairs so far, the step's loss, and the weights; step 0 comes before
    training. Raises ConfigurationError when no project has two pairs.
    """
    if max(pairs.sizes.values(), default=0) < _FEWEST:
        raise ConfigurationError("no project has two pairs to tell apart; mine more commits")
    tuned = {
        name: tensor.clone().requires_grad_(is_trained(name, options.frozen_layers))
        for name, tensor in weights.items()
    }
    optimizer = _optimizer(tuned, options)
    learned = [tensor for tensor in tuned.values() if tensor.requires_grad]
    started = time.monotonic()
    each_step(0, 0, math.nan, tuned)
    step = seen = 0
    with ThreadPoolExecutor(options.threads, "encoder") as workers:
        while (done := _done(step, time.monotonic() - started, options)) < 1:
            for group in optimizer.param_groups:
                group["lr"] = options.rate * _schedule(done, options.warm_up)
            batch, longest = _next_batch(pairs, issues, step, options)
            tokens = tokenizer(batch.queries, longest)
            tokens += tokenizer(batch.documents, options.document_tokens)
            loss, found = gradients(tuned, learned, tokens, batch.masked, options, workers)
            for tensor, gradient in zip(learned, found, strict=True):
                tensor.grad = gradient
            torch.nn.utils.clip_grad_norm_(learned, options.clip)
            optimizer.step()
            step, seen = step + 1, seen + len(batch.queries)
            each_step(step, seen, loss, tuned)
    return {name: tensor.detach() for name, tensor in tuned.items()}


def _optimizer(weights: Mapping[str, Tensor], options: TrainingOptions) -> torch.optim.Optimizer:
    """AdamW; biases and normalisations do not decay."""
    learned = [tensor for tensor in weights.values() if tensor.requires_grad]
    groups = [
        {"params": [t for t in learned if t.dim() > 1], "weight_decay": options.decay},
        {"params": [t for t in learned if t.dim() == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=options.rate)


def _done(step: int, seconds: float, options: TrainingOptions) -> float:
    return step / options.steps if options.steps else seconds / (60 * options.minutes)


def _schedule(done: float, warm_up: float) -> float:
    """Share of the full rate: up linearly, then down linearly to nothing."""
    # Never nothing at first: the first step would be wasted.
    return max(0.02, done / warm_up) if done < warm_up else (1 - done) / (1 - warm_up)


def _next_batch(
    pairs: Pool, issues: Pool, step: int, options: TrainingOptions
) -> tuple[Batch, int]:
    """The batch of a step and the tokens read of its queries."""
    random = np.random.default_rng((options.seed, step))
    enough = max(issues.sizes.values(), default=0) >= _FEWEST
    of_issues = enough and step % options.issue_every == options.issue_every - 1
    drawn: list[Example] = []
    while len(drawn) < _FEWEST:
        drawn = (issues if of_issues else pairs).draw(options.batch, random)
    tokens = options.issue_tokens if of_issues else options.query_tokens
    return make_batch(drawn, options.negatives, random), tokens


def gradients(
    weights: Weights,
    learned: Sequence[Tensor],
    tokens: Sequence[Sequence[int]],
    masked: NDArray[np.bool_],
    options: TrainingOptions,
    workers: Executor,
) -> tuple[float, tuple[Tensor, ...]]:
    """A batch's loss, and its gradients with respect to `learned`.

    `tokens` are the queries' and then the documents'. The texts are run in parts, each in a worker
    of its own, and so are the gradients from their vectors downwards: the loss needs all vectors at
    once, but the network does not.
    """
    parts = _parts(tokens, options.threads)

    def run(part: Sequence[int]) -> Tensor:
        texts = [tokens[index] for index in part]
        frozen = options.frozen_layers
        return encode_lists(weights, texts, group=GROUP, frozen_layers=frozen, dtype=torch.bfloat16)

    def differentiate(rows: Tensor, slope: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(rows, learned, slope)

    rows = list(workers.map(run, parts))
    vectors = torch.cat([part.detach() for part in rows]).requires_grad_()
    order = torch.tensor([index for part in parts for index in part])
    loss = contrastive_loss(vectors[torch.argsort(order)], masked, options.temperature)
    (slope,) = torch.autograd.grad(loss, vectors)
    slopes = torch.split(slope, [len(part) for part in parts])
    found = list(workers.map(differentiate, rows, slopes))
    summed = tuple(torch.stack(of_parts).sum(dim=0) for of_parts in zip(*found, strict=True))
    return float(loss.detach()), summed


def _parts(tokens: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """Row numbers for each worker: groups of like length, dealt out in turn."""
    order = sorted(range(len(tokens)), key=lambda index: (len(tokens[index]), index))
    groups = [order[start : start + GROUP] for start in range(0, len(order), GROUP)]
    dealt = [[row for group in groups[first::count] for row in group] for first in range(count)]
    return [part for part in dealt if part]


def contrastive_loss(vectors: Tensor, masked: NDArray[np.bool_], temperature: float) -> Tensor:
    """Mean cross-entropy of each query's own document among those that count for it.

    `vectors`: L2-normalised queries, then documents; `masked` as in `Batch`.
    """
    count = len(masked)
    scores = vectors[:count] @ vectors[count:].T / temperature
    scores = scores.masked_fill(torch.from_numpy(masked), -math.inf)
    return functional.cross_entropy(scores, torch.arange(count))


# -------------------------------------------------------------------------------------- measuring


def embed_texts(
    weights: Weights, tokenizer: Tokenizer, texts: Sequence[str], tokens: int
) -> NDArray[np.float32]:
    """Vectors of texts, shape (len(texts), width), without gradients."""
    with torch.no_grad():
        vectors = encode_lists(weights, tokenizer(texts, tokens), group=GROUP, dtype=torch.bfloat16)
    return vectors.numpy()


def measure(
    weights: Weights, tokenizer: Tokenizer, trials: Trials, options: TrainingOptions
) -> Score:
    """The score of the weights."""
    queries = [trial.query for trial in trials.trials]
    return score(
        embed_texts(weights, tokenizer, queries, options.issue_tokens),
        embed_texts(weights, tokenizer, trials.documents, options.document_tokens),
        trials,
    )


def score(queries: NDArray[np.float32], documents: NDArray[np.float32], trials: Trials) -> Score:
    """The score of L2-normalised vectors: row i of `queries` is trial i's."""
    found = [
        _trial_score(documents[list(trial.candidates)] @ queries[row], trial)
        for row, trial in enumerate(trials.trials)
    ]
    recalls, ranks = zip(*found, strict=True)
    return Score(float(np.mean(recalls)), float(np.mean(ranks)))


def _trial_score(cosines: NDArray[np.float32], trial: Trial) -> tuple[float, float]:
    order = np.argsort(-cosines, kind="stable")
    place = {trial.candidates[int(at)]: rank for rank, at in enumerate(order, start=1)}
    best = [min(place[row] for row in rows) for _, rows in sorted(trial.right.items())]
    return sum(rank <= RECALL_AT for rank in best) / min(RECALL_AT, len(best)), 1 / min(best)


# ---------------------------------------------------------------------------------------- keeping


def save_weights(path: Path, weights: Weights) -> None:
    """Write all weights as `.npz`: a reader finds the file complete or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            arrays = {key: weights[key].detach().numpy() for key in sorted(weights)}
            np.savez(file, **arrays)  # type: ignore[arg-type]  # none is called allow_pickle
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def load_weights(path: Path) -> dict[str, Tensor]:
    """What `save_weights` wrote. No pickle is read."""
    with np.load(path, allow_pickle=False) as stored:
        return {name: torch.tensor(stored[name]) for name in sorted(stored.files)}
