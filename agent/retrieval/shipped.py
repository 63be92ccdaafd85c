"""The models that ship with the package: which are used, and what is said where one is not there.

Ranking goes on without them: without `static.npz` no vectors are compared, without `ranker.npz` the
plain sum decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent.models.archive import MODELS
from agent.retrieval import ranker, static
from agent.retrieval.options import RetrievalOptions


@dataclass(frozen=True, slots=True)
class Shipped:
    """What the options ask for, as far as it is there; `notes` say what is not."""

    encoder: static.StaticEncoder | None
    ranker: ranker.Ranker | None
    notes: tuple[str, ...] = ()


def load_shipped(options: RetrievalOptions, folder: Path | None = None) -> Shipped:
    """The models in a folder (None: the package's). What is missing there is None and a note."""
    folder = folder or MODELS
    notes: list[str] = []
    encoder = static.static_in(folder / static.MODEL) if options.uses_static else None
    if options.uses_static and encoder is None:
        notes.append(f"{_fault(folder / static.MODEL)}; ranked without its vectors")
    trees = ranker.ranker_in(folder / ranker.MODEL) if options.uses_ranker else None
    if options.uses_ranker and trees is None:
        notes.append(f"{_fault(folder / ranker.MODEL)}; ranked by the plain sum")
    return Shipped(encoder, trees, tuple(notes))


def _fault(path: Path) -> str:
    if not path.is_file():
        return f"{path.name} is missing from the installation"
    return f"{path.name} is damaged or was made for another version"
