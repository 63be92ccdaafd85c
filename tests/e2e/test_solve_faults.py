"""`agent solve` as a subprocess on a small repository: every way the model can misbehave."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from agent.errors import Status
from tests.e2e.test_commands import FILES, ISSUE, REPLY, TEST
from tests.support.behaviours import (
    MALFORMED,
    Step,
    count_tokens,
    drop_connection,
    html_error,
    rate_limited,
    schema_refused,
    slow,
    truncated,
    unauthorized,
    unknown_model,
    wrong_path,
)
from tests.support.fingerprint import fingerprint
from tests.support.scripted_provider import ScriptedProvider
from tests.support.solve_command import Solved, require_sandbox, solve

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

# It fails a test that passed before.
BREAKING = json.dumps(
    {
        "edits": [{"path": "shop/names.py", "search": "name.strip()", "replace": "name"}],
        "reproduction_test": TEST,
    }
)
# One repair call and no iterative mode: how many requests a case takes is then fixed.
ONE_REPAIR = {"REPAIRS": "1", "MAX_STEPS": "0"}
NO_CALL = {**ONE_REPAIR, "MAX_CALLS": "0"}
SHORT = {**ONE_REPAIR, "TIMEOUT": "8"}

# The script, how the run ends, and the chat requests (None: it may ask for a schema or not).
CASES: Mapping[str, tuple[list[Step], Status, int | None]] = {
    "good": ([REPLY], Status.ACCEPTED, 1),
    "malformed, then good": ([MALFORMED, REPLY], Status.ACCEPTED, 2),
    "wrong path, then good": ([wrong_path(), REPLY], Status.ACCEPTED, 2),
    "breaks tests, then good": ([BREAKING, REPLY], Status.ACCEPTED, 2),
    "malformed": ([MALFORMED], Status.UNPARSEABLE, 2),
    "truncated": ([truncated(REPLY)], Status.UNPARSEABLE, 4),  # it is continued
    "empty": ([""], Status.NO_EDIT, 2),
    "no edits": (['{"edits": []}'], Status.NO_EDIT, 2),
    "wrong path": ([wrong_path()], Status.NOT_APPLIED, 2),
    "breaks tests": ([BREAKING], Status.BROKEN, 2),
    "slow": ([slow(90, REPLY)], Status.TIME_LIMIT, 1),
    "rate limited, then good": ([rate_limited(1), REPLY], Status.ACCEPTED, 2),
    "dropped, then good": ([drop_connection, REPLY], Status.ACCEPTED, 2),
    "gateway, then good": ([html_error, REPLY], Status.ACCEPTED, 2),
    "schema refused": ([schema_refused(REPLY)], Status.ACCEPTED, None),
    "unauthorized": ([unauthorized], Status.PROVIDER, 1),
    "unknown model": ([unknown_model], Status.PROVIDER, 1),
    "no call left": ([REPLY], Status.BUDGET, 0),
}
SETTINGS = {"slow": SHORT, "no call left": NO_CALL}

Run = Callable[..., tuple[Solved, ScriptedProvider]]


@pytest.fixture
def repository(make_repository: Callable[[Mapping[str, str | bytes]], Path]) -> Path:
    require_sandbox()
    return make_repository(FILES)


@pytest.fixture
def run(repository: Path, tmp_path: Path) -> Run:
    (tmp_path / "issue.md").write_text(ISSUE, "utf-8")

    def solved(script: Sequence[Step], **options: Mapping[str, str]) -> object:
        with ScriptedProvider(script) as provider:
            done = solve(
                tmp_path / "issue.md", repository, provider, home=tmp_path / "home", **options
            )
        return done, provider

    (tmp_path / "home").mkdir()
    return solved


@pytest.mark.parametrize("name", CASES)
def test_end_of_run(name: str, run: Run, repository: Path) -> None:
    script, status, requests = CASES[name]
    before = fingerprint(repository)
    solved, provider = run(script, settings=SETTINGS.get(name, ONE_REPAIR))
    assert solved.result.status is status, solved.explain()
    assert solved.exit_code == solved.result.exit_code == status.exit_code
    assert requests in (None, len(provider.chats))
    assert fingerprint(repository) == before


def test_repair_call_says_what_was_wrong_and_is_paid_for(run: Run) -> None:
    wrong = wrong_path("shop/gone.py")
    solved, provider = run([wrong, REPLY])
    first, second = provider.chats
    assert "shop/gone.py" not in first.prompt
    assert "shop/gone.py" in second.prompt
    usage = solved.result.usage
    assert usage.calls == 2, solved.explain()
    assert usage.input_tokens == count_tokens(first.prompt) + count_tokens(second.prompt)
    assert usage.output_tokens == count_tokens(wrong) + count_tokens(REPLY)


def test_same_input_gives_the_same_prompt(run: Run) -> None:
    prompts = [
        run([unauthorized], variables={"PYTHONHASHSEED": seed})[1].chats[0].body["messages"]
        for seed in ("1", "2")
    ]
    assert prompts[0] == prompts[1]
