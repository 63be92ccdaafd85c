from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.corpora.sections import MAX_SECTION, Section, cut_sections

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
