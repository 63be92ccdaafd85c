"""Files of secrets: what code under test, the iterative mode and a model's server see of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.agent_process import run_agent
from tests.support.sandboxes import require_bwrap
from tests.support.scripted_provider import ScriptedProvider

# Assembled, so that no scanner finds them in this file.
TAILS = ("Lm4Tb8Wn", "C6Vy1KpD", "q7Rf2Zx9", "h3Js5Gu0", "w8Nd2Qe6", "t5Ya9Xc3")
ENV, STORE, PROD, KEY, UNTRACKED, STRAY = (f"{'z4Pk'}{tail}-{tail[::-1]}" for tail in TAILS)
FIXTURE = (
    "-----BEGIN PRIVATE KEY-----\n" + "fixture" + "Key9" * 14 + "\n-----END PRIVATE KEY-----\n"
)

PRINTS = '''"""Prints whatever it finds."""

import pathlib
import subprocess

NAMES = (".env", "secrets.yaml", "config/prod.env", "certs/server.key", ".env.local", "store.jks")


def found():
    said = [pathlib.Path(name).read_text(errors="replace") for name in NAMES]
    for name in NAMES:
        said.append(subprocess.run(["git", "show", f"HEAD:{name}"], capture_output=True, text=True,
                                   errors="replace").stdout)
    said.append(subprocess.run("git cat-file --batch-all-objects --batch --unordered", shell=True,
                               capture_output=True, text=True, errors="replace").stdout)
    return "\\n".join(said)
'''
FILES: Mapping[str, str | bytes] = {
    "calc.py": "import pathlib\n\n\ndef add(a, b):\n    return a - b\n",
    "tests/leak.py": PRINTS,
    "tests/test_calc.py": (
        "import pathlib\n\nfrom calc import add\nfrom leak import found\n\n\n"
        "def test_add():\n    assert add(1, 2) == 3, found()\n\n\n"
        "def test_keys():\n    lines = pathlib.Path('.env').read_text().splitlines()\n"
        "    assert [line.partition('=')[0] for line in lines] == ['DEBUG', 'PORT', 'API_TOKEN']\n"
        "    assert lines[:2] == ['DEBUG=true', 'PORT=8080']\n\n\n"
        "def test_fixture():\n"
        "    assert 'fixture' + 'Key9' in pathlib.Path('tests/data/server.pem').read_text()\n"
    ),
    "tests/data/server.pem": FIXTURE,
    "stray.py": f"# the same as in .env\nUSED = lambda: '{STRAY}'\n",
    ".env": f"DEBUG=true\nPORT=8080\nAPI_TOKEN={ENV}\n",
    "secrets.yaml": f"db:\n  password: {STORE}\n  other: {STRAY}\n",
    "config/prod.env": f"WHATEVER={PROD}\n",
    "certs/server.key": f"-----BEGIN PRIVATE KEY-----\n{KEY * 3}\n-----END PRIVATE KEY-----\n",
    "store.jks": b"\xfe\xed\x00\x00" + KEY.encode(),
}
SECRETS = (ENV, STORE, PROD, KEY, UNTRACKED, STRAY)
GOOD = {"path": "calc.py", "search": "return a - b", "replace": "return a + b"}
BAD = {**GOOD, "replace": "return a * b"}


@pytest.fixture
def repository(make_repository: Callable[[Mapping[str, str | bytes]], Path]) -> Path:
    root = make_repository(FILES)
    (root / ".env.local").write_text(f"LOCAL={UNTRACKED}\n")
    return root


def act(**fields: object) -> str:
    return json.dumps(fields)


TEST = {
    "path": "tests/test_new.py",
    "content": (
        "from calc import add\nfrom leak import found\n\n\n"
        "def test_new():\n    assert add(1, 2) == 3, found()\n"
    ),
}
READ = [{"path": path} for path in (*FILES, ".env.local") if path != "store.jks"]
SCRIPT = [
    json.dumps({"thought": "x", "edits": [BAD], "reproduction_test": TEST}),
    json.dumps(
        {
            "thought": "x",
            "edits": [{**BAD, "replace": "return b // a"}],
            "reproduction_test": TEST,
        }
    ),
    act(action="read", files=READ),
    act(action="search", query="z4Pk", exact=True),
    act(action="run_tests", paths=["tests/test_calc.py"]),
    act(action="edit", edits=[{**GOOD, "search": "return b // a"}]),
    act(action="finish", thought="done", reproduction_test=TEST),
]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.attack_case("files of secrets in the sandbox")
def test_no_value_of_a_file_of_secrets_reaches_the_server_or_the_user(
    repository: Path, tmp_path: Path
) -> None:
    """Nor the result or a kept file; and what loads the file or a fixture still works."""
    require_bwrap()
    home = tmp_path / "home"
    home.mkdir()
    (home / "issue.md").write_text("# add() subtracts\n\nadd(1, 2) of calc.py and stray.py is -1\n")
    with ScriptedProvider(SCRIPT) as provider:
        done = run_agent(
            "solve", "--problem", "issue.md", "--repo", str(repository), "--json", "-v",
            "--record", "tape",
            home=home, limit=400,
            PATCHSHOT_BASE_URL=provider.base_url, PATCHSHOT_MODEL=provider.model,
        )  # fmt: skip
    sent = "\n".join(json.dumps(request.json, ensure_ascii=False) for request in provider.requests)
    assert len(provider.chats) == len(SCRIPT), done.stderr
    assert "assert 2 == 3" in sent
    assert "stray.py" in sent
    written = {path.name: path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}
    written |= {"stdout": done.stdout.encode(), "stderr": done.stderr.encode()}
    assert [secret for secret in SECRETS if secret in sent] == []
    found = {name for name, data in written.items() for s in SECRETS if s.encode() in data}
    assert found == set()
    result = json.loads(done.stdout)
    assert result["status"] == "accepted", done.stderr  # test_keys and test_fixture pass as well


@pytest.mark.attack_case("files of secrets in the sandbox")
def test_the_context_shows_no_value_of_a_file_of_secrets(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "issue.md").write_text("# USED of stray.py, API_TOKEN of .env, secrets.yaml\n")
    for form in ((), ("--prompt",), ("--json",)):
        done = run_agent(
            "context", "--problem", "issue.md", "--repo", str(repository), *form, home=tmp_path
        )
        assert "stray.py" in done.stdout
        assert [secret for secret in SECRETS if secret in done.stdout + done.stderr] == []
