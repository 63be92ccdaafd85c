"""Which project of GitHub a repository comes from, its token, and requests to it.

The address of `origin` is data of the repository. So only github.com, or the server that the
user's environment names instead, gets a token.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from agent.errors import ForgeError
from agent.settings import environment
from agent.shared.downloads import ACCEPTED, BadBody, read_body, tls_advice

_SECONDS = 30.0  # of one request, from the name of the host to the end of the body
_MAX_BYTES = 8_000_000  # a description of a repository has some ten kilobytes
_MAX_ERROR = 300  # characters of an error that the server sent

# On public projects anybody may comment.
_REVIEWERS = ("OWNER", "MEMBER", "COLLABORATOR")

_TOKENS = ("GITHUB_TOKEN", "GH_TOKEN")


@dataclass(frozen=True, slots=True)
class ForgeReply:
    """What the interface answered: the status code, and the JSON (None if it is none)."""

    status: int
    data: Any

    @property
    def error(self) -> str:
        """The errors of the server on one line."""
        data = self.data if isinstance(self.data, dict) else {}
        words = " ".join(str(data[name]) for name in ("message", "errors") if data.get(name))
        return " ".join(re.sub(r"[^\x20-\x7e]", " ", words).split())[:_MAX_ERROR] or "no reason"


@dataclass(frozen=True, slots=True)
class Forge:
    """A project OWNER/NAME of GitHub, with the token for it. Methods raise ForgeError."""

    server: str
    api: str
    project: str
    token: str = field(repr=False)

    @property
    def place(self) -> str:
        """The project as it is shown to the user."""
        return f"{urlsplit(self.server).netloc}/{self.project}"

    @property
    def push_url(self) -> str:
        """Where git pushes to."""
        return f"{self.server}/{self.project}.git"

    def default_branch(self) -> str:
        """Return the branch that pull requests go to."""
        reply = self._checked(self.send("GET", ""), "cannot be read")
        name = reply.data.get("default_branch") if isinstance(reply.data, dict) else None
        if not isinstance(name, str) or not name:
            raise ForgeError(f"{self.place}: it has no default branch; push one first")
        return name

    def has_branch(self, branch: str) -> bool:
        """Whether the project has the branch."""
        return self.send("GET", f"/branches/{quote(branch, safe='')}").status == 200

    def open_request(self, branch: str, base: str, title: str, body: str, *, draft: bool) -> str:
        """Open a pull request, and return its address, or that of an open one."""
        request = {"title": title, "head": branch, "base": base, "body": body, "draft": draft}
        reply = self.send("POST", "/pulls", request)
        # GitHub has no drafts in private projects of free accounts.
        if reply.status == 422 and "raft pull requests are not supported" in reply.error:
            reply = self.send("POST", "/pulls", {**request, "draft": False})
        if reply.status == 422 and "already exists" in reply.error:
            owner = self.project.partition("/")[0]
            head = quote(f"{owner}:{branch}", safe="")
            reply = self.send("GET", f"/pulls?state=open&head={head}")
            first = reply.data[0] if isinstance(reply.data, list) and reply.data else None
            reply = ForgeReply(reply.status, first)
        data = self._checked(reply, "the request was not opened").data
        address = data.get("html_url") if data else None
        if not isinstance(address, str) or not re.fullmatch(r"https?://[!-~]+", address):
            raise ForgeError(f"{self.place}: the reply names no address of the request; look there")
        return address

    def review(self, request: int) -> str:
        """Return what people who may write to the project said in the reviews of a request."""
        parts: list[str] = []
        for part in ("reviews", "comments"):
            reply = self.send("GET", f"/pulls/{request}/{part}?per_page=100")
            data = self._checked(reply, f"the review of {request} cannot be read").data
            for one in data if isinstance(data, list) else ():
                ours = isinstance(one, dict) and one.get("author_association") in _REVIEWERS
                if ours and (body := str(one.get("body") or "").strip()):
                    line = f", line {one['line']}" if one.get("line") else ""
                    parts.append(f"{one['path']}{line}: {body}" if one.get("path") else body)
        return "\n\n".join(parts)

    def comment(self, issue: int, body: str) -> None:
        """Comment on an issue."""
        reply = self.send("POST", f"/issues/{issue}/comments", {"body": body})
        self._checked(reply, f"issue {issue} got no comment")

    def may_write(self, user: str) -> bool:
        """Whether a user may write to the project."""
        reply = self.send("GET", f"/collaborators/{quote(user, safe='')}/permission")
        data = reply.data if reply.status == 200 and isinstance(reply.data, dict) else {}
        return data.get("permission") in ("admin", "write")

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> ForgeReply:
        """Send a request about the project; `path` follows its address."""
        import httpx

        try:
            return asyncio.run(self._send(method, path, body))
        except TimeoutError:
            raise ForgeError(f"{self.place}: took longer than {_SECONDS:g} s; try again") from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            reason = self.hide(str(error) or type(error).__name__)
            problem = tls_advice(reason, "the server", "its address")
            problem = problem or f"cannot be reached ({reason}); check the network"
            raise ForgeError(f"{self.place}: {problem}") from None

    def hide(self, text: str) -> str:
        """Return the text without the token."""
        return text.replace(self.token, "***")

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> ForgeReply:
        import httpx

        headers = {
            "User-Agent": "patchshot",
            "Accept-Encoding": ACCEPTED,
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        address = f"{self.api}/repos/{self.project}{path}"
        limits = httpx.Timeout(None, connect=_SECONDS)  # the limit of the whole holds for all parts
        async with asyncio.timeout(_SECONDS), httpx.AsyncClient(timeout=limits) as client:
            request = client.build_request(method, address, headers=headers, json=body)
            reply = await client.send(request, stream=True)
            try:
                content = await read_body(reply, _MAX_BYTES)
            finally:
                await reply.aclose()
        if isinstance(content, BadBody):
            raise ValueError(f"the server sent {content.reason}")  # noqa: TRY004
        try:
            return ForgeReply(reply.status_code, json.loads(content) if content else None)
        except (ValueError, RecursionError):
            return ForgeReply(reply.status_code, None)

    def _checked(self, reply: ForgeReply, what: str) -> ForgeReply:
        if 200 <= reply.status < 300:
            return reply
        denied = reply.status in (401, 403, 404)
        advice = f"; check that {_TOKENS[0]} may write there" if denied else ""
        raise ForgeError(f"{self.place}: {what} ({reply.status}: {self.hide(reply.error)}){advice}")


_SCP = re.compile(r"(?:[^@/:]+@)?(?P<host>[^@/:\[\]]+):(?P<path>(?!//).*)")
_PROJECT = re.compile(r"[\w.-]+/[\w.-]+")


def find_forge(origin: str) -> Forge:
    """Return the project that the address of a remote names, with a token. Raises ForgeError."""
    if not origin:
        raise ForgeError("--pr needs the remote origin: git remote add origin https://...")
    host, path, web = _parsed(origin)
    server, api = _server()
    address = urlsplit(server)
    if host != (address.netloc.lower() if web else address.hostname):
        raise ForgeError(
            f"--pr: origin is on {host}, which gets no token: pull requests are for GitHub; if "
            "this is your own GitHub server, set GITHUB_SERVER_URL to its address"
        )
    project = path.removeprefix(address.path).strip("/").removesuffix(".git")
    if not _PROJECT.fullmatch(project) or {".", ".."} & {*project.split("/")}:
        raise ForgeError("--pr: the address of origin names no project OWNER/NAME of GitHub")
    variables = environment(_TOKENS)
    token = next((variables[name] for name in _TOKENS if name in variables), "").strip()
    if not token:
        example = f"set {_TOKENS[0]}, for example to $(gh auth token)"
        raise ForgeError(f"--pr needs a token that may write: {example}")
    return Forge(server, api, project, token)


def _parsed(origin: str) -> tuple[str, str, bool]:
    """Return host, path, and whether the address is one of HTTP, whose host may have a port."""
    short = _SCP.fullmatch(origin)
    if "://" not in origin and short is not None:
        return short["host"].lower(), f"/{short['path'].lstrip('/')}", False
    try:
        parts = urlsplit(origin)
        host = parts.hostname or ""
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("http", "https", "ssh", "git"):
        raise ForgeError("--pr: the address of origin must be one on GitHub")
    web = parts.scheme in ("http", "https")
    return parts.netloc.rpartition("@")[2].lower() if web else host, parts.path, web


def _server() -> tuple[str, str]:
    """Return the addresses of the server and of its interface, without a slash at the end."""
    variables = environment(("GITHUB_SERVER_URL", "GITHUB_API_URL"))
    server, api = (
        variables.get(name, "").strip().rstrip("/")
        for name in ("GITHUB_SERVER_URL", "GITHUB_API_URL")
    )
    if not server:
        parts = urlsplit(api or "https://github.com")
        server = f"{parts.scheme}://{parts.netloc.removeprefix('api.')}"
    public = server == "https://github.com"
    return server, api or ("https://api.github.com" if public else f"{server}/api/v3")
