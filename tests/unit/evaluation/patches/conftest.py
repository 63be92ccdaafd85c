from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pythons import python_with
from tests.support.scoring import make_project


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_with(tmp_path_factory.mktemp("lean") / "venv")


@pytest.fixture(scope="session")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("repositories")


@pytest.fixture(scope="session")
def base(repositories: Path) -> str:
    """The base commit of owner/shop."""
    return make_project(repositories)
