"""Real projects, unpacked and committed once a session; skipped where they cannot be fetched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real import sdist
from tests.real.languages import LanguageProject
from tests.real.project import Project, RealProject
from tests.real.registries import fetch_release, install_npm_packages


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Project], Path]:
    """Give a function that makes a committed repository of a project, one for each session.

    The environment is read here, before each test hides the user's proxies: pip needs them.
    """
    environment = dict(os.environ)
    checkouts: dict[str, Path | sdist.Unavailable] = {}

    def make(project: Project) -> Path | sdist.Unavailable:
        folder = tmp_path_factory.mktemp(project.name)
        try:
            if isinstance(project, RealProject):
                root = sdist.unpack(sdist.fetch(project, environment), folder)
                sdist.commit(root)
                return root
            assert isinstance(project, LanguageProject)
            return _made(project, folder, environment)
        except sdist.Unavailable as error:
            return error

    def checked(project: Project) -> Path:
        if isinstance(project, LanguageProject) and shutil.which("npm") is None:
            pytest.skip("npm is not installed")
        if project.name not in checkouts:
            checkouts[project.name] = make(project)
        root = checkouts[project.name]
        if isinstance(root, Path):
            return root
        reason = f"cannot fetch {project.name}: {root}"
        if environment.get("PATCHSHOT_REQUIRE_REAL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)

    return checked


def _made(project: LanguageProject, folder: Path, environment: dict[str, str]) -> Path:
    """The release, committed with what it lacks."""
    root = fetch_release(project.release, environment, folder)
    for path, text in project.added.items():
        (root / path).write_text(text, "utf-8")
    sdist.commit(root)
    install_npm_packages(project.packages, root, environment)
    return root
