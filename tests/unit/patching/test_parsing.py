"""Replies in every accepted shape, failures of others, and hostile texts."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.patching.parsing import load_json, parse_reply
from agent.types import (
    CreateFile,
    DeleteFile,
    ParseFailure,
    PatchProposal,
    ReproductionTest,
    SearchReplace,
)

EDIT = {"path": "a.py", "search": "old", "replace": "new"}
REPLY = json.dumps({"edits": [EDIT]})
WANTED = (SearchReplace("a.py", "old", "new"),)
FULL = json.dumps(
    {
        "thought": "because",
        "edits": [
            {**EDIT, "line": 3},
            {"path": "b.py", "create": "x = 1\n"},
            {"path": "c.py", "delete": True},
        ],
        "reproduction_test": {"path": "tests/test_a.py", "content": "def test(): ..."},
        "missing": ["d.py:f"],
    }
)
FULL_PROPOSAL = PatchProposal(
    edits=(
        SearchReplace("a.py", "old", "new", 3),
        CreateFile("b.py", "x = 1\n"),
        DeleteFile("c.py"),
    ),
    thought="because",
    reproduction_test=ReproductionTest("tests/test_a.py", "def test(): ..."),
    missing=("d.py:f",),
    reader="json",
)


def failure(text: str, finish_reason: str = "stop") -> ParseFailure:
    outcome = parse_reply(text, finish_reason=finish_reason)
    assert isinstance(outcome, ParseFailure), outcome
    return outcome


def test_reads_every_field() -> None:
    assert parse_reply(FULL) == FULL_PROPOSAL


@pytest.mark.parametrize(
    ("text", "reader"),
    [
        (REPLY, "json"),
        (f"\ufeff\n {REPLY} \n", "json"),
        (f"<think>maybe {{'x': 1}}</think>\n{REPLY}", "json"),
        (f"```json\n{REPLY}\n```", "json"),
        (json.dumps({"thought": "x", "code_response": f"```json\n{REPLY}\n```"}), "json"),
        (f"Here it is:\n\n```json\n{REPLY}\n```\nDone.", "json"),
        (f"```\n{REPLY}\n```", "json"),
        (f"~~~JSON\n{REPLY}\n~~~", "json"),
        (f"```json\n{REPLY}", "json"),
        (f"The fix is {REPLY} as you see.", "json"),
        (f"f'{{x}}' and {{'a': 1}} are no reply. {REPLY}", "json"),
        (f'```python\n{{"a": b}}\n```\nNow: {REPLY}', "json"),
        (f'Format: {{"edits": [...]}}. Mine: {REPLY}', "json"),
        (f'{{"edits": []}} was my first thought. {REPLY}', "json"),
        (f"{REPLY}\nOnce more:\n{REPLY}", "json"),
        (REPLY.replace("}]", "},]"), "json-lenient"),
        (REPLY.replace('"a.py"', '"a.py" // here\n'), "json-lenient"),
        (repr({"edits": [EDIT], "reproduction_test": None}), "json-lenient"),
        (f"```json\n{REPLY.replace('}]', '},]')}\n```", "json-lenient"),
        (json.dumps({"edits": [{**EDIT, "why": "x"}], "confidence": 1}), "json"),
        ("a.py\n<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE\n", "search-replace"),
    ],
)
def test_names_the_shape_that_it_read(text: str, reader: str) -> None:
    edits = (SearchReplace("a.py", "old\n", "new\n"),) if reader == "search-replace" else WANTED
    assert parse_reply(text) == PatchProposal(edits, reader=reader)


def test_raw_line_breaks_in_strings_are_kept() -> None:
    text = '{"edits": [{"path": "a.py", "search": "if x:\n\treturn", "replace": "pass"}]}'
    assert parse_reply(text) == PatchProposal(
        (SearchReplace("a.py", "if x:\n\treturn", "pass"),), reader="json-lenient"
    )


def test_a_fence_inside_a_string_ends_nothing() -> None:
    create = {"path": "README.md", "create": "```json\n{}\n```\n"}
    fenced = f"```json\n{json.dumps({'edits': [create]}, indent=1)}\n```"
    assert parse_reply(fenced) == PatchProposal(
        (CreateFile("README.md", "```json\n{}\n```\n"),), reader="json"
    )


def test_null_fields_count_as_absent() -> None:
    edit = {**EDIT, "line": None, "create": None, "delete": None}
    reply = {"thought": None, "edits": [edit], "reproduction_test": None, "missing": None}
    outcome = parse_reply(json.dumps(reply))
    assert outcome == PatchProposal(WANTED, reader="json")


@pytest.mark.parametrize("text", ["", " \n\t", "<think>hm</think>\n"])
def test_empty(text: str) -> None:
    assert failure(text).kind == "empty"


def test_a_request_for_code_repeats_the_thought_and_all_names() -> None:
    names = tuple(f"b.py:g{number}" for number in range(12))
    fields = {"thought": "b.py decides", "edits": [], "missing": names}
    test = {"path": "tests/test_b.py", "content": "x = 1\n"}
    assert failure(json.dumps({**fields, "reproduction_test": test})) == ParseFailure(
        "needs-code",
        f"the reply asks for code: {', '.join(names)}; its thought: b.py decides",
        missing=names,
        reproduction_test=ReproductionTest("tests/test_b.py", "x = 1\n"),
    )


@pytest.mark.parametrize("text", ['{"missing": ["b.py"]}', '{"edits": [], "missing": "b.py"}'])
def test_a_request_may_leave_the_list_of_edits_or_of_names_out(text: str) -> None:
    found = failure(text)
    assert (found.kind, found.missing) == ("needs-code", ("b.py",))


@pytest.mark.parametrize("missing", [[], [""], None])
def test_an_empty_reply_that_names_no_code_is_no_request(missing: list[str] | None) -> None:
    assert failure(json.dumps({"edits": [], "missing": missing})).kind == "no-edit"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ({"edits": [EDIT, {"path": "b", "replace": "x"}]}, "edits[1].search: Field required"),
        ({"edits": [{**EDIT, "path": 3}]}, "edits[0].path: Input should be a valid string"),
        ({"edits": [{**EDIT, "line": "3"}]}, "edits[0].line: Input should be a valid integer"),
        ({"edits": [{**EDIT, "line": True}]}, "edits[0].line: Input should be a valid integer"),
        ({"edits": ["x"]}, "edits[0]: must be an object"),
        ({"edits": {"path": "a"}}, "edits: must be a list"),
        ({"edits": [{**EDIT, "create": ""}]}, "needs one of"),
        ({"edits": [{"path": "a", "text": "x"}]}, "it has 'path', 'text'"),
        ({"edits": [{"path": "a", "delete": False}]}, "edits[0]: needs one"),
        ({"edits": [{"path": "a", "delete": "yes"}]}, "edits[0].delete: Input should be True"),
        ({"edits": [EDIT], "thought": 1}, "thought: Input should be a valid string"),
        ({"edits": [EDIT], "missing": [1]}, "missing[0]: Input should be a valid string"),
        (
            {"edits": [EDIT], "reproduction_test": {"path": "t"}},
            "reproduction_test.content: Field required",
        ),
        ({"edits": [EDIT] * 501}, "edits: 501 are too many"),
        ({"thought": "x"}, "edits: missing (the object has 'thought')"),
        ({"edits": None}, "edits: missing"),
    ],
)
def test_schema_problems_name_their_place(reply: Any, reason: str) -> None:
    outcome = failure(json.dumps(reply))
    assert outcome.kind == "schema"
    assert reason in outcome.reason


@pytest.mark.parametrize("text", ["I cannot help with that.", "null", "17", "{x}", "[]"])
def test_a_reply_without_an_object_is_malformed(text: str) -> None:
    assert failure(text).kind == "malformed"


@pytest.mark.parametrize("cut", range(1, len(FULL)))
def test_every_cut_of_a_reply_is_truncated(cut: int) -> None:
    assert failure(FULL[:cut]).kind == "truncated"
    assert failure(f"```json\n{FULL[:cut]}").kind == "truncated"


def test_cut_off_at_the_output_limit() -> None:
    assert failure("I will first", "length").kind == "truncated"
    assert failure("", "length").kind == "truncated"
    assert parse_reply(FULL, finish_reason="length") == FULL_PROPOSAL
    blocks = "a.py\n<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE\nand"
    assert failure(blocks, "length").kind == "truncated"


@pytest.mark.parametrize(
    "text",
    [
        # Two replies that differ: each may be one half.
        f"```json\n{REPLY}\n```\n```json\n{REPLY.replace('a.py', 'b.py')}\n```",
        # A broken one beside a whole one.
        f'{{"edits": [{{"path": "b.py", "create": "say "hi""}}]}}\n{REPLY}',
        f'{REPLY}\n{{"edits": [{{"path": "b.py", "create": "say "hi""}}]}}',
        # A key given twice: two edits in one object.
        '{"edits": [{"path": "a", "search": "x", "replace": "y", "search": "z", "replace": "w"}]}',
        # JSON and blocks.
        f"{REPLY}\nb.py\n<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE\n",
    ],
)
def test_nothing_is_half_read(text: str) -> None:
    assert failure(text).kind == "malformed"


@given(st.text() | st.text("{}[]\"'\\,:/*\n` <>=SEARCHREPLACEedits", max_size=60))
def test_arbitrary_text_never_raises(text: str) -> None:
    for outcome in (parse_reply(text), load_json(text), parse_reply(text, finish_reason="length")):
        if isinstance(outcome, ParseFailure):
            outcome.reason.encode()  # printable: no half surrogates


_BIG = 10_000_000


_UNITS = (
    *("{", "[", '{"', "{'", '{"a":', '{"a', "{/*", '{"a":"x",', "{}", "```\n", "<think>", "a"),
    *('{"edits":[1]}', '{"edits":', "<<<<<<< SEARCH\n", "```json\n{", '{"edits":["', " \n", "//"),
    *("a.py \n", "\\"),
)


@pytest.mark.parametrize("unit", _UNITS)
def test_ten_megabytes_of_anything_take_less_than_two_seconds(unit: str) -> None:
    text = unit * (_BIG // len(unit))
    started = time.process_time()
    assert isinstance(parse_reply(text), ParseFailure)
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "text",
    [
        '{"action": "read", "path": "a.py"}',
        '```json\n{"action": "read", "path": "a.py"}\n```',
        "I look at it. {'action': 'read', 'path': 'a.py',} Then I decide.",
    ],
)
def test_load_json_gives_an_action(text: str) -> None:
    assert load_json(text) == {"action": "read", "path": "a.py"}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "empty"),
        ("done", "malformed"),
        ('{"action": "rea', "truncated"),
        ('{"tool": "read"}', "schema"),
        ('{"action": "read"} {"action": "list"}', "malformed"),
    ],
)
def test_load_json_says_why_not(text: str, kind: str) -> None:
    outcome = load_json(text)
    assert isinstance(outcome, ParseFailure)
    assert outcome.kind == kind
