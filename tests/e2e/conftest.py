from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.e2e.parcels import FILES, ISSUE
from tests.e2e.test_commands import User


@pytest.fixture
def parcel_user(tmp_path: Path) -> User:
    user = User(tmp_path / "home")
    user.issue.write_text(ISSUE)
    return user


@pytest.fixture
def parcel_shop(make_repository: Callable[[Mapping[str, str | bytes]], Path]) -> Path:
    return make_repository(FILES)
