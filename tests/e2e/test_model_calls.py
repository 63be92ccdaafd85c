"""`agent solve` as a subprocess: what it tells of its model calls; a prompt that is too long."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.behaviours import ChatRequest, completion, context_limit, count_tokens, echo_key
from tests.support.loopback import Scripted
from tests.support.user import User

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

SECRET = "sk-e2e-4f8a1b2c3d4e5f60718293"
OTHER_SECRET = "zz9-plural-z-alpha-0123456789"
_BODY = "".join(f"    value_{line} = first - {line}  # of some length\n" for line in range(60))
FILES = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    **{f"more/add_{n}.py": f"def add_{n}(first):\n{_BODY}" for n in range(12)},
}
EDIT = {"path": "calc.py", "search": "return a - b", "replace": "return a + b"}
REPLY = json.dumps({"thought": "the sign", "edits": [EDIT]})
QUICK = ("--no-tests", "--accept-unverified", "--no-iterative", "--repairs", "0")
ISSUE = f"# add subtracts\n\nSo do all of add_0 to add_11. See {OTHER_SECRET}.\n"


@pytest.fixture
def user(make_repository: Callable[[Mapping[str, str | bytes]], Path], tmp_path: Path) -> User:
    return User(tmp_path / "home", make_repository(FILES), ISSUE, GITHUB_TOKEN=OTHER_SECRET)


@pytest.mark.parametrize("option", ["-v", "--quiet"])
def test_no_key_in_any_output(user: User, option: str) -> None:
    key = {"PATCHSHOT_API_KEY": SECRET}
    done, _ = user.solve([echo_key], *QUICK, "--json=full", option, **key)
    assert done.returncode == 9
    printed = done.stderr + done.stdout
    assert "Incorrect API key" in printed
    assert SECRET[:14] not in printed
    assert OTHER_SECRET not in done.stderr


PLAIN_KEY = "quokka/Marsupial-7741-of-no-form"
FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "reversed": lambda key: key[::-1],
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 inside": lambda key: base64.b64encode(f"k={key};".encode()).decode(),
    "escaped": lambda key: key.replace("o", "\\u006f"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_key_that_the_server_echoes_is_in_nothing(user: User, form: str) -> None:
    sent: list[str] = []

    def echo(request: ChatRequest) -> Scripted:
        sent.append(FORMS[form](request.headers["authorization"].split()[-1]))
        edit = (
            f'"path": "calc.py", "search": "return a - b", "replace": "return a + b  # {sent[-1]}"'
        )
        return completion(request, f'{{"thought": "{sent[-1]}", "edits": [{{{edit}}}]}}')

    options = (*QUICK, "--apply", "--json=full", "-v", "--record", str(user.home / "record"))
    done, _ = user.solve([echo], *options, PATCHSHOT_API_KEY=PLAIN_KEY)
    assert done.returncode == 5, done.stderr
    assert sent[0].strip("=")[4:-4] not in done.stdout + done.stderr
    files = [path for top in (user.home, user.repository) for path in top.rglob("*")]
    texts = [path.read_text(errors="replace") for path in files if path.is_file()]
    assert "return a - b" in (user.repository / "calc.py").read_text()
    assert not [text for text in texts for part in (sent[0][4:-4], PLAIN_KEY) if part in text]


def test_a_prompt_that_is_too_long_is_packed_again_once(user: User) -> None:
    limit = {"PATCHSHOT_MAX_OUTPUT_TOKENS": "1000"}
    _, provider = user.solve([REPLY], *QUICK, **limit)
    size = count_tokens(provider.chats[0].prompt) + 1000
    done, provider = user.solve([context_limit(size - 300, REPLY)], *QUICK, **limit)
    assert (done.returncode, len(provider.chats)) == (0, 2), done.stderr
    done, provider = user.solve([context_limit(300, REPLY)], *QUICK, **limit)
    assert (done.returncode, len(provider.chats)) == (9, 1), done.stderr
    assert "PATCHSHOT_CONTEXT_TOKENS" in done.stderr


def test_embeddings_are_one_line_a_batch(user: User) -> None:
    remote = {"PATCHSHOT_EMBED": "remote", "PATCHSHOT_EMBED_MODEL": "scripted"}
    done, _ = user.solve([REPLY], *QUICK, "-v", **remote)
    assert done.returncode == 0, done.stderr
    batches = re.findall(r"^embed \d+ texts? to ", done.stderr, re.MULTILINE)
    assert 2 <= len(batches) <= 4  # the issue, and the chunks in few calls
