"""Fine-tune the small encoder of `--embed local` on problems and the functions they are about.

    python -m agent.training.encoder --pairs DIR --issues FILE --repos DIR --output DIR

Starts from the packaged all-MiniLM-L6-v2 (8-bit weights, made float again), writes checkpoints and
a log beside each other, and exports the best weights by the development issues. Needs torch and
onnx; what it exports needs neither.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.errors import ConfigurationError, PatchshotError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agent.training.encoder_data import Pool, Trials
    from agent.training.encoder_model import Weights
    from agent.training.encoder_train import Score, Tokenizer, TrainingOptions

DEVELOPMENT = (
    "localstack/localstack",
    "fastapi/fastapi",
    "AntonOsika/gpt-engineer",
    "deepfakes/faceswap",
)
"""Projects of the tuning side that choose the weights: nothing of them is trained on."""

PER_PROJECT = 600
"""Pairs read of a project: more than an hour on two cores gets through, and it fits in memory."""

DEVELOPMENT_ISSUES = 40
SAME_FILE = 10
SAME_PROJECT = 40
"""Candidates of a development issue: the functions near the answer, and some of the project."""

CHECKPOINT_SECONDS = 300.0
MEASURE_SECONDS = 1200.0  # a measurement costs a minute of both cores


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is that of the error, if one ended it."""
    arguments = _arguments(argv)
    try:
        _run(arguments)
    except PatchshotError as error:
        _say(f"error: {error}")
        return error.status.exit_code
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m agent.training.encoder",
        description="Fine-tune the encoder of `--embed local` on mined pairs and real issues.",
        epilog="example: python -m agent.training.encoder --pairs ~/pairs --issues dev.jsonl "
        "--repos ~/repos --output ~/encoder --minutes 60 --seed 7",
    )
    add = parser.add_argument
    add("--pairs", type=Path, required=True, help="folder of agent.training.mining")
    add("--issues", type=Path, required=True, help="data set; only projects to tune on are used")
    add("--repos", type=Path, required=True, help="git repositories of the issues' projects")
    add("--output", type=Path, required=True, help="folder for checkpoints and the log")
    add("--minutes", type=float, default=60.0, help="wall clock of training (default: 60)")
    add("--steps", type=int, default=0, help="batches instead of minutes: repeatable exactly")
    add("--seed", type=int, default=7)
    add("--frozen-layers", type=int, default=2, help="lowest layers left alone (default: 2)")
    add("--per-project", type=int, default=PER_PROJECT, help="most pairs of a project")
    add("--threads", type=int, default=2, help="parts of a batch at once (default: 2)")
    add("--export", type=Path, help="then write model.onnx and model.json to this folder")
    add("--export-only", action="store_true", help="no training: export what --output holds")
    return parser.parse_args(argv)


def _run(arguments: argparse.Namespace) -> None:
    try:
        import torch
    except ImportError:
        raise ConfigurationError("training needs torch and onnx: pip install torch onnx") from None
    from agent.retrieval.local_embedder import tokenizer_file
    from agent.training.encoder_train import Tokenizer, TrainingOptions

    torch.manual_seed(arguments.seed)
    # Parts of a batch run beside each other; threads inside of one product wait for each other
    # more than they work where the cores are shared.
    torch.set_num_threads(1)
    options = TrainingOptions(
        seed=arguments.seed,
        steps=arguments.steps,
        minutes=arguments.minutes,
        frozen_layers=arguments.frozen_layers,
        threads=arguments.threads,
    )
    arguments.output.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(tokenizer_file())
    corpus = _Corpus.read(arguments)
    if not arguments.export_only:
        _train(arguments, corpus, tokenizer, options)
    if arguments.export is not None:
        _export(arguments, corpus, tokenizer, options)


def _train(
    arguments: argparse.Namespace, corpus: _Corpus, tokenizer: Tokenizer, options: TrainingOptions
) -> None:
    from agent.retrieval.local_embedder import local_model
    from agent.training.encoder_model import as_tensors, read_onnx
    from agent.training.encoder_train import train

    corpus.refresh()
    sizes = corpus.pairs.sizes
    _say(f"{sum(sizes.values())} pairs of {len(sizes)} projects")
    run = _Run(arguments.output, tokenizer, corpus, options)
    weights = as_tensors(read_onnx(local_model("packaged").network))
    train(weights, tokenizer, corpus.pairs, corpus.issues, options, each_step=run.step)
    run.finish()


def _export(
    arguments: argparse.Namespace, corpus: _Corpus, tokenizer: Tokenizer, options: TrainingOptions
) -> None:
    """Export the best weights, and measure what became of them."""
    from agent.training.encoder_export import Check, Figures, Training, export, write_card
    from agent.training.encoder_model import Architecture
    from agent.training.encoder_train import embed_texts, load_weights, score

    weights = load_weights(arguments.output / "best.npz")
    training = Training.model_validate_json((arguments.output / "summary.json").read_bytes())
    arrays = {name: tensor.numpy() for name, tensor in weights.items()}
    card = export(arrays, Architecture.of(weights).heads, training, arguments.export)
    trials = corpus.trials
    network = arguments.export / "model.onnx"
    queries = _embed(network, [trial.query for trial in trials.trials], options.issue_tokens)
    documents = _embed(network, trials.documents, options.document_tokens)
    exact = embed_texts(weights, tokenizer, trials.documents, options.document_tokens)
    cosines = (documents * exact).sum(axis=1)
    check = Check(
        mean_cosine=round(float(cosines.mean()), 4),
        least_cosine=round(float(cosines.min()), 4),
        exported=Figures(**_rounded(score(queries, documents, trials))),
    )
    write_card(arguments.export, card.model_copy(update={"check": check}))
    _say(check.model_dump_json())


