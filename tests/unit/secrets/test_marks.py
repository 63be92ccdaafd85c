from __future__ import annotations

import re
from collections.abc import Iterable

from hypothesis import example, given
from hypothesis import strategies as st

from agent.secrets import detectors, finding
from agent.secrets.marks import lines_with, places_of

# What begins, continues and ends a secret, and what makes the quick way and the plain one differ:
# neighbours, other cases, letters that only ignoring case makes ASCII, long runs, line ends.
_FRAGMENTS = [
    *("AKIA", "ghp_", "github_pat_", "glpat-", "xoxb-", "AIza", "sk-", "sk_live_", "hf_", "SG."),
    *("eyJ", "sk-ant-ab12-", "pypi-AgEIcHlwaS5vcmc", "-----BEGIN RSA PRIVATE KEY-----", "-----"),
    *("secret", "TOKEN", "Passwd", "api_key", "apiKey", "AccountKey", "public", "credentials"),
    *("\u017fecret", "to\u212aen", "ap\u0131_key", "PR\u0130VATE_KEY", "é", "\ud800", "日本"),
    *("postgres://user:", "https://", "://", "@", ":", "/", "=", ' = "', "' : '", '"', "'", "\\"),
    *("a1B2c3D4e5F6g7H8i9J0", "0123456789abcdef0123", "x" * 19, "-" * 21, "+/" * 21, "==", "_"),
    *("\n", "\n\n", "\r", "\u2028", " ", "\t", "; ", "."),
]
_TEXTS = st.lists(st.sampled_from(_FRAGMENTS), max_size=14).map("".join)


def _spans(matches: Iterable[re.Match[str]]) -> list[tuple[int, int]]:
    return [match.span() for match in matches]


@given(_TEXTS)
@example('public_key = "a1B2c3D4e5F6g7H8i9J0"')
@example("glpat-a1B2c3D4e5F6g7H8i9J0-AKIAABCDEFGHIJKLMNOP")
def test_patterns_find_at_their_marks_what_they_find_anywhere(text: str) -> None:
    for pattern, marks in (
        (finding._TOKENS, finding._TOKEN_MARKS),
        (finding._SK_KEY, finding._SK_MARKS),
        (finding._KEY_BLOCK, finding._KEY_BLOCK_MARKS),
    ):
        quick = finding._matches(pattern, text, places_of(text, marks))
        assert _spans(quick) == _spans(pattern.finditer(text))


@given(_TEXTS)
@example('to\u212aen = "a1B2c3D4e5F6g7H8i9J0"')
def test_named_values_are_those_of_the_patterns(text: str) -> None:
    assert _spans(finding._assigned(text)) == _spans(finding._ASSIGNED.finditer(text))
    quick = finding._passwords_in_urls(text)
    assert _spans(quick) == _spans(finding._URL_PASSWORD.finditer(text))


@given(_TEXTS)
def test_runs_are_those_of_the_pattern(text: str) -> None:
    assert _spans(detectors._runs(text)) == _spans(detectors._RUN.finditer(text))


def test_places_are_told_in_characters_each_once() -> None:
    assert places_of("é tok, TOKEN token", ("token", "tok"), any_case=True) == [2, 7, 13]
    assert places_of("é tok, TOKEN token", ("token",)) == [13]


def test_lines_with_a_mark() -> None:
    text = "a://b c://d\nnothing\ne://"
    assert [text[start:end] for start, end in lines_with(text, "://")] == ["a://b c://d", "e://"]
