"""Real projects, unpacked and committed once a session; skipped where they cannot be fetched."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real import sdist
from tests.real.project import RealProject


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Callable[[RealProject], Path]:
    """Give a function that makes a committed repository of a project, one for each session.

    The environment is read here, before each test hides the user's proxies: pip needs them.
    """
    environment = dict(os.environ)

    @functools.cache
    def make(project: RealProject) -> Path | sdist.Unavailable:
        try:
            archive = sdist.fetch(project, environment)
        except sdist.Unavailable as error:
            return error
        root = sdist.unpack(archive, tmp_path_factory.mktemp(project.name))
        sdist.commit(root)
        return root

    return lambda project: _available(project, make(project))


def _available(project: RealProject, made: Path | sdist.Unavailable) -> Path:
    """The repository; without a way to it, skip, or fail where PATCHSHOT_REQUIRE_REAL=1."""
    if isinstance(made, Path):
        return made
    reason = f"cannot fetch {project.filename}: {made}"
    if os.environ.get("PATCHSHOT_REQUIRE_REAL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
