"""Which instance a prompt asks about, and the server that answers from files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.errors import ConfigurationError
from benchmarks.instances.serving import (
    FINISH,
    MODEL,
    NO_REPLY,
    Asked,
    Book,
    Desk,
    FromFiles,
    PromptFolder,
    prompt_hash,
    read_rows,
)
from tests.support.scripted_provider import ScriptedProvider


def row(
    name: str = "owner__shop-1", statement: str = "Empty shop\n\nIt crashes.\n"
) -> dict[str, Any]:
    return {"instance_id": name, "problem_statement": statement}


def messages(text: str, *turns: str, system: str = "You fix bugs.") -> list[dict[str, str]]:
    said = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    for turn in turns:
        said += [{"role": "assistant", "content": turn}, {"role": "user", "content": "Again."}]
    return said


SHOWN = "<issue>\nEmpty shop\n\nIt crashes.\n</issue>"


def test_a_call_is_told_by_its_issue_its_turn_and_its_mode() -> None:
    other = row("owner__shop-2", "Empty shop\n\nIt crashes.\n\nAt night only.\n")
    book = Book([row(), other])

    assert book.asked(messages(SHOWN)) == Asked("owner__shop-1", 1, iterative=False)
    assert book.asked(messages(SHOWN, "no")) == Asked("owner__shop-1", 2, iterative=False)
    longer = messages("Empty shop\n\nIt crashes.\n\nAt night only.")
    assert book.asked(longer) == Asked("owner__shop-2", 1, iterative=False)
    steps = messages(SHOWN, system='Answer {"action": "read"}')
    assert book.asked(steps) == Asked("owner__shop-1", 1, iterative=True)
    assert book.asked(messages("Another one")) is None


def test_files_answer_turn_by_turn(tmp_path: Path) -> None:
    (tmp_path / "owner__shop-1.txt").write_text("first")
    (tmp_path / "owner__shop-1.2.txt").write_text("second")
    answers, name = FromFiles(tmp_path), "owner__shop-1"

    said = [answers(Asked(name, call, iterative=False)) for call in (1, 2, 3)]

    assert said == ["first", "second", NO_REPLY]
    assert answers(Asked(name, 1, iterative=True)) == FINISH


def ask(desk: Desk, said: list[dict[str, str]]) -> str:
    async def call(base_url: str) -> str:
        async with httpx.AsyncClient(trust_env=False) as client:
            reply = await client.post(
                f"{base_url}/chat/completions", json={"model": MODEL, "messages": said}
            )
            return str(reply.json()["choices"][0]["message"]["content"])

    with ScriptedProvider([desk], model=MODEL) as provider:
        return asyncio.run(call(provider.base_url))


def desk_of(answering: FromFiles, prompts: PromptFolder | None = None, **more: bool) -> Desk:
    return Desk(Book([row()]), answering, prompts, **more)


def test_first_prompts_are_kept_word_for_word_with_their_hashes(tmp_path: Path) -> None:
    prompts = PromptFolder(tmp_path / "prompts")
    desk = desk_of(FromFiles(tmp_path), prompts, recording=True)

    assert ask(desk, messages(SHOWN)) == NO_REPLY
    ask(desk, messages(SHOWN, "no"))

    kept = (tmp_path / "prompts" / "owner__shop-1.md").read_text()
    assert kept == f"===== system =====\nYou fix bugs.\n===== user =====\n{SHOWN}\n"
    assert prompts.known() == {prompt_hash(messages(SHOWN)): "owner__shop-1"}


def test_a_prompt_that_was_not_answered_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = PromptFolder(tmp_path / "prompts")
    prompts.keep("owner__shop-1", messages(SHOWN))
    desk = desk_of(FromFiles(tmp_path), prompts)

    ask(desk, messages(SHOWN))
    assert "not the one" not in capsys.readouterr().err
    ask(desk, messages(f"{SHOWN} and more"))
    assert "owner__shop-1: the prompt is not the one that was answered" in capsys.readouterr().err
    assert ask(desk, messages("Another one")) == NO_REPLY


def test_rows_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text(json.dumps(row()) + "\n")
    assert read_rows(path) == (row(),)
    path.write_text("{")
    with pytest.raises(ConfigurationError, match="JSON lines"):
        read_rows(path)
