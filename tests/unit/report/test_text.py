from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup, escape

from agent.report.text import Clean, Cleaner, Shown, Span, TextBlock, blocks_of, visible


def test_headings_code_and_paragraphs() -> None:
    text = "Title\nmore\n\n## What `x` does\n```python\na\n\n  b\n```\nafter `code` end\n~~~\nopen"
    assert blocks_of(text) == (
        TextBlock("text", (Span("Title\nmore"),)),
        TextBlock("heading", (Span("What "), Span("x", code=True), Span(" does"))),
        TextBlock("code", (Span("a\n\n  b"),)),
        TextBlock("text", (Span("after "), Span("code", code=True), Span(" end"))),
        TextBlock("code", (Span("open"),)),
    )


def test_links_and_html_stay_text() -> None:
    text = "[x](javascript:alert(1)) <b>bold</b> ![y](http://example.org/z.png)"
    assert blocks_of(text) == (TextBlock("text", (Span(text),)),)


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


SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
ANY = st.text(st.characters(), max_size=300)


@given(ANY)
def test_nothing_hidden_is_left_and_lines_are_kept(text: str) -> None:
    shown = visible(text)
    hidden = [c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Cn", "Zl", "Zp")]
    assert {c for c in hidden if unicodedata.category(c) != "Cn"} <= {"\n", "\t"}
    assert shown.count("\n") == text.replace("\r\n", "\n").count("\n")
    assert visible(shown) == shown


def test_controls_have_names() -> None:
    assert visible("a\x00\x1b[1m\x7f\u202e\u200b\ufeff\x85\u00e9\u200d\r\nb\rc") == (
        "a␀␛[1m␡⟨U+202E⟩⟨U+200B⟩⟨U+FEFF⟩⟨U+0085⟩é\u200d\nb␍c"
    )
    assert visible("\U000e0041\u2028") == "⟨U+E0041⟩⟨U+2028⟩"


@given(ANY, st.integers(0, 120))
def test_a_head_takes_no_more_room_than_it_may(text: str, limit: int) -> None:
    shown = Cleaner().head(text, limit)
    assert len(escape(shown.text).encode()) <= limit
    assert visible(text).startswith(shown.text)
    assert bool(shown.cut) is (shown.text != visible(text))


@given(ANY, st.integers(0, 120))
def test_a_tail_is_the_end_of_the_text(text: str, limit: int) -> None:
    shown = Cleaner().tail(text, limit)
    assert visible(text).endswith(shown.text)
    assert len(escape(shown.text).encode()) <= limit


def test_what_was_cut_is_counted_in_bytes() -> None:
    assert Cleaner().head("a" * 100_000, 10) == Shown(Clean("a" * 10), 99_990)
    assert Cleaner().head("é" * 10, 7) == Shown(Clean("é" * 3), 14)
    assert Cleaner().head("read", 10, size=1000) == Shown(Clean("read"), 996)
    assert Cleaner().tail("one\ntwo\nthree", 8) == Shown(Clean("three"), 8, "start")
    assert Cleaner().tail("the end", 10, size=1007) == Shown(Clean("the end"), 1000, "start")


def test_secrets_are_masked_even_across_the_cut() -> None:
    text = "x " * 10 + SECRET
    clean = Cleaner(lambda text: text.replace("hunter2-and-more", "***"))
    assert "ghp" not in clean.head(text, 30).text.replace("<secret removed>", "")
    assert clean.line(f"key {SECRET}") == "key <secret removed>"
    assert clean.line("password hunter2-and-more") == "password ***"
    assert clean.value(f"{SECRET}\n") == "<secret removed>\n"


def test_a_line_is_the_first_one_and_not_long() -> None:
    assert Cleaner().line("\n\n first\tone \nsecond") == "first one "
    assert Cleaner().line("a" * 400, 5) == "aaaa…"


def test_values_are_cleaned_once_and_markup_is_left() -> None:
    clean = Cleaner()
    assert clean.value(3) == 3
    assert clean.value(Markup("<b>\x00")) == Markup("<b>\x00")
    assert clean.value("a\x00") == "a␀"
    assert clean.value("y" * 5000) == "y" * 2000 + " (cut: 3,000 bytes more)"
