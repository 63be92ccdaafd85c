from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.errors import ConfigurationError
from agent.training.encoder import main
from agent.training.encoder_data import Document, Example, Pool, Trial, Trials
from tests.support.tiny_encoder import WordTokenizer, tiny_weights

torch = pytest.importorskip("torch")

from agent.training.encoder_model import as_tensors  # noqa: E402
from agent.training.encoder_train import (  # noqa: E402
    Score,
    TrainingOptions,
    contrastive_loss,
    gradients,
    load_weights,
    save_weights,
    score,
    train,
)

_OPTIONS = TrainingOptions(
    steps=12, batch=8, negatives=4, rate=2e-3, frozen_layers=1, query_tokens=20, document_tokens=20
)
_THINGS = ("apple", "boat", "cat", "door", "engine", "fish", "gate", "house")


def pool() -> Pool:
    """Issues that say a thing, and functions whose code has it."""
    made = Pool()
    made.add(
        Example(
            "o/one",
            thing,
            f"fails with {thing}",
            "",
            (Document(f"m.py:{thing}", f"code of {thing}", thing.encode()),),
            (Document("m.py:other", "code of nothing", b"other"),),
        )
        for thing in _THINGS
    )
    return made


def trained(options: TrainingOptions) -> tuple[dict[str, Any], list[float]]:
    losses: list[float] = []

    def note(step: int, pairs: int, loss: float, weights: Mapping[str, Any]) -> None:
        losses.append(loss)

    start = as_tensors(tiny_weights())
    tokenizer: Any = WordTokenizer()
    return train(start, tokenizer, pool(), Pool(), options, each_step=note), losses


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Threads inside of such small products wait for each other more than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_training_lowers_the_loss_and_leaves_frozen_layers_alone() -> None:
    weights, losses = trained(_OPTIONS)
    assert math.isnan(losses[0])
    assert len(losses) == 13
    assert losses[-1] < 0.5 * losses[1]
    start = as_tensors(tiny_weights())
    same = {name for name in start if torch.equal(start[name], weights[name])}
    assert all(n.startswith(("embeddings.", "encoder.layer.0.")) for n in same)
    assert "encoder.layer.1.output.dense.weight" not in same


def test_the_same_seed_and_steps_give_the_same_weights() -> None:
    short = replace(_OPTIONS, steps=3)
    first, again, other = (trained(o)[0] for o in (short, short, replace(short, seed=8)))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_pairs_that_cannot_be_told_apart_are_refused() -> None:
    lonely = Pool()
    lonely.add([Example("o/one", "1", "text", "", (Document("m.py:f", "f", b"f"),), ())])
    tokenizer: Any = WordTokenizer()
    start = as_tensors(tiny_weights())
    with pytest.raises(ConfigurationError, match="no project has two pairs"):
        train(start, tokenizer, lonely, Pool(), _OPTIONS, each_step=lambda *_: None)


def test_gradients_in_parts_are_those_of_the_whole() -> None:
    weights = {name: w.requires_grad_() for name, w in as_tensors(tiny_weights()).items()}
    learned = [w for name, w in weights.items() if name.startswith("encoder.layer.1")]
    tokens = [[n % 50, n % 7, 3][: 1 + n % 3] for n in range(50)]
    masked = np.zeros((20, 30), dtype=np.bool_)
    found = []
    for threads in (1, 3):
        options = replace(_OPTIONS, threads=threads)
        with ThreadPoolExecutor(threads) as workers:
            found.append(gradients(weights, learned, tokens, masked, options, workers))
    (loss, whole), (loss_of_parts, parts) = found
    assert loss == pytest.approx(loss_of_parts, rel=1e-2)
    for one, other in zip(whole, parts, strict=True):
        cosine = torch.nn.functional.cosine_similarity(one.flatten(), other.flatten(), dim=0)
        assert float(cosine) > 0.98


def test_what_is_masked_does_not_count() -> None:
    vectors = torch.nn.functional.normalize(torch.randn(5, 8), dim=1)
    masked = np.array([[False, True, False], [True, False, False]])
    loss = float(contrastive_loss(vectors, masked, 0.1))
    moved = vectors.clone()
    moved[2] = vectors[0]  # a perfect document for query 0, which query 1 must not see
    better = float(contrastive_loss(moved, masked, 0.1))
    open_loss = float(contrastive_loss(vectors, np.zeros((2, 3), dtype=np.bool_), 0.1))
    assert better < loss < open_loss


def test_scores_count_each_answer_once_at_its_best_row() -> None:
    documents = np.eye(14, dtype=np.float32)
    right = {"a": frozenset({0, 1}), "b": frozenset({13})}
    trials = Trials(tuple(map(str, range(14))), (Trial("q", tuple(range(14)), right),))
    query = np.linspace(0.9, 0.1, 14, dtype=np.float32)
    query[1], query[0] = query[0], 0.01  # a's better row is first, b is last but one
    assert score(query[None, :], documents, trials) == Score(recall=0.5, reciprocal_rank=1.0)


def test_weights_are_kept_without_pickle(tmp_path: Path) -> None:
    weights = as_tensors(tiny_weights())
    save_weights(tmp_path / "w.npz", weights)
    found = load_weights(tmp_path / "w.npz")
    assert list(found) == sorted(weights)
    assert all(torch.equal(found[name], weights[name]) for name in found)
    assert [file.name for file in tmp_path.iterdir()] == ["w.npz"]


def test_missing_pairs_end_the_command_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path)
    code = main(
        ["--pairs", folder, "--issues", f"{folder}/none", "--repos", folder, "--output", folder]
    )
    assert code == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_help_does_not_load_torch() -> None:
    script = (
        "import sys\nfrom agent.training.encoder import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit: pass\n"
        "assert 'torch' not in sys.modules"
    )
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, cwd=root)