def _embed(network: Path, texts: Sequence[str], tokens: int) -> NDArray[np.float32]:
    """L2-normalised vectors as the product makes them."""
    from agent.retrieval.embedding import EmbeddingOptions, ParallelEmbedder
    from agent.retrieval.local_embedder import LocalEmbedder, LocalModel

    model = LocalEmbedder(LocalModel("exported", network), max_tokens=tokens)
    embedder = ParallelEmbedder(model, lambda _: None, EmbeddingOptions(timeout=600.0))
    return asyncio.run(embedder.embed(texts, kind="document"))


@dataclass(slots=True)
class _Corpus:
    """Pairs, issues and trials. Files that are mined while training goes on join in."""

    folder: Path
    per_project: int
    pairs: Pool
    issues: Pool
    trials: Trials
    known: set[Path] = field(default_factory=set)

    @classmethod
    def read(cls, arguments: argparse.Namespace) -> _Corpus:
        from agent.training.encoder_data import Pool, make_trials, read_issues

        issues = read_issues(arguments.issues, arguments.repos)
        trials = make_trials(
            [issue for issue in issues if issue.repo in DEVELOPMENT],
            most=DEVELOPMENT_ISSUES,
            same_file=SAME_FILE,
            same_project=SAME_PROJECT,
            seed=arguments.seed,
        )
        pool = Pool()
        pool.add(issue for issue in issues if issue.repo not in DEVELOPMENT)
        _say(
            f"{sum(pool.sizes.values())} issues of {len(pool.sizes)} projects; for development "
            f"{len(trials.trials)} issues and {len(trials.documents)} functions"
        )
        return cls(arguments.pairs, arguments.per_project, Pool(), pool, trials)

    def refresh(self) -> None:
        """Read the files that have come since."""
        from agent.training.encoder_data import pair_files, read_examples

        for file in pair_files(self.folder, DEVELOPMENT):
            if file not in self.known:
                self.known.add(file)
                self.pairs.add(read_examples(file, self.per_project))


@dataclass(slots=True)
class _Run:
    """What happens beside the steps: checkpoints, measurements, the log and the choice."""

    folder: Path
    tokenizer: Tokenizer
    corpus: _Corpus
    options: TrainingOptions
    started: float = field(default_factory=time.monotonic)
    losses: list[float] = field(default_factory=list)
    saved: float = 0.0
    measured: float = 0.0
    best: Score | None = None
    chosen: int = 0
    untuned: Score | None = None
    last: tuple[int, int] = (0, 0)
    weights: Weights | None = None

    def step(self, step: int, pairs: int, loss: float, weights: Weights) -> None:
        """After each batch. Step 0 measures the untuned weights."""
        seconds = time.monotonic() - self.started
        self.last, self.weights = (step, pairs), weights
        if not math.isnan(loss):
            self.losses.append(loss)
        if step == 0 or seconds - self.measured >= MEASURE_SECONDS:
            self._checkpoint(measured=True)
        elif seconds - self.saved >= CHECKPOINT_SECONDS or step == 20:
            self._checkpoint(measured=False)

    def finish(self) -> None:
        """Measure the last weights, and note what was reached from what."""
        from agent.training.encoder_export import Figures, Training

        self._checkpoint(measured=True)
        assert self.untuned is not None
        assert self.best is not None
        training = Training(
            pairs=self.corpus.pairs.sizes,
            issues=self.corpus.issues.sizes,
            development=DEVELOPMENT,
            options={f.name: getattr(self.options, f.name) for f in fields(self.options)},
            steps=self.last[0],
            chosen=self.chosen,
            pairs_seen=self.last[1],
            minutes=round((time.monotonic() - self.started) / 60, 1),
            untuned=Figures(**_rounded(self.untuned)),
            tuned=Figures(**_rounded(self.best)),
        )
        text = training.model_dump_json(indent=1)
        (self.folder / "summary.json").write_text(f"{text}\n", "utf-8")

    def _checkpoint(self, *, measured: bool) -> None:
        from agent.training.encoder_train import measure, save_weights

        assert self.weights is not None
        step, pairs = self.last
        save_weights(self.folder / "last.npz", self.weights)
        found: Score | None = None
        if measured:
            found = measure(self.weights, self.tokenizer, self.corpus.trials, self.options)
            self.untuned = self.untuned or found
            if self.best is None or found.total > self.best.total:
                self.best, self.chosen = found, step
                save_weights(self.folder / "best.npz", self.weights)
        self.corpus.refresh()
        self.saved = time.monotonic() - self.started
        self.measured = self.saved if measured else self.measured
        loss = sum(self.losses) / len(self.losses) if self.losses else math.nan
        self.losses.clear()
        self._log(step=step, pairs=pairs, seconds=round(self.saved, 1), loss=loss, score=found)

    def _log(self, *, loss: float, score: Score | None, **rest: Any) -> None:
        row = {**rest, "loss": None if math.isnan(loss) else round(loss, 4)}
        if score is not None:
            row |= _rounded(score)
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        _say(json.dumps(row))


def _rounded(score: Score) -> dict[str, float]:
    return {name: round(value, 4) for name, value in asdict(score).items()}


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
