from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.repository.text import DecodedText, declared_encoding, decode, is_binary


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", DecodedText("", "utf-8", False)),
        (b"a\nb\n", DecodedText("a\nb\n", "utf-8", False)),
        (b"a\r\nb\r\n", DecodedText("a\nb\n", "utf-8", False)),
        (b"a\r\nb\n", DecodedText("a\nb\n", "utf-8", False)),
        (b"a\rb\r", DecodedText("a\nb\n", "utf-8", False)),
        # A lone carriage return inside a line-feed file belongs to its line.
        (b"a\rb\n", DecodedText("a\rb\n", "utf-8", False)),
        (b"a\r\r\nb", DecodedText("a\nb", "utf-8", False)),
        ("\ufeffé\n".encode(), DecodedText("é\n", "utf-8", True)),
        (codecs.BOM_UTF16_LE + "é\r\n".encode("utf-16-le"),
         DecodedText("é\n", "utf-16-le", True)),
        (codecs.BOM_UTF16_BE + "é".encode("utf-16-be"),
         DecodedText("é", "utf-16-be", True)),
        (codecs.BOM_UTF32_LE + "é".encode("utf-32-le"),
         DecodedText("é", "utf-32-le", True)),
        (b"caf\xe9 \x80\n", DecodedText("café €\n", "cp1252", False)),
        (b"caf\xe9 \x81\n", DecodedText("café \x81\n", "latin-1", False)),
        # Mostly UTF-8 with one bad byte is damaged UTF-8, not cp1252.
        ("äöü".encode() + b"\xff", DecodedText("äöü\ufffd", "utf-8", False, True)),
        # Odd number of bytes: the last is half a character.
        (codecs.BOM_UTF16_LE + b"a\0b", DecodedText("a\ufffd", "utf-16-le", True, True)),
    ],
)  # fmt: skip
def test_decoding(data: bytes, expected: DecodedText) -> None:
    assert decode(data) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"#!/usr/bin/python\n# vim: set fileencoding=latin-1 :\n", "iso8859-1"),
        (b"\n# coding: utf8\n", "utf-8"),
        (b"x = 1\n# coding: latin-1\n", "utf-8"),  # not in the comment lines at the top
        (b"# a\n# b\n# coding: latin-1\n", "utf-8"),  # third line
        (b"# coding: no-such-codec\n", None),
        (b"# coding: unicode_escape\n", None),  # rewrites the text
        (b"# coding: punycode\n", None),  # quadratic
        (b"# coding: rot13\n", None),
        (b"# coding: zlib\n", None),
        (b"# coding: gb18030\n", "gb18030"),
        (b"# coding: cp1252\n", "cp1252"),
        (b"# coding: euc-jp\n", "euc_jp"),
    ],
)
def test_declared_encodings_are_character_encodings_only(data: bytes, expected: str | None) -> None:
    assert declared_encoding(data) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", False),
        (b"text\n", False),
        (b"\x89PNG\0", True),
        (b"a" * 8191 + b"\0", True),
        (b"a" * 8192 + b"\0", False),
        ("\ufeffabc".encode("utf-16-le"), False),
        ("\ufeffabc".encode("utf-16-be"), False),
        ("\ufeffabc".encode("utf-32-le"), False),
        ("\ufeffa\0bc".encode(), True),  # a UTF-8 mark explains no NUL
        ("abc".encode("utf-16-le"), True),
    ],
)
def test_binary_detection(data: bytes, expected: bool) -> None:
    assert is_binary(data) is expected


@given(st.binary(max_size=300), st.booleans())
def test_decoding_never_fails_and_leaves_no_crlf(data: bytes, cookie: bool) -> None:
    decoded = decode(data, cookie=cookie)
    assert "\r\n" not in decoded.text
    decoded.text.encode("utf-8", "surrogatepass")
