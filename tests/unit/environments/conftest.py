from __future__ import annotations

from pathlib import Path

import pytest

from agent.environments.building import Recipe
from agent.environments.pythons import HostPython, find_python
from tests.support.wheels import make_wheel


@pytest.fixture(scope="session")
def host() -> HostPython:
    return find_python("")


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    make_wheel(folder, "tiny", "1.0", {"tiny.py": "value = 1\n"}, requires=("smaller",))
    make_wheel(folder, "smaller", "2.0", {"smaller.py": ""})
    (folder / "sourced-1.0.tar.gz").write_bytes(b"not an archive")
    return folder


@pytest.fixture(scope="session")
def recipe(host: HostPython, wheels: Path) -> Recipe:
    return Recipe(host, ("tiny==1.0",), index="none", find_links=(str(wheels),))
