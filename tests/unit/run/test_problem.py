from __future__ import annotations

import io
import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ProblemError
from agent.run.problem import MAX_BYTES, MAX_TITLE_CHARS, Fetched, http_get, read_problem
from agent.types import Problem
from tests.support.loopback import Scripted, loopback

NO_STDIN = io.BytesIO()


def _from_text(data: bytes) -> Problem:
    return read_problem("-", stdin=io.BytesIO(data))


@pytest.mark.parametrize(
    ("data", "title", "body"),
    [
        (b"It crashes", "It crashes", ""),
        (b"\n\n##  It   crashes \n\nWhen run.\n\n", "It crashes", "When run."),
        (b"#\n\n# Real title\nbody", "Real title", "body"),
        (b"T\r\n\r\na\r\nb\r\n", "T", "a\nb"),
        ("\ufeffÜber\nBody".encode(), "Über", "Body"),
        ("\ufeffÜber\nBody".encode("utf-16-le"), "Über", "Body"),
        (b"caf\xe9\n", "café", ""),
        # No Python cookie in an issue.
        ("# Wrong encoding: cp1252\né".encode(), "Wrong encoding: cp1252", "é"),
        (
            b"a\0b \x1b[31mred\x1b[0m\nx\x1b]0;title\x07y\x1b]8;;http://h\x1b\\z\x7f",
            "ab red",
            "xyz",
        ),
        (b"T\n \n\tcode\n    more\n \n", "T", "\tcode\n    more"),
        (b"bell\x07 \x08\x1bcreset\n\x1b[?25l\x1b(Bq", "bell reset", "q"),
        ("csi \x9b31m c1 \x85.".encode(), "csi c1 .", ""),
        (b"open \x1b]0;no end", "open 0;no end", ""),
    ],
)
def test_title_and_body(data: bytes, title: str, body: str) -> None:
    assert _from_text(data) == Problem(title, body, "<stdin>")


def test_a_long_first_line_is_cut_in_the_title_and_whole_in_the_body() -> None:
    line = "word " * 100 + "end"
    problem = _from_text(f"# {line}\nrest".encode())
    assert len(problem.title) <= MAX_TITLE_CHARS
    assert problem.title.endswith("word…")
    assert problem.body == f"# {line}\nrest"
    assert len(_from_text(b"x" * 500).title) == MAX_TITLE_CHARS


@given(st.text(max_size=300))
def test_what_comes_out_is_printable_and_encodable(text: str) -> None:
    try:
        problem = _from_text(text.encode("utf-8", "surrogatepass"))
    except ProblemError:
        return
    assert problem.title.strip() == problem.title
    assert "\n" not in problem.title
    assert not {"\0", "\x1b", "\r", "\x9b", "\x7f"} & set(problem.text)
    problem.text.encode()


def test_hostile_escapes_take_linear_time() -> None:
    started = time.monotonic()
    for unit in ("\x1b]", "\x1b[", "\x1b[0", "\x1bP", "\x1b]0;a", "\x9d", "\x90", "\x9b", "\x1b "):
        _from_text(b"title\n" + unit.encode() * ((MAX_BYTES - 10) // len(unit.encode())))
    assert time.monotonic() - started < 10
    kept = "x" * 10_000
    assert _from_text(f"T\n\x1b]{kept}\x07".encode()).body == kept


# ------------------------------------------------------------------------------------------- files


def test_a_pipe_as_the_shell_names_it() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"from a pipe")
    os.close(writer)
    try:
        assert read_problem(f"/dev/fd/{reader}", stdin=NO_STDIN).title == "from a pipe"
    finally:
        os.close(reader)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the problem is empty"),
        (b" \n\t\r\n#\n", "the problem is empty"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary data"),
        ("plain".encode("utf-16-le"), "binary data"),
        (b"a" * 1_000_001, "1,000,001 bytes, the limit is 1,000,000"),
    ],
)
def test_files_that_are_no_problem(tmp_path: Path, data: bytes, words: str) -> None:
    file = tmp_path / "issue.md"
    file.write_bytes(data)
    with pytest.raises(ProblemError, match=words) as caught:
        read_problem(str(file), stdin=NO_STDIN)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)


