"""A repository of several services: `--path` from its root, and commands started in a service."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_process import run_agent
from tests.support.behaviours import Good
from tests.support.pythons import python_with
from tests.support.scripted_provider import ScriptedProvider
from tests.support.solve_command import require_sandbox

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]

BILLING, WEB = "services/billing", "services/web"

FILES = {
    ".gitignore": ".venv\nnode_modules\n",
    "libs/money.py": "def cents(amount):\n    return round(amount * 100)\n",
    "libs/unused.py": "def total(prices):\n    return sum(prices)\n",
    "tests/test_app.py": "def test_of_the_root():\n    raise AssertionError('not in the scope')\n",
    f"{BILLING}/pytest.ini": "[pytest]\npythonpath = . ../../libs\n",
    f"{BILLING}/rates.txt": "2\n",
    f"{BILLING}/app.py": (
        "from money import cents\n\n\ndef total(prices):\n"
        '    """The total of all prices in cents."""\n    return cents(sum(prices[1:]))\n\n\n'
        "def rate():\n    return int(open('rates.txt').read())\n"
    ),
    f"{BILLING}/tests/test_app.py": (
        "import sys\n\nfrom app import rate\n\n\ndef test_rate():\n    assert rate() == 2\n\n\n"
        "def test_interpreter():\n    assert '/services/billing/.venv' in sys.executable\n"
    ),
    "services/orders/app.py": "def total(prices):\n    return sum(prices[1:])\n",
    "services/orders/tests/test_app.py": "def test_of_orders():\n    raise AssertionError\n",
    f"{WEB}/package.json": json.dumps({"name": "web", "scripts": {"test": "node --test"}}),
    f"{WEB}/app.js": (
        "exports.total = (prices) => prices.slice(1).reduce((a, b) => a + b, 0);\n"
        "exports.name = () => 'web';\n"
    ),
    f"{WEB}/test/app.test.js": (
        "const test = require('node:test');\nconst assert = require('node:assert');\n"
        "const app = require('../app.js');\n"
        "test('has a name', () => assert.strictEqual(app.name(), 'web'));\n"
    ),
}

ISSUE = "# total leaves out the first price\n\nThe total of one price is 0.\n"

FIX = {
    "edits": [{"path": f"{BILLING}/app.py", "search": "prices[1:]", "replace": "prices"}],
    "reproduction_test": {
        "path": f"{BILLING}/tests/test_total.py",
        "content": (
            "from app import total\n\n\ndef test_total():\n    assert total([2.5]) == 250\n"
        ),
    },
}
SHARED = {"path": "libs/money.py", "search": "return round", "replace": "return  round"}
WEB_FIX = {
    "edits": [{"path": f"{WEB}/app.js", "search": ".slice(1)", "replace": ""}],
    "reproduction_test": {
        "path": f"{WEB}/test/total.test.js",
        "content": (
            "const test = require('node:test');\nconst assert = require('node:assert');\n"
            "const app = require('../app.js');\n"
            "test('counts all', () => assert.strictEqual(app.total([2]), 2));\n"
        ),
    },
}


class Monorepo:
    """The repository, and a person who works in it."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root, self.home = root, home
        home.mkdir()
        (home / "issue.md").write_text(ISSUE)

    def run(
        self, command: str, *arguments: str, inside: str = ".", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        cwd = self.root / inside
        return run_agent(command, *arguments, home=self.home, cwd=cwd, limit=110, **variables)

    def solve(
        self, script: Sequence[Any], *arguments: str, inside: str = "."
    ) -> tuple[subprocess.CompletedProcess[str], dict[str, Any], ScriptedProvider]:
        with ScriptedProvider([Good(json.dumps(reply)) for reply in script]) as provider:
            done = self.run(
                "solve", str(self.home / "issue.md"), "--json", *arguments, inside=inside,
                PATCHSHOT_BASE_URL=provider.base_url, PATCHSHOT_MODEL=provider.model,
            )  # fmt: skip
        return done, json.loads(done.stdout), provider


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with pytest, to copy."""
    folder = tmp_path_factory.mktemp("environment") / ".venv"
    python_with(folder)
    return folder


@pytest.fixture
def monorepo(make_repository: MakeRepository, environment: Path, tmp_path: Path) -> Monorepo:
    require_sandbox()
    root = make_repository(FILES)
    shutil.copytree(environment, root / BILLING / ".venv", symlinks=True)
    return Monorepo(root, tmp_path / "home")


def validation_of(result: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = result["attempts"][0]["validation"]
    return found


@pytest.mark.parametrize(
    ("inside", "arguments"),
    [(".", ("--path", BILLING)), (BILLING, ()), (f"{BILLING}/tests", ())],
)
def test_a_python_service_is_solved_alone(
    inside: str, arguments: tuple[str, ...], monorepo: Monorepo
) -> None:
    done, result, provider = monorepo.solve([FIX], *arguments, inside=inside)
    assert (done.returncode, result["verdict"]) == (0, "proven"), done.stderr
    assert f"scope: {BILLING}" in done.stderr
    shown = provider.chats[0].prompt
    assert "### services/billing/app.py:" in shown
    assert "### libs/money.py:" in shown
    assert not [path for path in ("services/orders", "libs/unused", WEB) if path in shown]
    found = validation_of(result)
    assert found["fail_to_pass"] == [f"{BILLING}/tests/test_total.py::test_total"]
    assert set(found["pass_to_pass"]) == {
        f"{BILLING}/tests/test_app.py::test_rate",
        f"{BILLING}/tests/test_app.py::test_interpreter",
    }
    assert "+++ b/services/billing/app.py" in result["diff"]


def test_a_script_service_is_solved_alone(monorepo: Monorepo) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    for inside, arguments in ((".", ("--path", WEB)), (WEB, ())):
        done, result, provider = monorepo.solve([WEB_FIX], *arguments, inside=inside)
        assert (done.returncode, result["verdict"]) == (0, "proven"), done.stderr
        assert "services/billing" not in provider.chats[0].prompt
        assert validation_of(result)["fail_to_pass"] == [f"{WEB}/test/total.test.js::counts all"]


def test_the_test_command_runs_in_the_folder(monorepo: Monorepo) -> None:
    command = ("--test-cmd", "python -m pytest -q tests")
    done, result, _ = monorepo.solve([FIX], "--path", BILLING, *command)
    assert (done.returncode, result["verdict"]) == (0, "proven"), done.stderr
    assert f"{BILLING}/tests/test_app.py::test_rate" in validation_of(result)["pass_to_pass"]


def test_an_edit_outside_is_allowed_and_shown(monorepo: Monorepo) -> None:
    both = {**FIX, "edits": [*FIX["edits"], SHARED]}
    done, result, _ = monorepo.solve([both], "--path", BILLING)
    note = f"the patch edits libs/money.py outside of {BILLING}; only tests of {BILLING} were run"
    assert done.returncode == 0, done.stderr
    assert f"note: {note}" in done.stderr
    assert note in validation_of(result)["notes"]


def test_verify_and_context_take_the_folder(monorepo: Monorepo, tmp_path: Path) -> None:
    _, result, _ = monorepo.solve([FIX], "--path", BILLING)
    diff = tmp_path / "fix.diff"
    diff.write_text(result["diff"])
    for inside, arguments in ((".", ("--path", BILLING)), (BILLING, ())):
        done = monorepo.run("verify", "--diff", str(diff), "--json", *arguments, inside=inside)
        judged = json.loads(done.stdout)
        tests = validation_of(judged)["pass_to_pass"]
        assert f"{BILLING}/tests/test_app.py::test_rate" in tests, done.stderr
        issue = ("--problem", str(monorepo.home / "issue.md"))
        shown = monorepo.run("context", *issue, *arguments, inside=inside).stdout
        assert "### services/billing/app.py:" in shown
        assert "services/orders" not in shown


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("services/none", "has no files there"),
        ("../elsewhere", "leads out of the repository"),
        ("/", "leads out of the repository"),
        (f"{BILLING}/app.py", "is a file"),
    ],
)
def test_an_unusable_folder_ends_the_run_before_a_call(
    path: str, said: str, monorepo: Monorepo
) -> None:
    done, result, provider = monorepo.solve([FIX], "--path", path)
    assert (done.returncode, result["status"]) == (2, "usage")
    assert f"--path {path}" in done.stderr.splitlines()[-1]
    assert said in done.stderr.splitlines()[-1]
    assert not provider.chats
    assert monorepo.run("verify", "--diff", "-", "--path", path).returncode == 2


def test_the_whole_repository_is_taken_where_asked_for(monorepo: Monorepo) -> None:
    _, _, provider = monorepo.solve([FIX], "--path", ".", inside=BILLING)
    assert "services/orders" in provider.chats[0].prompt
