from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.errors import RepositoryError
from agent.repository import narrowed, subtree, take_snapshot
from tests.support.fakes import MemorySnapshot

Make = Callable[[Mapping[str, str | bytes]], Path]

FILES = {
    "pyproject.toml": "",
    "docs/guide.md": "text\n",
    "services/billing/pyproject.toml": "",
    "services/billing/src/app.py": "BILLING = 1\n",
    "services/billing-old/app.py": "OLD = 1\n",
}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("services/billing", "services/billing"),
        ("./services/billing/", "services/billing"),
        ("services/billing/src/..", "services/billing"),
        ("docs", "docs"),
        (".", ""),
    ],
)
def test_a_folder_is_named_from_the_root(make_repository: Make, given: str, expected: str) -> None:
    root = make_repository(FILES)
    for place in (root, root / "docs"):
        assert take_snapshot(place, scope=Path(given)).scope == expected
    assert take_snapshot(root, scope=root / given).scope == expected
    assert take_snapshot(root, scope=Path(given), commit="HEAD").scope == expected


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("services/none", "has no files there"),
        ("services/bill", "has no files there"),
        ("..", "leads out of the repository"),
        ("services/../../x", "leads out of the repository"),
        ("/usr", "leads out of the repository"),
        ("docs/guide.md", "is a file"),
        ("link", "has no files there"),
    ],
)
def test_other_folders_are_refused(make_repository: Make, given: str, said: str) -> None:
    root = make_repository(FILES)
    (root / "link").symlink_to("/usr")
    with pytest.raises(RepositoryError, match=said) as refused:
        take_snapshot(root, scope=Path(given))
    assert f"--path {given}" in str(refused.value)


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ("services/billing", "services/billing"),
        ("services/billing/src", "services/billing"),
        ("services", ""),
        ("docs", ""),
        (".", ""),
    ],
)
def test_without_a_name_it_is_the_project_of_the_folder(
    make_repository: Make, inside: str, expected: str
) -> None:
    snapshot = take_snapshot(make_repository(FILES) / inside, scope=None)
    assert snapshot.scope == expected
    assert (f"scope: {expected}" in snapshot.notes) is bool(expected)


def test_views_show_a_part() -> None:
    whole = MemorySnapshot(FILES, scope="services/billing")
    few = narrowed(whole, ["docs/guide.md"])
    assert (list(few.files), few.scope) == (["docs/guide.md"], "services/billing")
    assert few.exists("pyproject.toml")
    inner = subtree(whole)
    assert list(inner.files) == ["pyproject.toml", "src/app.py"]
    assert inner.text("src/app.py") == "BILLING = 1\n"
    assert inner.read("src/app.py") == b"BILLING = 1\n"
    assert inner.files["src/app.py"].path == "src/app.py"
    assert inner.exists("src/app.py")
    assert not inner.exists("docs/guide.md")
    assert subtree(MemorySnapshot(FILES)).files.keys() == FILES.keys()
