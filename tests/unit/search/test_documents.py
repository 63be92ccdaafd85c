from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.search.documents import (
    MAX_SECTION,
    DocumentSource,
    Section,
    cut_sections,
    is_document,
)
from agent.search.passages import Label, Passage
from agent.shared.workers import Cancelled
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


BODY = "Words of a body that is long enough."


def test_markdown_is_cut_at_headings_and_not_inside_fences() -> None:
    text = (
        f"{BODY}\n\n# A\n\n{BODY}\n\n```\n# no heading\n```\n\n## B ##\n{BODY}\n\nC\n===\n\n{BODY}"
    )
    fenced = f"{BODY}\n\n```\n# no heading\n```"
    assert cut_sections(text, "markdown") == (
        Section((), 1, 1, BODY),
        Section(("A",), 3, 9, fenced),
        Section(("A", "B"), 11, 12, BODY),
        Section(("C",), 14, 17, BODY),
    )


def test_restructured_text_has_levels_in_the_order_of_its_adornments() -> None:
    parts = ("=====\nTitle\n=====", "Part\n----", "Sub\n~~~", "Next\n----")
    text = "\n\n".join(f"{part}\n\n{BODY}" for part in parts)
    assert [section.headings for section in cut_sections(text, "rst")] == [
        ("Title",),
        ("Title", "Part"),
        ("Title", "Part", "Sub"),
        ("Title", "Next"),
    ]


def test_code_in_a_line_is_no_fence() -> None:
    text = f"# A\n\n```brew install```\n\n{BODY}\n\n# B\n\n~~~\n```\n# no\n~~~\n{BODY}"
    assert [s.headings for s in cut_sections(text, "markdown")] == [("A",), ("B",)]


def test_asciidoc_headings() -> None:
    text = f"= Book\n{BODY}\n\n== Chapter\n{BODY}\n----\n== code\n----\n"
    assert [s.headings for s in cut_sections(text, "asciidoc")] == [("Book",), ("Book", "Chapter")]


def test_a_long_section_is_cut_at_blank_lines() -> None:
    paragraph = "word " * 100
    sections = cut_sections("# Long\n\n" + f"{paragraph}\n\n" * 20, "markdown")
    assert len(sections) == 4
    assert all(len(section.text) <= MAX_SECTION for section in sections)
    assert {section.headings for section in sections} == {("Long",)}
    assert sum(section.text.count("word") for section in sections) == 2_000


def test_a_heading_alone_is_no_section() -> None:
    assert cut_sections("# A\n\n## B\n", "markdown") == ()


@given(
    st.text(alphabet=st.sampled_from("#=-~`ab \n\t|>\0é"), max_size=300),
    st.sampled_from(["markdown", "rst", "asciidoc", "text"]),
)
def test_any_text_is_cut_into_its_own_lines(text: str, language: str) -> None:
    lines = text.split("\n")
    last = 0
    for section in cut_sections(text, language):
        assert last < section.start <= section.end <= len(lines)
        assert section.text in text
        last = section.start


@pytest.mark.timeout(10)
def test_a_hostile_document_costs_little() -> None:
    assert len(cut_sections("=" * 1_000_000 + "\n" + "a\n" * 200_000, "rst")) > 10
