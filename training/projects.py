"""Projects that training may use. The rules are in code, so that no option can bypass them.

Two lists are excluded: the projects of SWE-bench, which is the final test, and the projects of the
development set that measure the ranking (`is_for_tuning` is False for them).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from agent.datasets import find_repository
from agent.errors import ConfigurationError, RepositoryError
from agent.repository.scope import Location, locate_repository

RANKER_PROJECTS = frozenset(
    {
        "AntonOsika/gpt-engineer",
        "OpenInterpreter/open-interpreter",
        "Z4nzu/hackingtool",
        "ageitgey/face_recognition",
        "ansible/ansible",
        "binary-husky/gpt_academic",
        "comfyanonymous/ComfyUI",
        "deepfakes/faceswap",
        "fastapi/fastapi",
        "geekan/MetaGPT",
        "hacksider/Deep-Live-Cam",
        "hiyouga/LLaMA-Factory",
        "home-assistant/core",
        "huggingface/transformers",
        "localstack/localstack",
        "meta-llama/llama",
        "odoo/odoo",
        "pandas-dev/pandas",
        "pytorch/pytorch",
        "sherlock-project/sherlock",
        "xtekky/gpt4free",
        "yt-dlp/yt-dlp",
        "ytdl-org/youtube-dl",
    }
)
"""The projects of the development issues that may be used for tuning."""


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
"""The projects of the development set that are used for measuring and never for tuning."""

# Former names of the same histories, and well-known forks with other names.
_OTHER_NAMES = frozenset(
    {"opendevin", "sklearn", "xray", "stable-diffusion-webui-forge", "pymanim"}
)

_DUPLICATES = frozenset({"trickl/llm-patch", "gpt-engineer-org/gpt-engineer"})
"""Copies under another name, which would count their commits twice."""

_FOLDER = re.compile(r"(?P<owner>\w[\w.-]*?)(?:\+|__)(?P<name>\w[\w.-]*?)(?:\.git)?")


def refusal(repo: str) -> str:
    """Return why `owner/name` may not be used for training, "" if it may.

    Forks are matched by project name, whatever the owner, case and dashes.
    """
    name = _plain(repo)
    if name in {_plain(project) for project in EXAM_PROJECTS}:
        return "a project of SWE-bench, or a fork of one"
    if name in {_plain(project) for project in HELD_OUT_PROJECTS} | set(map(_plain, _OTHER_NAMES)):
        return "held out for measuring, or a fork of such a project"
    if repo in _DUPLICATES:
        return "a copy of another project"
    return ""


def _plain(repo: str) -> str:
    return re.sub(r"[-_.]", "", repo.rpartition("/")[2].removesuffix(".git").lower())


def discover(folder: Path) -> tuple[str, ...]:
    """Return the projects of a folder that may be used for training, small ones first.

    Later steps can then start with a varied set while the large ones are being read.
    """
    matches = (_FOLDER.fullmatch(path.name) for path in sorted(folder.iterdir()) if path.is_dir())
    names = (f"{match['owner']}/{match['name']}" for match in matches if match)
    found = [name for name in names if not refusal(name) and _location(folder, name) is not None]
    return tuple(sorted(found, key=lambda name: (_pack_bytes(folder, name), name)))


def chosen(folder: Path, projects: Iterable[str]) -> tuple[str, ...]:
    """Return the given projects in order. Raises ConfigurationError for one that is excluded."""
    names = tuple(dict.fromkeys(projects))
    for name in names:
        if reason := refusal(name):
            raise ConfigurationError(f"{name}: not to be trained on ({reason}); leave it out")
        repository_of(folder, name)
    return names


def repository_of(folder: Path, repo: str) -> Location:
    """Return the repository of `owner/name`. Raises RepositoryError if it is missing."""
    location = _location(folder, repo)
    if location is None:
        raise RepositoryError(f"{repo}: no repository below {folder}; name it owner+name there")
    return location


def _location(folder: Path, repo: str) -> Location | None:
    """Return the repository in `owner+name` or its folder `repo`, but in no parent folder."""
    path = find_repository(folder, repo)
    for place in () if path is None else (path, path / "repo"):
        if (place / ".git").exists() or (place / "HEAD").is_file():
            return locate_repository(place)
    return None


def _pack_bytes(folder: Path, repo: str) -> int:
    objects = repository_of(folder, repo).git_dir / "objects" / "pack"
    return sum(pack.stat().st_size for pack in objects.glob("*.pack"))
