"""`agent solve` as a subprocess: what it tells of its model calls; a prompt that is too long."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.errors import Status
from tests.support.behaviours import Behaviour, ContextLimit, EchoesKey, Good
from tests.support.scripted_provider import ScriptedProvider
from tests.support.solve_command import Solved, solve

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]

SECRET = "sk-e2e-4f8a1b2c3d4e5f60718293"
OTHER_SECRET = "zz9-plural-z-alpha-0123456789"
_BODY = "".join(f"    value_{line} = first - {line}  # of some length\n" for line in range(60))
FILES = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    **{f"more/add_{n}.py": f"def add_{n}(first):\n{_BODY}" for n in range(12)},
}
EDIT = {"path": "calc.py", "search": "return a - b", "replace": "return a + b"}
REPLY = json.dumps({"thought": "the sign", "edits": [EDIT]})
QUICK = {"MAX_STEPS": "0", "REPAIRS": "0", "TESTS": "false", "ACCEPT_UNVERIFIED": "true"}


@dataclass(frozen=True, slots=True)
class Bench:
    """A repository, its issue and a home, apart from each other."""

    repository: Path
    problem: Path
    home: Path

    def solve(self, *script: Behaviour, arguments: tuple[str, ...] = (), **settings: str) -> Solved:
        with ScriptedProvider(script) as provider:
            return solve(
                self.problem,
                self.repository,
                provider,
                home=self.home,
                arguments=arguments,
                settings={**QUICK, "API_KEY": SECRET, **settings},
                variables={"GITHUB_TOKEN": OTHER_SECRET},
            )


@pytest.fixture
def bench(make_repository: MakeRepository, tmp_path: Path) -> Bench:
    problem = tmp_path / "issue.md"
    problem.write_text("# add subtracts\n\n`add(1, 2)` gives -1, as do all of add_0 to add_11.\n")
    home = tmp_path / "home"
    home.mkdir()
    return Bench(make_repository(FILES), problem, home)


@pytest.mark.parametrize("arguments", [("-v",), ("--quiet",)])
def test_no_key_in_any_output(bench: Bench, arguments: tuple[str, ...]) -> None:
    bench.problem.write_text(f"# add subtracts\n\nSee {OTHER_SECRET}.\n")
    solved = bench.solve(EchoesKey(), arguments=arguments)
    assert solved.exit_code == 9
    everything = solved.stderr + solved.result.model_dump_json()
    assert "Incorrect API key" in everything
    assert SECRET not in everything
    assert SECRET[:14] not in everything
    assert OTHER_SECRET not in solved.stderr


def test_a_window_too_small_for_the_issue_ends_with_advice(bench: Bench) -> None:
    solved = bench.solve(ContextLimit(300, Good(REPLY)))
    assert solved.result.status is Status.PROVIDER, solved.explain()
    assert "PATCHSHOT_CONTEXT_TOKENS" in solved.result.message


def test_embeddings_are_one_line_a_batch(bench: Bench) -> None:
    solved = bench.solve(Good(REPLY), arguments=("-v",), EMBED="remote", EMBED_MODEL="scripted")
    assert solved.exit_code == 0, solved.explain()
    batches = [
        line for line in solved.stderr.splitlines() if re.match(r"embed \d+ texts? to ", line)
    ]
    assert 2 <= len(batches) <= 4  # the issue, and the chunks in few calls
