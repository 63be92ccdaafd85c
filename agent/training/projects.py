"""Which projects may be learned from: enforced here, so that no option can let one in.

Two lists are kept out: the projects that SWE-bench asks about, which are the final exam, and those
of the development set on which the ranking is measured (`is_for_tuning` is False for them).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from agent.errors import ConfigurationError, RepositoryError
from agent.evaluation.dataset import is_for_tuning
from agent.evaluation.repositories import find_repository
from agent.repository.location import Location, locate

EXAM_PROJECTS = frozenset(
    {
        "django/django", "sympy/sympy", "astropy/astropy", "matplotlib/matplotlib",
        "scikit-learn/scikit-learn", "sphinx-doc/sphinx", "pytest-dev/pytest", "psf/requests",
        "pallets/flask", "pylint-dev/pylint", "pydata/xarray", "mwaskom/seaborn",
    }
)  # fmt: skip
"""The projects of SWE-bench."""

HELD_OUT_PROJECTS = frozenset(
    {
        "scrapy/scrapy", "ultralytics/yolov5", "keras-team/keras", "All-Hands-AI/OpenHands",
        "nvbn/thefuck", "3b1b/manim", "Textualize/rich", "oobabooga/text-generation-webui",
        "AUTOMATIC1111/stable-diffusion-webui", "CorentinJ/Real-Time-Voice-Cloning",
        "zylon-ai/private-gpt", "langflow-ai/langflow", "PaddlePaddle/PaddleOCR",
        "Significant-Gravitas/AutoGPT", "python/cpython", "lllyasviel/Fooocus",
        "abi/screenshot-to-code", "THUDM/ChatGLM-6B",
    }
)  # fmt: skip
"""The projects of the development set that are measured on and never tuned on."""

# The same histories under names they had before, and well-known forks under names of their own.
_OTHER_NAMES = frozenset(
    {"opendevin", "sklearn", "xray", "stable-diffusion-webui-forge", "pymanim"}
)

_DUPLICATES = frozenset({"trickl/llm-patch", "gpt-engineer-org/gpt-engineer"})
"""Held twice under another name; a second copy would count its commits double."""

_FOLDER = re.compile(r"(?P<owner>\w[\w.-]*?)(?:\+|__)(?P<name>\w[\w.-]*?)(?:\.git)?")


def refusal(repo: str) -> str:
    """Why `owner/name` may not be learned from, "" when it may.

    A fork is known by the project's name, whoever owns it, in any spelling of case and dashes.
    """
    name = _plain(repo)
    if name in {_plain(project) for project in EXAM_PROJECTS}:
        return "a project of SWE-bench, or a fork of one"
    if name in {_plain(project) for project in HELD_OUT_PROJECTS} | set(map(_plain, _OTHER_NAMES)):
        return "held out for measuring, or a fork of such a project"
    if repo in _DUPLICATES:
        return "a copy of another project"
    return ""


def is_held_out(repo: str) -> bool:
    """Whether the split of the development set holds this project out; a check of the list."""
    return not is_for_tuning(repo)


def _plain(repo: str) -> str:
    return re.sub(r"[-_.]", "", repo.rpartition("/")[2].removesuffix(".git").lower())


def discover(folder: Path) -> tuple[str, ...]:
    """The projects of a folder that may be learned from, small ones first.

    Small first: other steps can begin with a varied set while the large ones are being read.
    """
    matches = (_FOLDER.fullmatch(path.name) for path in sorted(folder.iterdir()) if path.is_dir())
    names = (f"{match['owner']}/{match['name']}" for match in matches if match)
    found = [name for name in names if not refusal(name) and _location(folder, name) is not None]
    return tuple(sorted(found, key=lambda name: (_pack_bytes(folder, name), name)))


def chosen(folder: Path, projects: Iterable[str]) -> tuple[str, ...]:
    """The given projects, in their order. Raises ConfigurationError for one that is refused."""
    names = tuple(dict.fromkeys(projects))
    for name in names:
        if reason := refusal(name):
            raise ConfigurationError(f"{name}: not to be trained on ({reason}); leave it out")
        repository_of(folder, name)
    return names


def repository_of(folder: Path, repo: str) -> Location:
    """Where the repository of `owner/name` lies. Raises RepositoryError when it does not."""
    location = _location(folder, repo)
    if location is None:
        raise RepositoryError(f"{repo}: no repository below {folder}; name it owner+name there")
    return location


def _location(folder: Path, repo: str) -> Location | None:
    """The repository in `owner+name`, or in its folder `repo`; none further up."""
    path = find_repository(folder, repo)
    for place in () if path is None else (path, path / "repo"):
        if (place / ".git").exists() or (place / "HEAD").is_file():
            return locate(place)
    return None


def _pack_bytes(folder: Path, repo: str) -> int:
    objects = repository_of(folder, repo).git_dir / "objects" / "pack"
    return sum(pack.stat().st_size for pack in objects.glob("*.pack"))
