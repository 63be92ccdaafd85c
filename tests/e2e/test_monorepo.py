"""A repository of several services: `--path` from its root, and commands started in a service."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.behaviours import ChatRequest
from tests.support.pythons import python_with
from tests.support.sandboxes import require_bwrap
from tests.support.scripted_provider import ScriptedProvider
from tests.support.user import Done, User

SHARED = {"path": "libs/src/money.py", "search": "return round", "replace": "return  round"}

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]

BILLING, WEB = "services/billing", "services/web"

FILES = {
    ".gitignore": ".venv\nnode_modules\n",
    "libs/src/money.py": "def cents(amount):\n    return round(amount * 100)\n",
    "libs/src/unused.py": "def total(prices):\n    return sum(prices)\n",
    "tests/test_app.py": "def test_of_the_root():\n    raise AssertionError('not in the scope')\n",
    f"{BILLING}/pytest.ini": "[pytest]\npythonpath = . ../../libs/src\n",
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


class Monorepo(User):
    """A person who works in a folder of the repository."""

    def inside(self, folder: str) -> Path:
        return self.repository / folder

    def run(self, *arguments: str, cwd: Path | None = None, **options: Any) -> Done:
        return super().run(*arguments, cwd=cwd or self.repository, **options)

    def fix(
        self, reply: Mapping[str, Any], *arguments: str, inside: str = ".", **variables: str
    ) -> tuple[Done, dict[str, Any], list[ChatRequest]]:
        """Solve with a reply; the result and the calls."""
        options = ("--json", *arguments)
        done, provider = self.ask(
            [json.dumps(reply)], "solve", str(self.issue), *options, cwd=self.inside(inside),
            **variables,
        )  # fmt: skip
        return done, json.loads(done.stdout), provider.chats


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with pytest, to copy."""
    folder = tmp_path_factory.mktemp("environment") / ".venv"
    python_with(folder)
    return folder


@pytest.fixture
def monorepo(make_repository: MakeRepository, environment: Path, tmp_path: Path) -> Monorepo:
    require_bwrap()
    root = make_repository(FILES)
    shutil.copytree(environment, root / BILLING / ".venv", symlinks=True)
    return Monorepo(tmp_path / "home", root, ISSUE)


