from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pythons import bare_python, python_with


@pytest.fixture(scope="session")
def python_without_pytest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bare_python(tmp_path_factory.mktemp("bare") / "venv")


@pytest.fixture(scope="session")
def python_with_pytest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_with(tmp_path_factory.mktemp("lean") / "venv")