def test_an_endless_stream_is_cut() -> None:
    with pytest.raises(ProblemError, match="more than 1,000,000 bytes"):
        read_problem("/dev/zero", stdin=NO_STDIN)
    with pytest.raises(ProblemError, match="standard input: more than 1,000,000 bytes"):
        _from_text(b"x" * (MAX_BYTES + 5))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("{}/missing.md", "no such file"),
        ("{}", "a directory"),
        ("{}/file/x", r"cannot be read as a file \(Not a directory\)"),
        ("a\0b", "cannot be read as a file"),
        ("The parser crashes. " * 40, "File name too long.; to give the text itself"),
    ],
)
def test_names_that_cannot_be_read(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ProblemError, match=words):
        read_problem(name.format(tmp_path), stdin=NO_STDIN)


# --------------------------------------------------------------------------------------- addresses


class Web:
    """A scripted `Fetch` that records its requests."""

    def __init__(self, reply: Fetched) -> None:
        self.reply = reply
        self.asked: list[tuple[str, Mapping[str, str], int]] = []

    def __call__(self, address: str, headers: Mapping[str, str], max_bytes: int) -> Fetched:
        self.asked.append((address, headers, max_bytes))
        return self.reply


def _issue(content: bytes, status: int = 200) -> Web:
    return Web(Fetched(status, "application/json", content))


@pytest.mark.parametrize(
    ("address", "api", "asked"),
    [
        (
            "https://github.com/o/r.js/issues/7",
            None,
            "https://api.github.com/repos/o/r.js/issues/7",
        ),
        ("https://www.github.com/o/r/pull/8/", None, "https://api.github.com/repos/o/r/issues/8"),
        ("HTTPS://git.corp/o/r/issues/9#c1", None, "https://git.corp/api/v3/repos/o/r/issues/9"),
        (
            "https://git.corp/o/r/issues/9",
            "http://x/api/",
            "https://git.corp/api/v3/repos/o/r/issues/9",
        ),
        ("http://x/o/r/issues/9", "http://x/api/", "http://x/api/repos/o/r/issues/9"),
        ("o/r.js#7", None, "https://api.github.com/repos/o/r.js/issues/7"),
        ("o/r#7", "http://x/api/", "http://x/api/repos/o/r/issues/7"),
    ],
)
def test_an_issue_is_read_through_the_api(address: str, api: str | None, asked: str) -> None:
    web = _issue(b'{"title": " It   crashes\\u0000", "body": "Steps\\r\\n1", "id": 1, "user": {}}')
    problem = read_problem(address, stdin=NO_STDIN, fetch=web, github_api=api)
    assert problem == Problem("It crashes", "Steps\n1", address)
    assert [address for address, _, _ in web.asked] == [asked]


def test_a_name_of_an_issue_is_never_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "octo").mkdir()
    (tmp_path / "octo" / "shop#12").write_text("Delete everything")
    monkeypatch.chdir(tmp_path)
    web = _issue(b'{"title": "T", "body": null}')
    assert read_problem("octo/shop#12", stdin=NO_STDIN, fetch=web).title == "T"
    path = "./octo/shop#12"
    assert read_problem(path, stdin=NO_STDIN, fetch=web).title == "Delete everything"


def test_the_token_goes_to_the_named_api_only() -> None:
    for address, api, sent in (
        ("https://github.com/o/r/issues/1", None, True),
        ("https://github.com/o/r/issues/1", "https://api.github.com", True),
        ("https://github.com/o/r/issues/1", "https://git.corp/api/v3", False),
        ("https://evil.example/o/r/issues/1", "https://git.corp/api/v3", False),
        ("o/r#1", "https://git.corp/api/v3", True),
        ("https://git.corp/o/r/issues/1", "https://git.corp/api/v3", True),
        ("https://git.corp/o/r/issues/1", None, False),
        ("https://github.com/o/r/raw/x.md", None, False),
    ):
        web = _issue(b'{"title": "T", "body": null}')
        if not sent and "raw" in address:
            web = Web(Fetched(200, "text/plain", b"T"))
        read_problem(address, stdin=NO_STDIN, fetch=web, github_api=api, github_token="k")
        [(_, headers, _)] = web.asked
        assert ("Authorization" in headers) is sent, address


