from __future__ import annotations

from pathlib import Path

import pytest

from agent.types.events import Event


@pytest.fixture
def said() -> list[Event]:
    return []


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "history.sqlite"