def validation_of(result: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = result["attempts"][0]["validation"]
    return found


@pytest.mark.parametrize(
    ("inside", "arguments"),
    [(".", ("--path", BILLING)), (f"{BILLING}/tests", ())],
)
def test_a_python_service_is_solved_alone(
    inside: str, arguments: tuple[str, ...], monorepo: Monorepo
) -> None:
    done, result, chats = monorepo.fix(FIX, *arguments, inside=inside)
    assert (done.returncode, result["verdict"]) == (0, "verified"), done.stderr
    assert f"scope: {BILLING}" in done.stderr
    shown = chats[0].prompt
    assert "### services/billing/app.py:" in shown
    assert "### libs/src/money.py:" in shown
    assert not [path for path in ("services/orders", "libs/src/unused", WEB) if path in shown]
    found = validation_of(result)
    assert found["fail_to_pass"] == [f"{BILLING}/tests/test_total.py::test_total"]
    assert set(found["pass_to_pass"]) == {
        f"{BILLING}/tests/test_app.py::test_rate",
        f"{BILLING}/tests/test_app.py::test_interpreter",
    }
    assert "+++ b/services/billing/app.py" in result["diff"]


def test_verify_and_context_take_the_folder(monorepo: Monorepo, tmp_path: Path) -> None:
    _, result, _ = monorepo.fix(FIX, "--path", BILLING)
    diff = tmp_path / "fix.diff"
    diff.write_text(result["diff"])
    for inside, arguments in ((".", ("--path", BILLING)), (BILLING, ())):
        done = monorepo.run(
            "verify", "--diff", str(diff), "--json", *arguments, cwd=monorepo.inside(inside)
        )
        judged = json.loads(done.stdout)
        tests = validation_of(judged)["pass_to_pass"]
        assert f"{BILLING}/tests/test_app.py::test_rate" in tests, done.stderr
        issue = ("--problem", str(monorepo.home / "issue.md"))
        shown = monorepo.run("context", *issue, *arguments, cwd=monorepo.inside(inside)).stdout
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
    done, result, chats = monorepo.fix(FIX, "--path", path)
    assert (done.returncode, result["status"]) == (2, "usage")
    assert f"--path {path}" in done.stderr.splitlines()[-1]
    assert said in done.stderr.splitlines()[-1]
    assert not chats
    assert monorepo.run("verify", "--diff", "-", "--path", path).returncode == 2


# ------------------------------------------------------------------------------------ --setup-cmd

GENERATED = {
    "shop.py": "def total(prices):\n    return sum(prices[1:])\n",
    "make_rates.py": (
        "import os, pathlib\npathlib.Path('rates.py').write_text('RATE = 3\\n')\n"
        "pathlib.Path('seen.txt').write_text(pathlib.Path('shop.py').read_text())\n"
    ),
    "tests/test_rates.py": (
        "import pathlib\n\n\ndef test_rates():\n    import rates\n    assert rates.RATE == 3\n\n\n"
        "def test_setup_saw_the_base():\n"
        "    assert 'prices[1:]' in pathlib.Path('seen.txt').read_text()\n"
    ),
}
SHOP_FIX = {
    "edits": [{"path": "shop.py", "search": "prices[1:]", "replace": "prices"}],
    "reproduction_test": {
        "path": "tests/test_total.py",
        "content": (
            "import rates\nfrom shop import total\n\n\n"
            "def test_total():\n    assert total([3]) == 3\n"
        ),
    },
}


@pytest.fixture
def shop(make_repository: MakeRepository, tmp_path: Path) -> Monorepo:
    require_bwrap()
    return Monorepo(tmp_path / "home", make_repository(GENERATED), ISSUE)


def test_a_patch_cannot_change_what_the_setup_does(shop: Monorepo) -> None:
    """A setup that runs the patched script would make the module that the test compares with."""
    edits = [{"path": "make_rates.py", "search": "RATE = 3", "replace": "RATE = 4"}]
    test = {"path": "tests/test_four.py", "content": "def test_it():\n    import rates\n"
            "    assert rates.RATE == 4\n"}  # fmt: skip
    reply = {"edits": edits, "reproduction_test": test}
    options = ("--setup-cmd", "python make_rates.py", "--repairs", "0", "--no-iterative")
    done, result, _ = shop.fix(reply, *options)
    assert done.returncode == 6, done.stderr
    assert result["verdict"] != "verified"


def test_only_setup_network_gives_the_setup_the_network(shop: Monorepo) -> None:
    with ScriptedProvider(["{}"]) as server:
        ask = f"import urllib.request as r; r.urlopen('{server.base_url}/models', timeout=5)"
        setup = ("--setup-cmd", f'python -c "{ask}" && python make_rates.py')
        done, _, chats = shop.fix(SHOP_FIX, *setup)
        assert done.returncode == 2
        assert "it had no network (PATCHSHOT_SETUP_NETWORK)" in done.stderr.splitlines()[-1]
        assert not chats
        assert not server.requests
        done, result, _ = shop.fix(SHOP_FIX, *setup, PATCHSHOT_SETUP_NETWORK="1")
        assert (done.returncode, result["verdict"]) == (0, "verified"), done.stderr
        assert len(server.requests) == 1  # the setup is run once, and tests have no network


def test_a_repository_cannot_ask_for_a_setup(shop: Monorepo) -> None:
    (shop.repository / "patchshot.toml").write_text("setup_cmd = 'false'\nsetup_network = true\n")
    done, result, _ = shop.fix(SHOP_FIX, "--setup-cmd", "python make_rates.py")
    assert (done.returncode, result["verdict"]) == (0, "verified"), done.stderr
    assert "setup_cmd ignored until you agree with `agent trust`" in done.stderr
    assert "setup_network is ignored" in done.stderr
    done, _, _ = shop.fix(SHOP_FIX, PATCHSHOT_SETUP_NETWORK="1")
    assert done.returncode == 2
    assert "PATCHSHOT_SETUP_NETWORK is for --setup-cmd" in done.stderr.splitlines()[-1]


def test_an_edit_outside_is_allowed_and_shown(monorepo: Monorepo) -> None:
    both = {**FIX, "edits": [*FIX["edits"], SHARED]}
    done, result, _ = monorepo.fix(both, "--path", BILLING)
    note = (
        f"the patch edits libs/src/money.py outside of {BILLING}; only tests of {BILLING} were run"
    )
    assert done.returncode == 0, done.stderr
    assert f"note: {note}" in done.stderr
    assert note in validation_of(result)["notes"]
    diff = monorepo.home / "fix.diff"
    diff.write_text(result["diff"])
    judged = monorepo.run("verify", "--diff", str(diff), "--path", BILLING)
    assert f"note: {note}" in judged.stderr


def test_a_failing_setup_ends_the_run_before_a_call(shop: Monorepo) -> None:
    command = "echo first; echo no such package >&2; exit 3"
    done, result, chats = shop.fix(SHOP_FIX, "--setup-cmd", command)
    assert (done.returncode, result["status"]) == (2, "usage"), done.stderr
    last = done.stderr.splitlines()[-1]
    assert f"--setup-cmd {command!r} failed (exit code 3" in last
    assert "no such package" in last
    assert "warning: --setup-cmd: first" in done.stderr
    assert not chats


def test_a_retry_keeps_the_folder(monorepo: Monorepo) -> None:
    monorepo.fix(FIX, inside=BILLING)
    [kept] = json.loads(monorepo.run("runs", "--json").stdout)
    again = ("retry", kept["run"], "--comment", "the same again")
    done, _ = monorepo.ask([json.dumps(FIX)], *again)
    assert f"scope: {BILLING}" in done.stderr
    assert done.returncode == 0, done.stderr