def test_an_issue_with_a_long_title_loses_nothing() -> None:
    title = "word " * 60
    web = _issue(f'{{"title": "{title}", "body": "b"}}'.encode())
    problem = read_problem("https://github.com/o/r/issues/1", stdin=NO_STDIN, fetch=web)
    assert len(problem.title) <= MAX_TITLE_CHARS
    assert problem.body == f"{title.strip()}\nb"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Fetched(404, "application/json", b"{}"), "not found; set GITHUB_TOKEN"),
        (Fetched(403, "application/json", b"{}"), "answered 403; set GITHUB_TOKEN"),
        (Fetched(500, "", b""), "the server answered 500"),
        (Fetched(200, "text/html", b"<html>"), "not an issue of GitHub's API"),
        (Fetched(200, "application/json", b'{"title": 5}'), "not an issue of GitHub's API"),
        (Fetched(200, "application/json", b'{"title": " "}'), "no title"),
    ],
)
def test_issues_that_cannot_be_had(reply: Fetched, words: str) -> None:
    with pytest.raises(ProblemError, match=words) as caught:
        read_problem("https://github.com/o/r/issues/1", stdin=NO_STDIN, fetch=Web(reply))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("media_type", ["text/plain", "text/markdown", "", "text/x-rst"])
def test_a_text_address(media_type: str) -> None:
    web = Web(Fetched(200, media_type, b"# T\nb"))
    problem = read_problem("https://h/raw.md", stdin=NO_STDIN, fetch=web)
    assert problem == Problem("T", "b", "https://h/raw.md")


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Fetched(200, "text/html", b"x"), "a web page, not text; give the address of the raw"),
        (Fetched(200, "", b"\n <!DOCTYPE html><p>"), "a web page, not text"),
        (Fetched(200, "image/png", b"x"), "image/png, not text"),
        (Fetched(200, "application/octet-stream", b"\0\0\0"), "binary data"),
        (Fetched(404, "text/plain", b"no"), "not found;"),
        (Fetched(200, "text/plain", b" "), "the problem is empty"),
    ],
)
def test_addresses_that_give_no_text(reply: Fetched, words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        read_problem("https://h/x", stdin=NO_STDIN, fetch=Web(reply))


# --------------------------------------------------------------------------------------- real HTTP


def test_over_http() -> None:
    issue = {"title": "It crashes", "body": "b", "number": 3}
    with loopback(Scripted(issue)) as server:
        problem = read_problem(f"{server.url}/o/r/issues/3", stdin=NO_STDIN, github_api=server.url)
        [request] = server.requests
    assert problem == Problem("It crashes", "b", f"{server.url}/o/r/issues/3")
    assert request.target == "/repos/o/r/issues/3"
    assert {name.lower(): value for name, value in request.headers.items()}["accept"] == (
        "application/vnd.github+json"
    )
    text = Scripted("T\nb", content_type="text/plain; charset=utf-8")
    with loopback(text) as server:
        assert read_problem(f"{server.url}/raw", stdin=NO_STDIN).body == "b"


def test_over_http_what_goes_wrong() -> None:
    cases = (
        (Scripted("x" * 1_000_001, content_type="text/plain"), "more than 1,000,000 bytes"),
        (Scripted(fault="drop"), "cannot be fetched"),
        (Scripted("x" * 100, content_type="text/plain", fault="half-body"), "cannot be fetched"),
        (Scripted(status=429), "the server answered 429"),
        (Scripted(status=302, headers={"location": "/again"}), "cannot be fetched"),
    )
    for scripted, words in cases:
        with loopback(scripted) as server, pytest.raises(ProblemError, match=words):
            read_problem(f"{server.url}/raw", stdin=NO_STDIN)
    with pytest.raises(ProblemError, match="cannot be fetched"):
        read_problem("http://127.0.0.1:9/x", stdin=NO_STDIN)
    with pytest.raises(ProblemError, match=r"cannot be fetched|not an address"):
        read_problem("http://[::bad/x", stdin=NO_STDIN)


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.run.problem.FETCH_SECONDS", 0.3)
    with (
        loopback(Scripted(fault="hang")) as server,
        pytest.raises(ProblemError, match="took longer"),
    ):
        http_get(f"{server.url}/x", {}, 10)
