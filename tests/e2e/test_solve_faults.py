"""`agent solve` as a subprocess on a small repository: every way the model can misbehave."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.test_commands import FILES, ISSUE, REPLY, TEST
from tests.support.behaviours import Good, Unauthorized, WrongPath, count_tokens
from tests.support.fault_cases import FAULT_CASES, FaultCase, Replies, case_id
from tests.support.fingerprint import fingerprint
from tests.support.scripted_provider import ScriptedProvider
from tests.support.solve_command import require_sandbox, solve

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]

# The breaking edit fails a test that passed before.
BREAKING = {"path": "shop/names.py", "search": "name.strip()", "replace": "name"}
REPLIES = Replies(
    good=REPLY,
    breaking=json.dumps({"thought": "names", "edits": [BREAKING], "reproduction_test": TEST}),
)


@dataclass(frozen=True, slots=True)
class Target:
    """The repository, its issue, and a home for the command, apart from each other."""

    repository: Path
    problem: Path
    home: Path


@pytest.fixture
def target(make_repository: MakeRepository, tmp_path: Path) -> Target:
    require_sandbox()
    problem = tmp_path / "issue.md"
    problem.write_text(ISSUE, "utf-8")
    home = tmp_path / "home"
    home.mkdir()
    return Target(make_repository(FILES), problem, home)


@pytest.mark.parametrize("case", FAULT_CASES, ids=case_id)
def test_end_of_run(case: FaultCase, target: Target) -> None:
    before = fingerprint(target.repository)
    with ScriptedProvider(case.script(REPLIES)) as provider:
        solved = solve(
            target.problem,
            target.repository,
            provider,
            home=target.home,
            arguments=case.arguments,
            settings=case.settings,
        )
    assert solved.result.status is case.status, solved.explain()
    assert solved.exit_code == case.status.exit_code
    assert solved.result.exit_code == solved.exit_code
    if case.requests is not None:
        assert len(provider.chats) == case.requests
    assert tuple(attempt.kind for attempt in solved.result.attempts) == case.kinds
    assert fingerprint(target.repository) == before


def test_repair_call_says_what_was_wrong_and_is_paid_for(target: Target) -> None:
    wrong, good = WrongPath("shop/gone.py"), Good(REPLIES.good)
    with ScriptedProvider([wrong, good]) as provider:
        solved = solve(target.problem, target.repository, provider, home=target.home)
    first, second = provider.chats
    assert "shop/gone.py" not in first.prompt
    assert "shop/gone.py" in second.prompt
    usage = solved.result.usage
    assert usage.calls == 2, solved.explain()
    assert usage.input_tokens == count_tokens(first.prompt) + count_tokens(second.prompt)
    assert usage.output_tokens == count_tokens(wrong.reply) + count_tokens(good.reply)


def test_same_input_gives_the_same_prompt(target: Target) -> None:
    prompts = []
    for hash_seed in ("1", "2"):
        with ScriptedProvider([Unauthorized()]) as provider:
            solve(
                target.problem,
                target.repository,
                provider,
                home=target.home,
                variables={"PYTHONHASHSEED": hash_seed},
            )
        prompts.append(provider.chats[0].body["messages"])
    assert prompts[0] == prompts[1]
