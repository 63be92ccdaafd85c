from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.pages.prose import Block, Span, blocks_of


def test_headings_code_and_paragraphs() -> None:
    text = "Title\nmore\n\n## What `x` does\n```python\na\n\n  b\n```\nafter `code` end\n~~~\nopen"
    assert blocks_of(text) == (
        Block("text", (Span("Title\nmore"),)),
        Block("heading", (Span("What "), Span("x", code=True), Span(" does"))),
        Block("code", (Span("a\n\n  b"),)),
        Block("text", (Span("after "), Span("code", code=True), Span(" end"))),
        Block("code", (Span("open"),)),
    )


def test_links_and_html_stay_text() -> None:
    text = "[x](javascript:alert(1)) <b>bold</b> ![y](http://example.org/z.png)"
    assert blocks_of(text) == (Block("text", (Span(text),)),)


@given(st.text("ab `~#\n<", max_size=60))
def test_every_letter_is_kept(text: str) -> None:
    shown = "".join(span.text for block in blocks_of(text) for span in block.spans)
    assert (
        [c for c in shown if c in "<"] == [c for c in text if c in "<"]
        or "`" in text
        or ("~" in text)
    )
    assert sum(c in "ab" for c in shown) >= sum(
        c in "ab" for line in text.split("\n") if line[:3] not in ("```", "~~~")
        and not line.lstrip(" ").startswith(("```", "~~~")) for c in line
    )  # fmt: skip
