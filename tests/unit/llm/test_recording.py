"""`agent.llm.recording`: what was recorded is what is answered."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from agent.errors import ProviderUnreachable, ReplayMismatch, UsageError
from agent.llm import Budget, BudgetedChatModel, Redactor
from agent.llm.recording import (
    Recorder,
    Recording,
    RecordingChatModel,
    RecordingEmbedder,
    ReplayingChatModel,
    ReplayingEmbedder,
)
from agent.types import Completion, Prompt, Usage
from agent.types.events import Event, Notice
from tests.support.llm import make_prompt, run
from tests.support.scripted_model import ScriptedChatModel

FIRST = Completion("{\u2028é}", "m-001", "stop", Usage(5, 6, None, 1), 1.5)
SECOND = Completion("", "m-001", "length", Usage(7, 8, 0.25, 1), 2.5)


class FakeEmbedder:
    """Each text becomes its length and its first character, unnormalised."""

    name = "fake:2"

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "document"]
    ) -> NDArray[np.float32]:
        return np.array([[len(t) / 3, ord(t[0]) / 7] for t in texts], dtype=np.float32)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "new" / "run.jsonl"


def record(file: Path, *pairs: tuple[Prompt, Completion]) -> None:
    with Recorder(file) as recorder:
        inner = ScriptedChatModel([completion for _, completion in pairs], model="m")
        model = RecordingChatModel(inner, recorder)
        for prompt, completion in pairs:
            assert run(model.complete(prompt, max_output_tokens=9)) == completion


def replay(file: Path, *prompts: Prompt) -> list[Completion]:
    model = ReplayingChatModel(Recording(file))
    return [run(model.complete(prompt, max_output_tokens=9)) for prompt in prompts]


def mismatch(act: Callable[[], object]) -> str:
    with pytest.raises(ReplayMismatch) as caught:
        act()
    assert "\n" not in str(caught.value)
    assert "--record" in str(caught.value)
    return str(caught.value)


def test_replies_come_back_as_recorded(file: Path) -> None:
    one, two = make_prompt("one"), make_prompt("two\ud83d")
    record(file, (one, FIRST), (two, SECOND), (one, SECOND))

    assert replay(file, one, two, one) == [FIRST, SECOND, SECOND]
    assert ReplayingChatModel(Recording(file)).model == "m"


def test_the_format_of_a_line(file: Path) -> None:
    prompt = make_prompt("one")
    record(file, (prompt, SECOND))

    (line,) = file.read_bytes().splitlines()
    assert json.loads(line) == {
        "format": 1,
        "kind": "chat",
        "sha256": prompt.sha256,
        "request": {
            "model": "m",
            "messages": [
                {"role": "system", "content": "You fix code."},
                {"role": "user", "content": "one"},
            ],
            "max_output_tokens": 9,
        },
        "reply": {
            "text": "",
            "model": "m-001",
            "finish_reason": "length",
            "usage": {"input_tokens": 7, "output_tokens": 8, "cost_usd": 0.25, "calls": 1},
        },
        "seconds": 2.5,
    }


def test_each_exchange_is_on_disk_at_once(file: Path) -> None:
    recorder = Recorder(file)
    model = RecordingChatModel(ScriptedChatModel(["a", "b"]), recorder)
    assert not file.exists()
    for count in (1, 2):
        run(model.complete(make_prompt(), max_output_tokens=9))
        assert len(file.read_bytes().splitlines()) == count
    recorder.close()
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_an_older_recording_stays_until_the_first_exchange(file: Path) -> None:
    record(file, (make_prompt("old"), FIRST))
    with Recorder(file) as recorder:
        failing = RecordingChatModel(ScriptedChatModel([ProviderUnreachable("x: y")]), recorder)
        with pytest.raises(ProviderUnreachable):
            run(failing.complete(make_prompt("new"), max_output_tokens=9))
    assert replay(file, make_prompt("old")) == [FIRST]

    record(file, (make_prompt("new"), SECOND))
    assert replay(file, make_prompt("new")) == [SECOND]
    assert len(file.read_bytes().splitlines()) == 1


@pytest.mark.parametrize("place", ["folder", "file/below", "/dev/null"])
def test_where_nothing_can_be_recorded(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")

    with pytest.raises(UsageError, match="cannot be recorded to"):
        record(tmp_path / place, (make_prompt(), FIRST))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
    assert Path("/dev/null").is_char_device()


def test_another_prompt_is_told_apart_by_its_line(file: Path) -> None:
    record(file, (make_prompt("same\nold line\nend"), FIRST))

    said = mismatch(lambda: replay(file, make_prompt("same\nnew line\nend")))

    assert f"exchange 1 of {file} was recorded for another prompt" in said
    assert "text 2, line 2: recorded 'old line', now 'new line'" in said


def test_what_was_not_asked_counts_as_no_call(file: Path) -> None:
    record(file, (make_prompt("old"), FIRST))
    model = BudgetedChatModel(ReplayingChatModel(Recording(file)), Budget())

    mismatch(lambda: run(model.complete(make_prompt("new"), max_output_tokens=9)))

    assert model.usage.calls == 0


def test_a_recording_that_is_used_up(file: Path) -> None:
    record(file, (make_prompt(), FIRST))

    assert "no further model call" in mismatch(lambda: replay(file, *[make_prompt()] * 2))
    assert not Recording(file).has_embeddings
    embedder = ReplayingEmbedder(Recording(file))
    assert "no further embedding call" in mismatch(lambda: run(embedder.embed(["a"], kind="query")))


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line[: len(line) // 2],
        lambda line: line.replace(b'"format":1', b'"format":2'),
        lambda line: line.replace(b'"kind":"chat"', b'"kind":"song"'),
        lambda line: line.replace(b'"seconds"', b'"extra":1,"seconds"'),
        lambda line: b"[]",
        lambda line: b"\xff",
        lambda line: line.replace(b'"text":"', b'"text":3,"x":"'),
    ],
)
def test_a_damaged_line_is_named(file: Path, damage: Callable[[bytes], bytes]) -> None:
    record(file, (make_prompt("one"), FIRST), (make_prompt("two"), SECOND))
    first, second = file.read_bytes().splitlines()
    file.write_bytes(first + b"\n" + damage(second))

    assert f"line 2 of {file} is not a recorded exchange" in mismatch(lambda: Recording(file))


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be replayed"):
        Recording(tmp_path / "none.jsonl")


def record_embedding(file: Path, texts: list[str]) -> NDArray[np.float32]:
    with Recorder(file) as recorder:
        embedder = RecordingEmbedder(FakeEmbedder(), recorder)
        return run(embedder.embed(texts, kind="document"))


def test_vectors_come_back_bit_by_bit(file: Path) -> None:
    vectors = record_embedding(file, ["abc", "d"])
    embedder = ReplayingEmbedder(Recording(file))

    again = run(embedder.embed(["abc", "d"], kind="document"))

    assert again.dtype == np.float32
    assert again.tobytes() == vectors.tobytes()
    assert again.shape == (2, 2)
    assert embedder.name == "fake:2"
    assert Recording(file).has_embeddings


def test_other_texts_or_another_kind_do_not_match(file: Path) -> None:
    record_embedding(file, ["abc"])

    def embed(texts: list[str], kind: Literal["query", "document"]) -> Callable[[], Any]:
        return lambda: run(ReplayingEmbedder(Recording(file)).embed(texts, kind=kind))

    assert "text 1, line 1: recorded 'abc', now 'abd'" in mismatch(embed(["abd"], "document"))
    assert "or another kind of call" in mismatch(embed(["abc"], "query"))
    assert "recorded 1 texts, now 2" in mismatch(embed(["abc", "x"], "document"))


@pytest.mark.parametrize("change", [("vectors", "AAAA"), ("vectors", "*"), ("rows", 2)])
def test_damaged_vectors(file: Path, change: tuple[str, object]) -> None:
    record_embedding(file, ["abc"])
    exchange = json.loads(file.read_bytes())
    exchange["reply"][change[0]] = change[1]
    file.write_text(json.dumps(exchange))
    embedder = ReplayingEmbedder(Recording(file))

    assert "damaged vectors" in mismatch(lambda: run(embedder.embed(["abc"], kind="document")))


def test_keys_are_masked_in_a_recording_and_it_is_still_found(file: Path) -> None:
    events: list[Event] = []
    hide = Redactor(["my-own-key-1"]).known
    told = make_prompt("The key is my-own-key-1.")
    with Recorder(file, hide, events.append) as recorder:
        inner = ScriptedChatModel(["You sent my-own-key-1.", "my-own-key-1"], model="m")
        model = RecordingChatModel(inner, recorder)
        for _ in range(2):
            done = run(model.complete(told, max_output_tokens=9))
            assert "my-own-key-1" in done.text
        embedder = RecordingEmbedder(FakeEmbedder(), recorder)
        run(embedder.embed(["my-own-key-1"], kind="document"))

    assert b"my-own-key-1" not in file.read_bytes()
    assert len(events) == 1
    assert isinstance(events[0], Notice)
    assert [done.text for done in replay(file, told, told)] == ["You sent ***.", "***"]
