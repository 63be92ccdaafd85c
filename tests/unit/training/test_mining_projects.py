from __future__ import annotations

from pathlib import Path

import pytest

from agent.datasets import is_for_tuning
from agent.errors import ConfigurationError, RepositoryError
from training.projects import (
    EXAM_PROJECTS,
    HELD_OUT_PROJECTS,
    chosen,
    discover,
    refusal,
    repository_of,
)


@pytest.mark.parametrize("repo", sorted(EXAM_PROJECTS | HELD_OUT_PROJECTS))
def test_refused_under_any_owner_and_spelling(repo: str) -> None:
    name = repo.partition("/")[2]
    for spelling in (repo, f"someone/{name}", f"x/{name.upper()}", f"x/{name.replace('-', '_')}"):
        assert refusal(spelling)


def test_the_exam_is_the_twelve_projects_of_swe_bench() -> None:
    assert len(EXAM_PROJECTS) == 12


def test_the_list_of_held_out_projects_agrees_with_the_split() -> None:
    assert not any(is_for_tuning(repo) for repo in HELD_OUT_PROJECTS)


@pytest.mark.parametrize(
    "repo", ["django-cms/django-cms", "pypa/pip", "scikit-image/scikit-image", "PyCQA/astroid"]
)
def test_others_may_be_learned_from(repo: str) -> None:
    assert refusal(repo) == ""


def make(folder: Path, name: str, size: int = 0) -> Path:
    git_dir = folder / name
    (git_dir / "objects" / "pack").mkdir(parents=True)
    (git_dir / "refs").mkdir()
    (git_dir / "HEAD").write_text("ref: refs/heads/main\n")
    (git_dir / "objects" / "pack" / "pack-1.pack").write_bytes(bytes(size))
    return git_dir


def test_discover_finds_what_is_allowed_small_first(tmp_path: Path) -> None:
    make(tmp_path, "big__one.git", 300)
    make(tmp_path, "small+two/repo", 100)
    make(tmp_path, "work+tree/repo/.git", 200)
    make(tmp_path, "django+django", 10)
    make(tmp_path, "fork+django", 10)
    make(tmp_path, "trickl+llm-patch", 10)
    (tmp_path / "not+git").mkdir()
    (tmp_path / "file+x").write_text("")
    make(tmp_path, "nameless", 10)
    assert discover(tmp_path) == ("small/two", "work/tree", "big/one")


def test_a_repository_around_the_folder_is_not_taken(tmp_path: Path) -> None:
    make(tmp_path, ".git")
    (tmp_path / "acme+shop").mkdir()
    with pytest.raises(RepositoryError, match="acme/shop: no repository below"):
        repository_of(tmp_path, "acme/shop")


def test_chosen_keeps_the_order_and_refuses(tmp_path: Path) -> None:
    make(tmp_path, "b+b")
    make(tmp_path, "a+a")
    make(tmp_path, "pallets+flask")
    assert chosen(tmp_path, ["b/b", "a/a", "b/b"]) == ("b/b", "a/a")
    with pytest.raises(ConfigurationError, match=r"pallets/flask: not to be trained on"):
        chosen(tmp_path, ["b/b", "pallets/flask"])
