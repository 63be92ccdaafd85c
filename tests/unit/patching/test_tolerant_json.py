"""The tolerant parser agrees with `json` on valid JSON, names slips and refuses to guess."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.patching.tolerant_json import MAX_DEPTH, MAX_VALUES, Fault, Found, parse_at

_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(-1e9, 1e9) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(_VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_agrees_with_the_standard_parser_on_json(value: Any, ascii: bool, indent: int) -> None:
    text = json.dumps(value, ensure_ascii=ascii, indent=indent)
    assert parse_at(text, 0) == Found(json.loads(text), 0, len(text))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1,}', {"a": 1}),
        ("[1, 2, ]", [1, 2]),
        ('{"a": 1 // one\n}', {"a": 1}),
        ('{/* a, "b": 2 */ "a": 1}', {"a": 1}),
        ('["a\nb\tc"]', ["a\nb\tc"]),
        ("{'a': 'say \"hi\"'}", {"a": 'say "hi"'}),
        (r"['it\'s']", ["it's"]),
        ('{"a": 1 # one\n}', {"a": 1}),
        (r'["\d+\."]', [r"\d+\."]),
    ],
)
def test_takes_slips(text: str, value: Any) -> None:
    assert parse_at(text, 0) == Found(value, 0, len(text), lenient=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "given twice"),
        (r'["\d\n"]', "no JSON escape"),
        (r"['\x41']", "no JSON escape"),
        ('["a\n" "b"]', 'expected "," or "]"'),
        ('{"a": "x"y"}', 'expected "," or "}"'),
        ("['don't']", 'expected "," or "]"'),
        ('{"a" 1}', 'expected ":"'),
        ("{a: 1}", "expected a quoted key"),
        ("[undefined]", "expected a value"),
        ("[NaN]", "expected a value"),
        (r'["\ud800"]', "half of a surrogate pair"),
        ('["\ud800"]', "half of a surrogate pair"),
        ("[" + "9" * 5000 + "]", "expected a value"),
        ("[" * (MAX_DEPTH + 2), "nested deeper"),
        ("[" + "1," * (MAX_VALUES + 2), "values"),
    ],
)
def test_refuses_to_guess(text: str, message: str) -> None:
    outcome = parse_at(text, 0)
    assert isinstance(outcome, Fault)
    assert message in outcome.message
    assert not outcome.truncated


def test_says_where_and_which_keys_were_seen() -> None:
    text = 'xx{"edits": [{"path": 1}], "thought": oops}'
    assert parse_at(text, 2) == Fault(
        start=2,
        offset=38,
        message="expected a value, found 'oops}'",
        truncated=False,
        reached=38,
        keys=("edits", "thought"),
    )


def test_stops_at_the_end_of_the_value() -> None:
    assert parse_at('{"a": 1, "a": 1} and more', 0) == Found({"a": 1}, 0, 16)


def test_joins_surrogate_pairs() -> None:
    assert parse_at(r'"\ud83d\ude00"', 0) == Found("😀", 0, 14)
