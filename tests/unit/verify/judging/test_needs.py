"""Messages as programs printed them in a sandbox without a network."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.verify.judging.wording import (
    needs,
    not_started,
)
from agent.verify.runners.base import Suite
from tests.support.runners import Project
from tests.support.validation import run_of


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (
            "cc -o x x.c\nmake: *** No rule to make target 'nonexist'.  Stop.",
            "make: *** No rule to make target 'nonexist'.  Stop.",
        ),
        ("make: *** No targets specified and no makefile found.  Stop.", "make: *** No targets"),
        ("/opt/venv/bin/python3.11: No module named nope", "python3.11: No module named nope"),
        ("python: can't open file '/w/t.py': [Errno 2] No such file or directory", "can't open"),
        ("sh: 1: Syntax error: end of file unexpected", "Syntax error"),
        ("/bin/sh: 1: cd: can't cd to nowhere", "can't cd to nowhere"),
        ('npm error Missing script: "tset"', 'Missing script: "tset"'),
        ("error: no such command: `tset`", "no such command"),
    ],
)
def test_a_command_that_starts_no_test_says_so(output: str, said: str) -> None:
    assert said in not_started(run_of({"command": "failed"}, output=output, exit_code=2))


@pytest.mark.parametrize(
    "output",
    [
        "  File a.py\nModuleNotFoundError: No module named 'shop'",
        "FAIL: 3 of 4 checks\nmake: *** [Makefile:3: test] Error 1",
        "",
    ],
)
def test_a_command_that_only_fails_has_started(output: str) -> None:
    assert not_started(run_of({"command": "failed"}, output=output, exit_code=1)) == ""
    passes = run_of({"command": "passed"}, output="make: *** No rule to make target 'a'.")
    assert not_started(passes) == ""


def test_a_run_without_an_outcome_has_started_no_test() -> None:
    missing = run_of({}, output="prlimit: failed to execute pytst: No such", exit_code=127)
    assert not_started(missing) == "it cannot be started (failed to execute pytst: No such)"
    nothing = run_of({}, output="ERROR: file not found: t\n\n", exit_code=4)
    assert not_started(nothing) == (
        "it ended with exit code 4 and no test ran (ERROR: file not found: t)"
    )


def failing(*texts: str) -> dict[str, object]:
    ids = [f"t.py::test_{number}" for number in range(len(texts))]
    return {
        "outcomes": dict.fromkeys(ids, "failed"),
        "failures": dict(zip(ids, texts, strict=True)),
    }


@pytest.mark.parametrize(
    "text",
    [
        "urllib.error.URLError: <urlopen error [Errno -2] Name or service not known>",
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        "urllib.error.URLError: <urlopen error [Errno 101] Network is unreachable>",
        "(Caused by NameResolutionError(\"HTTPSConnection(host='a', port=443): Failed to resolve",
        "curl: (6) Could not resolve host: example.com",
        "caused by: Error: getaddrinfo ENOTFOUND example.com",
        "java.net.UnknownHostException: example.com",
        "dial tcp: lookup example.com: no such host",
    ],
)
def test_failures_for_want_of_the_network_are_told(text: str) -> None:
    run = run_of(**failing(text, "AssertionError: 1 != 2"))  # type: ignore[arg-type]
    assert needs(run) == ("1 failing test needs the network: the sandbox has no network",)


@pytest.mark.parametrize(
    "text",
    [
        'psycopg.OperationalError: connection to server at "127.0.0.1" failed',
        'connection to server on socket "/var/run/postgresql/.s.PGSQL.5432" failed',
        "(2003, \"Can't connect to MySQL server on '127.0.0.1' ([Errno 111]\")",
        "redis.exceptions.ConnectionError: Error 111 to localhost:6379. Connection refused.",
        "pika.exceptions.AMQPConnectionError",
        "Error: connect ECONNREFUSED 127.0.0.1:5432",
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock",
    ],
)
def test_failures_for_want_of_a_server_quote_the_line(text: str) -> None:
    run = run_of(**failing(text, text))  # type: ignore[arg-type]
    assert needs(run) == (f"2 failing tests need a server, and none runs here ({text})",)


@pytest.mark.parametrize(
    "text",
    [
        "As a reminder, you're using offline mode (--offline) which can sometimes",
        "Cannot access central in offline mode and the artifact a:b:jar:1 has",
        "go: example.com/x@v1: module lookup disabled by GOPROXY=off",
        "npm error code ENOTCACHED",
        "Error: Cannot find module 'left-pad'",
    ],
)
def test_a_build_that_lacks_packages_says_so(text: str) -> None:
    assert needs(run_of({}, exit_code=1, output=f"more\n{text}\nmore")) == (
        f"a package is not installed here: {text}",
    )


def test_a_runner_that_is_not_there_is_named_only_where_nothing_began() -> None:
    text = "collect.sh: 26: jest: not found"
    (note,) = needs(run_of({}, exit_code=127, output=text))
    assert "jest: not found" in note
    assert needs(run_of({}, exit_code=1, output=text)) == ()


def test_what_passing_tests_print_says_nothing() -> None:
    run = run_of({"t.py::test_a": "passed"}, output="Connection refused\nName or service not known")
    assert needs(run) == ()
    assert needs(run_of({}, output="")) == ()


TESTS = """
import socket, unittest, urllib.request

class Case(unittest.TestCase):
    def test_name(self): urllib.request.urlopen("http://example.org/")
    def test_address(self): urllib.request.urlopen("http://192.0.2.1/", timeout=5)
    def test_database(self): socket.create_connection(("127.0.0.1", 5432))
    def test_other(self): self.assertEqual(1, 2)
"""


def test_in_a_sandbox_without_a_network(tmp_path: Path, python_without_pytest: Path) -> None:
    project = Project({"test_a.py": TESTS}, tmp_path, python_without_pytest)
    run = project.run(["test_a.py"], suite=Suite("unittest", ""))
    assert needs(run) == (
        "2 failing tests need the network: the sandbox has no network",
        "1 failing test needs a server, and none runs here (ConnectionRefusedError: [Errno 111] Connection refused)",  # noqa: E501
    ), run.failures


@settings(deadline=None)
@given(st.dictionaries(st.text(min_size=1), st.text()), st.text())
def test_any_text_can_be_read(failures: dict[str, str], output: str) -> None:
    needs(run_of(dict.fromkeys(failures, "failed"), failures=failures, output=output))
