"""Reads the problem from a file, from standard input, from an address or from GitHub.

The text is untrusted. It is decoded like a source file, stripped of terminal control sequences, and
at most a megabyte long. Links in it are not followed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import urlsplit

from agent.errors import ProblemError
from agent.repository import decode, is_binary
from agent.shared.downloads import ACCEPTED, BadBody, read_body, tls_advice
from agent.types import Problem

if TYPE_CHECKING:
    import httpx

# Fifteen times the longest issue that GitHub stores (65,536 characters).
MAX_BYTES = 1_000_000
# The REST reply has the text JSON-escaped (up to six times longer) and a page of other fields.
_MAX_JSON_BYTES = 8 * MAX_BYTES
MAX_TITLE_CHARS = 200
FETCH_SECONDS = 30.0  # for everything, from the name of the host to the end of the body
_CONNECT_SECONDS = 10.0
_MAX_REDIRECTS = 5
GITHUB_API = "https://api.github.com"

# A log in an issue may hold a few NUL characters. A binary file has many.
_STRAY_NULS = 0.1

_ISSUE_NAME = re.compile(r"([\w.-]+)/([\w.-]+)#(\d+)")
_ISSUE_PATH = re.compile(r"/([\w.-]+)/([\w.-]+)/(?:issues|pull)/(\d+)/?")
_TEXT_TYPES = frozenset({"", "application/octet-stream", "application/markdown"})
_HTML = re.compile(rb"\s*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)

# ECMA-48: control sequences, then strings with their terminator, then two-character escapes. A
# string holds no introducer, which keeps matching linear in a hostile text that opens many and ends
# none. Its length is bounded so that an open string does not swallow the text up to a distant end.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,256}[ -/]{0,16}[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x90\x98\x9b-\x9f]{0,4096}(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]{0,16}[0-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Fetched:
    """A reply to a GET request. `media_type` is in lower case without parameters, "" if missing."""

    status: int
    media_type: str
    content: bytes


Fetch = Callable[[str, Mapping[str, str], int], Fetched]
"""Makes a GET request with headers; reads at most this many bytes. Raises ProblemError."""


def read_problem(
    source: str,
    *,
    stdin: BinaryIO,
    fetch: Fetch | None = None,
    github_api: str | None = None,
    github_token: str | None = None,
    text: bool = False,
) -> Problem:
    """Read the problem from a file name, `-` (standard input), an address or `OWNER/REPO#N`.

    Issues are read with the REST API of GitHub: at `github_api` (default: api.github.com), or at
    `https://HOST/api/v3` for other hosts. `github_token` is sent to `github_api` only. With `text`,
    a source that is no file and holds a space is the problem itself. Raises ProblemError.
    """
    if not source:
        raise ProblemError("the problem has an empty name; give a file, an address, or - for stdin")
    if re.match(r"https?://", source, re.IGNORECASE):
        return _from_address(source, fetch or http_get, github_api, github_token)
    if source == "-":
        return _problem(_clean(_read_stream(stdin, "standard input"), "<stdin>"), "<stdin>")
    # Never a file of that name: a commit message would say that it fixes the issue.
    if issue := _ISSUE_NAME.fullmatch(source):
        return _from_github(
            source, _issue_at(github_api, *issue.groups()), fetch or http_get, github_token
        )
    if text and re.search(r"\s", source.strip()) and not _is_there(source):
        return problem_from_text(source, "<argument>")
    return _problem(_clean(_read_file(source), source), source)


def _is_there(source: str) -> bool:
    try:
        return Path(source).exists()
    except (OSError, ValueError):  # too long for a name, or a NUL character
        return False


def problem_from_text(text: str, source: str) -> Problem:
    """Make a problem from the text of a data set or another program, as from a file.

    Raises ProblemError for a text that is empty, binary or above 1 MB.
    """
    return _problem(_clean(text.encode("utf-8", errors="replace"), source), source)


# --------------------------------------------------------------------------------- text to problem


def _problem(text: str, source: str) -> Problem:
    title, body = _split_title(text)
    if not title:
        raise ProblemError(f"{source}: the problem is empty; describe what is wrong")
    return Problem(title, body, source)


def _split_title(text: str) -> tuple[str, str]:
    """Return the first non-empty line and the rest. A shortened title stays in the body too."""
    lines = text.split("\n")
    for index, line in enumerate(lines):
        title = " ".join(line.strip().lstrip("#").split())
        if title:
            short = _shorten(title)
            rest = lines[index + 1 :] if short == title else lines[index:]
            return short, re.sub(r"\A\s*\n", "", "\n".join(rest)).rstrip()
    return "", ""


def _shorten(title: str) -> str:
    if len(title) <= MAX_TITLE_CHARS:
        return title
    cut = title[: MAX_TITLE_CHARS - 1]
    at_word = cut.rpartition(" ")[0]
    return (at_word if len(at_word) > MAX_TITLE_CHARS // 2 else cut) + "…"


def _clean(data: bytes, source: str) -> str:
    if len(data) > MAX_BYTES:
        raise _too_large(source, f"{len(data):,}", MAX_BYTES)
    if is_binary(data) and not _has_stray_nuls_only(data):
        raise ProblemError(f"{source}: binary data; give the problem as UTF-8 text")
    return _printable(decode(data).text)


def _has_stray_nuls_only(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return data.count(0) <= _STRAY_NULS * len(data)


def _printable(text: str) -> str:
    """Remove terminal escapes, controls and lone surrogates, all of which JSON can hold."""
    plain = _CONTROLS.sub("", _ESCAPES.sub("", text))
    return plain.encode("utf-8", errors="replace").decode("utf-8")


def _too_large(source: str, size: str, limit: int) -> ProblemError:
    return ProblemError(
        f"{source}: {size} bytes, the limit is {limit:,}; cut it down to the description"
    )


# -------------------------------------------------------------------------- file and standard input


def _read_file(name: str) -> bytes:
    """Read a regular file, or anything that can be read to its end (`<(command)` in a shell)."""
    try:
        with Path(name).open("rb") as stream:
            size = Path(name).stat().st_size
            if size > MAX_BYTES:
                raise _too_large(name, f"{size:,}", MAX_BYTES)
            return _read_stream(stream, name)
    except FileNotFoundError:
        raise ProblemError(
            f"{name}: no such file; give a file, an address, OWNER/REPO#N, or - for standard input"
        ) from None
    except (OSError, ValueError) as error:
        raise _unreadable(name, error) from None


def _unreadable(name: str, error: OSError | ValueError) -> ProblemError:
    reason = error.strerror if isinstance(error, OSError) else error
    return ProblemError(
        f"{_printable(name)[:60]}: cannot be read as a file ({reason}); to give the text itself, "
        "pipe it into --problem -"
    )


def _read_stream(stream: BinaryIO, name: str) -> bytes:
    try:
        data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise _unreadable(name, error) from None
    if len(data) > MAX_BYTES:
        raise _too_large(name, f"more than {MAX_BYTES:,}", MAX_BYTES)
    return data


# --------------------------------------------------------------------------------------- addresses


def _from_address(
    address: str, fetch: Fetch, github_api: str | None, github_token: str | None
) -> Problem:
    issue = _issue_api(address, github_api)
    if issue is not None:
        trusted = issue.startswith(f"{(github_api or GITHUB_API).rstrip('/')}/")
        return _from_github(address, issue, fetch, github_token if trusted else None)
    reply = fetch(address, {"Accept": "text/plain, text/markdown;q=0.9, text/*;q=0.5"}, MAX_BYTES)
    _check_status(address, reply)
    if reply.media_type in ("text/html", "application/xhtml+xml") or _HTML.match(reply.content):
        raise ProblemError(
            f"{address}: a web page, not text; give the address of the raw text, or save the "
            "problem to a file"
        )
    if reply.media_type not in _TEXT_TYPES and not reply.media_type.startswith("text/"):
        raise ProblemError(
            f"{address}: {reply.media_type}, not text; save the problem to a text file"
        )
    return _problem(_clean(reply.content, address), address)


def _issue_api(address: str, github_api: str | None) -> str | None:
    try:
        parts = urlsplit(address)
    except ValueError:
        raise ProblemError(f"{address}: not an address; check it") from None
    match = _ISSUE_PATH.fullmatch(parts.path)
    if match is None or not parts.hostname:
        return None
    base: str | None = f"{parts.scheme}://{parts.netloc}/api/v3"
    if github_api and parts.netloc == urlsplit(github_api).netloc:
        base = github_api
    elif parts.hostname in ("github.com", "www.github.com"):
        base = GITHUB_API
    return _issue_at(base, *match.groups())


def _issue_at(api: str | None, owner: str, name: str, number: str) -> str:
    return f"{(api or GITHUB_API).rstrip('/')}/repos/{owner}/{name}/issues/{number}"


def _from_github(source: str, address: str, fetch: Fetch, token: str | None) -> Problem:
    headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    reply = fetch(address, headers, _MAX_JSON_BYTES)
    _check_status(source, reply, private=not token)
    title, body = _parse_issue(source, reply.content)
    title = " ".join(_printable(title).split())
    body = _clean((body or "").encode("utf-8", errors="replace"), source).strip("\n").rstrip()
    short = _shorten(title)
    return _problem(f"{title}\n{body}", source) if short != title else Problem(title, body, source)


def _parse_issue(source: str, content: bytes) -> tuple[str, str | None]:
    from pydantic import BaseModel, ValidationError

    # An issue has about a hundred other fields, which are ignored.
    class Issue(BaseModel, frozen=True, strict=True):
        title: str
        body: str | None = None

    try:
        issue = Issue.model_validate_json(content)
    except ValidationError:
        raise ProblemError(
            f"{source}: the reply is not an issue of GitHub's API; save its text to a file"
        ) from None
    if not issue.title.strip():
        raise ProblemError(f"{source}: the issue has no title; save its text to a file")
    return issue.title, issue.body


def _check_status(address: str, reply: Fetched, *, private: bool = False) -> None:
    if 200 <= reply.status < 300:
        return
    why = "not found" if reply.status in (404, 410) else f"the server answered {reply.status}"
    token = "set GITHUB_TOKEN if it is private or calls are limited, " if private else ""
    raise ProblemError(f"{address}: {why}; {token}or save its text to a file and give that")


def http_get(address: str, headers: Mapping[str, str], max_bytes: int) -> Fetched:
    """A `Fetch` with limits of time and size, through the proxies in the environment."""
    import httpx

    try:
        return asyncio.run(_get_in_time(address, headers, max_bytes))
    except TimeoutError:
        raise ProblemError(
            f"{address}: took longer than {FETCH_SECONDS:g} s; save its text to a file"
        ) from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = _printable(str(error) or type(error).__name__)
        wrong = tls_advice(reason, "the server", "the address")
        said = wrong or f"cannot be fetched ({reason}); check the address and the network"
        raise ProblemError(f"{address}: {said}, or save its text to a file") from None


async def _get_in_time(address: str, headers: Mapping[str, str], max_bytes: int) -> Fetched:
    import httpx

    agent = {"User-Agent": "patchshot", "Accept-Encoding": ACCEPTED, **headers}
    # The limit of the whole holds for every part. httpx's own limit of a read would begin anew
    # with each byte.
    limits = httpx.Timeout(None, connect=_CONNECT_SECONDS)
    async with asyncio.timeout(FETCH_SECONDS), httpx.AsyncClient(timeout=limits) as client:
        request = client.build_request("GET", address, headers=agent)
        # httpx would decode the body of a redirection without a limit.
        for _ in range(_MAX_REDIRECTS + 1):
            reply = await client.send(request, stream=True)
            try:
                if reply.next_request is None:
                    return _fetched(reply, await read_body(reply, max_bytes), address, max_bytes)
                request = reply.next_request
            finally:
                await reply.aclose()
    raise httpx.TooManyRedirects(f"more than {_MAX_REDIRECTS} redirections")


def _fetched(
    reply: httpx.Response, content: bytes | BadBody, address: str, max_bytes: int
) -> Fetched:
    if isinstance(content, BadBody):
        if content.kind == "too-large":
            raise _too_large(address, f"more than {max_bytes:,}", max_bytes)
        raise ProblemError(
            f"{address}: the server sent {content.reason}; save the text to a file and give that"
        )
    media_type = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    return Fetched(reply.status_code, media_type, content)
