from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.search.intents import IntentFile, IntentSource, clean, parse_intents
from agent.search.passages import Label
from agent.search.symbols import read_symbols
from tests.support.corpora import FILES, small_index
from tests.support.fakes import MemorySnapshot

FIVE = tuple(f"I want to do thing number {n}" for n in range(5))


def test_templates_stand_in_where_no_model_wrote() -> None:
    found = IntentSource(small_index()).passages(MemorySnapshot(FILES), threading.Event())
    own = [p for p in found if p.symbol == "CookieJar.expire"]
    assert {p.tags for p in found} == {("templates",)}
    assert {p.corpus for p in found} == {Label.INTENT}
    assert own[0].title == "I want to: Drop cookies that are out of date"
    assert own[0].text == (
        "NAME: CookieJar.expire\nTYPE: method\nFILE: shop/cookies.py\n"
        "DESCRIPTION: I want to: Drop cookies that are out of date"
    )
    assert (own[0].path, own[0].start, own[0].end) == ("shop/cookies.py", 7, 12)
    assert len({p.place for p in found}) == len(found)


def test_what_a_model_wrote_replaces_the_templates(tmp_path: Path) -> None:
    index, snapshot = small_index(), MemorySnapshot(FILES)
    symbol = next(s for s in read_symbols(snapshot, index) if s.leaf == "expire")
    IntentFile(tmp_path / "book.jsonl").add(symbol, "m", FIVE)
    found = IntentSource(index, IntentFile(tmp_path / "book.jsonl")).passages(
        snapshot, threading.Event()
    )
    own = [p for p in found if p.symbol == "CookieJar.expire"]
    assert [p.title for p in own] == list(FIVE)
    assert {p.tags for p in own} == {("model",)}
    changed = {**FILES, "shop/cookies.py": FILES["shop/cookies.py"].replace("return 0", "return 1")}
    later = IntentSource(index, IntentFile(tmp_path / "book.jsonl")).passages(
        MemorySnapshot(changed), threading.Event()
    )
    assert {p.tags for p in later if p.symbol == "CookieJar.expire"} == {("templates",)}


def test_a_book_is_kept_by_content_model_and_prompt(tmp_path: Path) -> None:
    symbol = read_symbols(MemorySnapshot(FILES), small_index())[0]
    book = IntentFile(tmp_path / "book.jsonl")
    book.add(symbol, "one", FIVE[:2])
    book.add(symbol, "two", FIVE[2:])
    again = IntentFile(tmp_path / "book.jsonl")
    again.refresh()
    assert again.of(symbol, "one") == FIVE[:2]
    assert again.newest(symbol)[1] == FIVE[2:]
    assert again.of(symbol, "three") == ()
    line = json.loads((tmp_path / "book.jsonl").read_text().splitlines()[0])
    (tmp_path / "old.jsonl").write_text(json.dumps({**line, "prompt": 0}) + "\n")
    old = IntentFile(tmp_path / "old.jsonl")
    old.refresh()
    assert old.newest(symbol)[1] == ()


@pytest.mark.parametrize(
    "reply",
    [
        json.dumps({"intents": FIVE}),
        json.dumps(FIVE),
        f"Sure!\n```json\n{json.dumps({'intents': FIVE}, indent=2)}\n```\nAnything else?",
        json.dumps({"intents": FIVE})[:-2] + ',"I want to be cut of',
        "\n".join(f"{n}. {intent}" for n, intent in enumerate(FIVE, start=1)),
        "Here they are:\n" + "\n".join(f"- {intent}" for intent in FIVE),
        json.dumps({"intents": [{"text": intent} for intent in FIVE]}),
        json.dumps({"intents": [*FIVE, *FIVE, "I want a sixth one too"]}),
    ],
)
def test_replies_of_all_shapes_are_read(reply: str) -> None:
    assert parse_intents(reply)[:5] == FIVE


@pytest.mark.parametrize(
    "reply", ["", "I cannot do that.", '{"intents": []}', '{"intents": ["x"]}']
)
def test_replies_without_intents(reply: str) -> None:
    assert parse_intents(reply) == ()


@given(st.text(max_size=400))
def test_any_reply_gives_at_most_ten_printable_lines(reply: str) -> None:
    found = parse_intents(reply)
    assert len(found) <= 10
    assert len(set(found)) == len(found)
    assert all(8 <= len(intent) <= 200 and intent.isprintable() for intent in found)


def test_secrets_in_a_reply_are_masked() -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    (intent,) = clean([f"I want to use the token {key} now"])
    assert key not in intent
