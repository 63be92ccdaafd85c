"""An edit changes no byte outside of it, in any encoding and with any line ends."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.patching.file_text import Spliced, open_text, plain


def edited(data: bytes, search: str, replacement: str) -> Spliced | str:
    file = open_text(data, python=True)
    assert file is not None
    start = file.text.index(search)
    return file.splice(start, start + len(search), replacement)


@pytest.mark.parametrize(
    ("data", "search", "replacement", "after", "line"),
    [
        (b"a\nb\nc\n", "b\n", "x\ny\n", b"a\nx\ny\nc\n", 2),
        (b"a\r\nb\r\nc\r\n", "b\n", "x\ny\n", b"a\r\nx\r\ny\r\nc\r\n", 2),
        (b"a\r\nb\r\nc\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\nc\r\n", 2),
        (b"a\rb\rc\r", "b\n", "x\ny\n", b"a\rx\ry\rc\r", 2),
        (b"a\r\r\nb\r\n", "a\nb", "a\nx\nb", b"a\r\r\nx\r\r\nb\r\n", 2),
        # mixed: context lines keep their own ends, new lines take that of the replaced region
        (b"a\r\nb\nc\r\nd\n", "a\nb\nc\n", "a\nB\nc\n", b"a\r\nB\nc\r\nd\n", 2),
        (b"a\nb\r\nc\n", "b\n", "x\ny\n", b"a\nx\r\ny\r\nc\n", 2),
        (b"a\nb\nc\r\nd\r\n", "c\nd\n", "c\nx\nd\n", b"a\nb\nc\r\nx\r\nd\r\n", 4),
        (b"a\r\nb", "b", "x\ny", b"a\r\nx\r\ny", 2),
        (b"a\nb\r\nc\n", "a\nb\nc\n", "z\n", b"z\n", 1),
        # no line end anywhere
        (b"a", "a", "b\nc", b"b\nc", 1),
        # final line feed as it was
        (b"a\nb", "b", "c", b"a\nc", 2),
        # a lone carriage return inside a line is a character
        (b"a\rb\nc\n", "c", "d", b"a\rb\nd\n", 2),
        # byte-order marks
        (codecs.BOM_UTF8 + b"a\r\nb\r\n", "a", "\u00e9", codecs.BOM_UTF8 + b"\xc3\xa9\r\nb\r\n", 1),
        # bytes that fit no encoding, in a file that is otherwise UTF-8
        (b"\xc3\xa9 \xc3\xa8 \xff\nb\n", "b", "\u00e9", b"\xc3\xa9 \xc3\xa8 \xff\n\xc3\xa9\n", 2),
        # latin-1 without a word, and with a coding cookie
        (b"caf\xe9\nb\n", "b", "\u00e9", b"caf\xe9\n\xe9\n", 2),
        (b"# coding: latin-1\nb\n", "b", "\u00e9", b"# coding: latin-1\n\xe9\n", 2),
        # no encoding is trusted to re-encode what lies outside
        (b"\x85\xa0\nb\n", "b", "c", b"\x85\xa0\nc\n", 2),
    ],
)
def test_exchanges_only_the_bytes_that_differ(
    data: bytes, search: str, replacement: str, after: bytes, line: int
) -> None:
    assert edited(data, search, replacement) == Spliced(after, line)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_wide_encodings(encoding: str) -> None:
    mark = "" if encoding in ("utf-16", "utf-32") else "\ufeff"
    data = f"{mark}a\r\nb😀\r\n".encode(encoding)
    assert edited(data, "b😀", "é\nc") == Spliced(f"{mark}a\r\né\r\nc\r\n".encode(encoding), 2)


def test_a_character_that_the_encoding_lacks_is_refused() -> None:
    refused = edited(b"# coding: latin-1\nb\n", "b", "→")
    assert isinstance(refused, str)
    assert "iso8859-1, which has no U+2192" in refused


def test_stateful_encodings_are_edited_without_loss_or_not_at_all() -> None:
    japanese = "# coding: iso2022_jp\nx = '日本'\ny = 1\n".encode("iso2022_jp")
    after = japanese.replace(b"y = 1", b"y = 2")
    assert edited(japanese, "y = 1", "y = 2") == Spliced(after, 3)
    assert isinstance(edited(japanese, "本", "木"), str)


@pytest.mark.parametrize("data", [b"a\0b", codecs.BOM_UTF16_LE + b"a\0b"])
def test_binary_and_damaged_files_are_not_text(data: bytes) -> None:
    assert open_text(data) is None


_ENDS = st.sampled_from(["\n", "\r\n", "\r\r\n"])
_LINES = st.lists(st.tuples(st.text("ab é", max_size=4), _ENDS), max_size=8)


@given(
    _LINES,
    st.text("ab\né", max_size=6),
    st.data(),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    st.booleans(),
)
def test_everything_outside_an_edit_is_byte_identical(
    lines: list[tuple[str, str]], new: str, data: st.DataObject, encoding: str, end: bool
) -> None:
    raw = "".join(line + ending for line, ending in lines) + ("" if end else "last")
    file = open_text(raw.encode(encoding))
    assert file is not None
    start = data.draw(st.integers(0, len(file.text)))
    stop = data.draw(st.integers(start, len(file.text)))
    done = file.splice(start, stop, new)
    assert isinstance(done, Spliced)
    first, last = file._raw_offset(start), file._raw_offset(stop)
    after = done.data.decode(encoding)
    assert after.startswith(raw[:first])
    assert after.endswith(raw[last:])
    assert plain(after[first : len(after) - len(raw[last:])]) == new or "\r" in raw
