from __future__ import annotations

import threading

import pytest

from agent.corpora.documents import DocumentSource, is_document
from agent.corpora.passages import Label, Passage
from agent.retrieval.pool import Cancelled
from tests.support.corpora import FILES, small_index
from tests.support.fakes import MemorySnapshot


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("README", True),
        ("README.md", True),
        ("sub/readme.rst", True),
        ("docs/a/b.txt", True),
        ("USAGE.adoc", True),
        ("notes.txt", False),
        ("CHANGELOG.md", False),
        ("docs/changelog.rst", False),
        ("docs/requirements.txt", False),
        ("LICENSE", False),
        ("tests/docs/a.md", False),
        ("vendor/docs/a.md", False),
    ],
)
def test_which_files_are_documents(path: str, document: bool) -> None:
    assert is_document(path) is document


def test_sections_and_docstrings_with_their_places() -> None:
    found = DocumentSource(small_index()).passages(MemorySnapshot(FILES), threading.Event())
    assert {passage.corpus for passage in found} == {Label.DOCS}
    own = "CookieJar.expire"
    assert [(p.path, p.start, p.symbol, p.title) for p in found] == [
        ("README.md", 1, "", "Shop"),
        ("README.md", 5, "", "Shop > Expired cookies"),
        ("docs/guide.rst", 1, "", "Guide"),
        ("docs/guide.rst", 6, "", "Guide > Totals"),
        ("shop/cookies.py", 4, "CookieJar", "CookieJar: Keeps the cookies of a session"),
        ("shop/cookies.py", 7, own, f"{own}: Drop cookies that are out of date"),
        ("web/api.js", 1, "sendOrder", "sendOrder: Sends an order to the warehouse"),
    ]  # fmt: skip
    assert found[1] == Passage(
        Label.DOCS,
        "Shop > Expired cookies",
        "NAME: Shop > Expired cookies\nTYPE: document\nFILE: README.md\n"
        "DESCRIPTION: Cookies whose time is over are dropped by `CookieJar.expire`.",
        "README.md",
        5,
        7,
        language="markdown",
        tags=("section",),
    )


def test_places_are_unique() -> None:
    found = DocumentSource(small_index()).passages(MemorySnapshot(FILES), threading.Event())
    assert len({passage.place for passage in found}) == len(found)


def test_secrets_are_masked() -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    files = {
        "README.md": f"# Keys\n\nUse the token {key} for everything.\n",
        "a.py": f'def f():\n    """Sends token {key} along."""\n',
    }
    found = DocumentSource(small_index()).passages(MemorySnapshot(files), threading.Event())
    assert len(found) == 2
    assert not any(key in passage.text or key in passage.title for passage in found)


def test_it_can_be_cancelled() -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Cancelled):
        DocumentSource(small_index()).passages(MemorySnapshot(FILES), stop)
