from __future__ import annotations

from pathlib import Path

import pytest

from agent.datasets import check_folder, find_repository, read_files
from agent.errors import ConfigurationError, RepositoryError
from tests.support.evaluation import MODULE, bare_repository


@pytest.mark.parametrize(
    "name",
    ["owner__shop", "owner+shop", "owner/shop", "owner__shop.git", "owner+shop.git"],
)
def test_all_names_of_a_repository(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir(parents=True)
    (tmp_path / "owner__shop2").mkdir()
    assert find_repository(tmp_path, "owner/shop") == tmp_path / name
    assert find_repository(tmp_path, "owner/other") is None
    with pytest.raises(ConfigurationError, match="no such folder"):
        check_folder(tmp_path / "none")


def test_files_are_read_from_a_bare_repository(tmp_path: Path) -> None:
    commit = bare_repository(tmp_path)
    repository = tmp_path / "owner__shop.git"
    texts = read_files(repository, commit, ["shop/basket.py", "shop/none.py"])
    assert texts == {"shop/basket.py": MODULE}
    with pytest.raises(RepositoryError, match="no commit"):
        read_files(repository, "1" * 40, [])
