"""Control sequences in everything that a repository, an issue or a model may write."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.conftest import ROOT, run_git
from tests.support.agent_process import AGENT, agent_environment
from tests.support.scripted_provider import ScriptedProvider

# A window title, "clear the screen", C1 CSI, backspace, a bidirectional override, a bare return.
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\x08\u202eevil\r"
FORBIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")

SOURCE = f'''"""Adds. {ESCAPES}"""


def add(a, b):  # {ESCAPES}
    return a - b


def text(a):
    return "{ESCAPES}"
'''
EDIT = {"path": "calc.py", "search": "return a - b", "replace": f"return a + b  # {chr(27)}[2J"}
REPLIES = {
    "good": json.dumps({"thought": ESCAPES, "edits": [EDIT]}),
    "no match": json.dumps({"edits": [{**EDIT, "search": f"absent {ESCAPES}"}]}),
    "no path": json.dumps({"edits": [{**EDIT, "path": f"no/{ESCAPES}.py"}]}),
    "no JSON": f"I {ESCAPES} cannot",
    "syntax": json.dumps({"edits": [{**EDIT, "replace": f"return ({ESCAPES}"}]}),
}

# What each command is called with; "{reply}" is a file. Names of commands that take a repository.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "context": ("context", "--problem", "issue.md", "--repo", "repo"),
    "context as prompt": ("context", "--problem", "issue.md", "--repo", "repo", "--prompt"),
    "context as JSON": ("context", "--problem", "issue.md", "--repo", "repo", "--json"),
    "search": ("search", f"add {ESCAPES}", "--repo", "repo", "--explain"),
    "search in all corpora": ("search", "add", "--repo", "repo", "--corpus", "all", "--explain"),
    "search as JSON": ("search", "add", "--repo", "repo", "--json"),
    "index": ("index", "--repo", "repo"),
    "index as JSON": ("index", "--repo", "repo", "--json"),
    "apply": ("apply", "--reply", "good", "--repo", "repo"),
    "apply without match": ("apply", "--reply", "no match", "--repo", "repo"),
    "apply without match, JSON": ("apply", "--reply", "no match", "--repo", "repo", "--json"),
    "apply to no path": ("apply", "--reply", "no path", "--repo", "repo"),
    "apply no JSON": ("apply", "--reply", "no JSON", "--repo", "repo"),
    "apply broken syntax": ("apply", "--reply", "syntax", "--repo", "repo"),
    "apply a file that is not there": ("apply", "--reply", f"no{ESCAPES}", "--repo", "repo"),
    "solve": ("solve", "--problem", "issue.md", "--repo", "repo", "--no-tests", "-v"),
    "solve as JSON": ("solve", "--problem", "issue.md", "--repo", "repo", "--no-tests", "--json"),
    "solve another folder": ("solve", "--problem", "issue.md", "--repo", f"no{ESCAPES}"),
    "an option that is none": ("solve", f"--{ESCAPES}"),
    "an argument that is none": ("search", "x", f"{ESCAPES}"),
    "a command that is none": (ESCAPES,),
    "config": ("config",),
    "doctor": ("doctor", "--model", ESCAPES),
    "report": ("report", f"no{ESCAPES}"),
    "batch": ("batch", "--dataset", "rows.jsonl", "--repos", ".", "--output", "run"),
    "eval retrieval": ("eval", "retrieval", "--dataset", "rows.jsonl", "--repos", "."),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    repository = home / "repo"
    repository.mkdir()
    run_git(repository, "init", "--quiet", "-b", "main")
    files = {"calc.py": SOURCE, f"name{ESCAPES}.py": SOURCE, "docs/a.md": f"# add {ESCAPES}\n"}
    for name, text in files.items():
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_bytes(text.encode())
    run_git(repository, "add", ".")
    run_git(repository, "commit", "--quiet", "-m", f"add {ESCAPES}")
    (repository / "calc.py").write_bytes((SOURCE + "\n").encode())
    run_git(repository, "commit", "--quiet", "-a", "-m", f"change add {ESCAPES}")
    (home / "issue.md").write_bytes(f"# add() subtracts {ESCAPES}\n\n{ESCAPES}\n".encode())
    for name, reply in REPLIES.items():
        (home / name).write_text(reply)
    row = {"instance_id": f"x{ESCAPES}", "repo": f"repo{ESCAPES}", "base_commit": ESCAPES,
           "problem_statement": ESCAPES, "patch": ESCAPES}  # fmt: skip
    (home / "rows.jsonl").write_text(json.dumps(row) + "\n")
    return home


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider([REPLIES["no match"], REPLIES["no JSON"]]) as provider:
        yield provider


def call(home: Path, provider: ScriptedProvider, arguments: tuple[str, ...]) -> tuple[int, str]:
    """Call the command with pipes; gives the exit code and what it wrote to both."""
    done = subprocess.run(
        [*AGENT, *arguments],
        cwd=home,
        env=variables(home, provider),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=100,
        check=False,
    )
    both = (done.stdout + done.stderr).decode("utf-8", "surrogateescape")
    assert "Traceback" not in both
    return done.returncode, both


def variables(home: Path, provider: ScriptedProvider) -> dict[str, str]:
    return agent_environment(
        home,
        PATCHSHOT_BASE_URL=provider.base_url,
        PATCHSHOT_MODEL=provider.model,
        PATCHSHOT_SANDBOX="auto",
    )


@pytest.mark.slow
@pytest.mark.attack_case("terminal escapes")
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_no_command_writes_what_steers_a_terminal(
    name: str, home: Path, provider: ScriptedProvider
) -> None:
    _, written = call(home, provider, COMMANDS[name])
    assert written.strip()
    if name == "apply":  # the diff, on a pipe: data, byte for byte
        written = "".join(line for line in written.splitlines(True) if line[0] not in "+- ")
    assert FORBIDDEN.findall(written) == []


@pytest.mark.attack_case("terminal escapes")
def test_a_diff_is_exact_on_a_pipe_and_harmless_on_a_terminal(
    home: Path, provider: ScriptedProvider
) -> None:
    _, piped = call(home, provider, COMMANDS["apply"])
    assert "\x1b[2J" in piped
    ours, theirs = os.openpty()
    try:
        subprocess.run(
            [*AGENT, *COMMANDS["apply"]],
            cwd=home,
            env={**variables(home, provider), "TERM": "dumb"},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            timeout=100,
            check=False,
        )
        shown = os.read(ours, 1 << 16).decode("utf-8", "replace")
    finally:
        os.close(ours)
        os.close(theirs)
    assert "return a + b" in shown
    assert FORBIDDEN.findall(shown.replace("\r\n", "\n")) == []


@pytest.mark.attack_case("terminal escapes")
def test_json_says_the_same_in_printable_characters(home: Path, provider: ScriptedProvider) -> None:
    _, written = call(home, provider, COMMANDS["context as JSON"])
    assert ESCAPES.replace("\r", "") in json.loads(written[: written.rindex("}") + 1])["text"]


def test_only_a_few_modules_write_to_the_streams() -> None:
    """All else passes through `agent.shared.terminal`."""
    writes = re.compile(r"print|click\.s?echo|sys\.(__)?std(out|err)(__)?\.(write|buffer)(\.\w+)?")
    found = {
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "agent").rglob("*.py"))
        if "inside" not in path.parts  # runs in the sandbox
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Name | ast.Attribute) and writes.fullmatch(ast.unparse(node))
    }
    assert found == {
        "agent/shared/terminal.py",  # say
        "agent/cli/__init__.py",  # its own words, when the streams may be closed
        "agent/cli/commands/common.py",  # bytes to stdout
        "agent/cli/options.py",  # help
        "agent/retrieval/index/cutting.py",  # the answer of a process, in Base64
    }
