"""Which project on GitHub or GitLab a repository comes from, its token, and requests to it.

The address of `origin` is data of the repository, so it only chooses among hosts that are trusted
with a token: github.com and gitlab.com, or the ones that the user's environment names instead.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from agent.errors import ForgeError
from agent.settings import environment
from agent.shared.downloads import ACCEPTED, BadBody, read_body, tls_advice

_SECONDS = 30.0  # of one request, from the name of the host to the end of the body
_MAX_BYTES = 8_000_000  # a description of a repository has some ten kilobytes
_SAID = 300  # characters of an error that a server sent

Kind = Literal["github", "gitlab"]


def token_names(kind: Kind) -> tuple[str, ...]:
    """Return the variables that may hold the token, the best known first."""
    return ("GITHUB_TOKEN", "GH_TOKEN") if kind == "github" else ("GITLAB_TOKEN",)


@dataclass(frozen=True, slots=True)
class ForgeReply:
    """What the interface answered: the status code, and the JSON (None if it is none)."""

    status: int
    data: Any

    @property
    def said(self) -> str:
        """The errors of the server on one line."""
        data = self.data if isinstance(self.data, dict) else {}
        parts = [data.get("message"), data.get("error"), data.get("errors")]
        words = " ".join(str(part) for part in parts if part)
        return " ".join(re.sub(r"[^\x20-\x7e]", " ", words).split())[:_SAID] or f"{self.status}"


@dataclass(frozen=True, slots=True)
class Forge:
    """A project on GitHub or GitLab, with the token for it. Methods raise ForgeError."""

    kind: Kind
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

    @property
    def user(self) -> str:
        """The user name that goes with the token when git sends it."""
        return "x-access-token" if self.kind == "github" else "oauth2"

    def default_branch(self) -> str:
        """Return the branch that pull requests go to."""
        reply = self._checked(self.send("GET", ""), "cannot be read")
        name = reply.data.get("default_branch") if isinstance(reply.data, dict) else None
        if not isinstance(name, str) or not name:
            raise ForgeError(f"{self.place}: it has no default branch; push one first")
        return name

    def has_branch(self, branch: str) -> bool:
        """Whether the project has the branch."""
        folder = "branches" if self.kind == "github" else "repository/branches"
        return self.send("GET", f"/{folder}/{quote(branch, safe='')}").status == 200

    def open_request(self, branch: str, base: str, title: str, body: str, *, draft: bool) -> str:
        """Open a pull or merge request, and return its address, or that of an open one."""
        if self.kind == "github":
            path = "/pulls"
            given = {"title": title, "head": branch, "base": base, "body": body, "draft": draft}
        else:
            path, shown = "/merge_requests", f"Draft: {title}" if draft else title
            given = {"source_branch": branch, "target_branch": base, "title": shown}
            given |= {"description": body, "remove_source_branch": True}
        reply = self.send("POST", path, given)
        # GitHub has no drafts in private projects of free accounts.
        if reply.status == 422 and "raft pull requests are not supported" in reply.said:
            reply = self.send("POST", path, {**given, "draft": False})
        if reply.status in (409, 422) and "already exists" in reply.said:
            reply = self._existing(branch)
        data = self._checked(reply, "the request was not opened").data
        return self._address(data)

    def comment(self, issue: int, body: str) -> str:
        """Comment on an issue, and return the comment's address, "" if the server names none."""
        notes = "comments" if self.kind == "github" else "notes"
        reply = self.send("POST", f"/issues/{issue}/{notes}", {"body": body})
        data = self._checked(reply, f"issue {issue} got no comment").data
        return str(data.get("html_url") or "") if isinstance(data, dict) else ""

    def may_write(self, user: str) -> bool:
        """Whether a user of GitHub may write to the project."""
        reply = self.send("GET", f"/collaborators/{quote(user, safe='')}/permission")
        data = reply.data if reply.status == 200 and isinstance(reply.data, dict) else {}
        return data.get("permission") in ("admin", "write")

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> ForgeReply:
        """Send a request about the project; `path` follows its address."""
        named = self.project if self.kind == "github" else quote(self.project, safe="")
        folder = "repos" if self.kind == "github" else "projects"
        return _send(method, f"{self.api}/{folder}/{named}{path}", self._headers(), body, self)

    def hide(self, text: str) -> str:
        """Return the text without the token."""
        return text.replace(self.token, "***")

    def _headers(self) -> Mapping[str, str]:
        common = {"User-Agent": "patchshot", "Accept-Encoding": ACCEPTED}
        if self.kind == "gitlab":
            return {**common, "PRIVATE-TOKEN": self.token}
        return {
            **common,
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }

    def _existing(self, branch: str) -> ForgeReply:
        if self.kind == "github":
            owner = self.project.partition("/")[0]
            query = f"/pulls?state=open&head={quote(f'{owner}:{branch}', safe='')}"
        else:
            query = f"/merge_requests?state=opened&source_branch={quote(branch, safe='')}"
        reply = self.send("GET", query)
        first = reply.data[0] if isinstance(reply.data, list) and reply.data else None
        return ForgeReply(reply.status, first)

    def _address(self, data: Any) -> str:
        found = data.get("html_url" if self.kind == "github" else "web_url") if data else None
        if not isinstance(found, str) or not re.fullmatch(r"https?://[!-~]+", found):
            raise ForgeError(f"{self.place}: the reply names no address of the request; look there")
        return found

    def _checked(self, reply: ForgeReply, what: str) -> ForgeReply:
        if 200 <= reply.status < 300:
            return reply
        name = token_names(self.kind)[0]
        advice = f"; check that {name} may write there" if reply.status in (401, 403, 404) else ""
        raise ForgeError(f"{self.place}: {what} ({reply.status}: {self.hide(reply.said)}){advice}")


def _send(
    method: str,
    address: str,
    headers: Mapping[str, str],
    body: Mapping[str, Any] | None,
    forge: Forge,
) -> ForgeReply:
    import httpx

    try:
        return asyncio.run(_send_in_time(method, address, headers, body))
    except TimeoutError:
        raise ForgeError(f"{forge.place}: took longer than {_SECONDS:g} s; try again") from None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        reason = forge.hide(str(error) or type(error).__name__)
        wrong = tls_advice(reason, "the server", "its address")
        raise ForgeError(
            f"{forge.place}: {wrong or f'cannot be reached ({reason}); check the network'}"
        ) from None


async def _send_in_time(
    method: str, address: str, headers: Mapping[str, str], body: Mapping[str, Any] | None
) -> ForgeReply:
    import json

    import httpx

    limits = httpx.Timeout(None, connect=_SECONDS)  # the limit of the whole holds for every part
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


_SCP = re.compile(r"(?:[^@/:]+@)?(?P<host>[^@/:\[\]]+):(?P<path>(?!//).*)")
_PROJECT = re.compile(r"[\w.-]+(?:/[\w.-]+)+")


@dataclass(frozen=True, slots=True)
class _Server:
    """A server that may be sent the token. `address` and `api` have no slash at the end."""

    kind: Kind
    address: str
    api: str


def find_forge(origin: str) -> Forge:
    """Return the project that the address of a remote names, with a token. Raises ForgeError."""
    if not origin:
        raise ForgeError("--pr needs the remote origin: git remote add origin https://...")
    host, path, web = _parsed(origin)
    for server in _servers():
        address = urlsplit(server.address)
        if host == (address.netloc.lower() if web else address.hostname):
            return _forge(server, path)
    raise ForgeError(
        f"--pr: origin is on {host}, which gets no token: if it is yours, set GITHUB_SERVER_URL or "
        f"GITLAB_HOST to its address"
    )


def _forge(server: _Server, path: str) -> Forge:
    prefix = urlsplit(server.address).path
    project = path.removeprefix(prefix).strip("/").removesuffix(".git")
    parts = project.split("/")
    if not _PROJECT.fullmatch(project) or {".", ".."} & {*parts}:
        raise ForgeError("--pr: the address of origin names no project, such as OWNER/NAME")
    if server.kind == "github" and len(parts) != 2:
        raise ForgeError("--pr: the address of origin names no project OWNER/NAME of GitHub")
    given = environment(token_names(server.kind))
    token = next((given[name] for name in token_names(server.kind) if name in given), "").strip()
    if not token:
        tool = "gh auth token" if server.kind == "github" else "glab config get token"
        first = token_names(server.kind)[0]
        raise ForgeError(
            f"--pr needs a token that may write: set {first}, for example to $({tool})"
        )
    return Forge(server.kind, server.address, server.api, project, token)


def _parsed(origin: str) -> tuple[str, str, bool]:
    """Return host, path, and whether the address is one of HTTP, whose host may have a port."""
    if "://" not in origin:
        short = _SCP.fullmatch(origin)
        if short is not None:
            return short["host"].lower(), f"/{short['path'].lstrip('/')}", False
    try:
        parts = urlsplit(origin)
        host = parts.hostname or ""
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("http", "https", "ssh", "git"):
        raise ForgeError("--pr: the address of origin must be one on GitHub or GitLab")
    web = parts.scheme in ("http", "https")
    return parts.netloc.rpartition("@")[2].lower() if web else host, parts.path, web


def _servers() -> tuple[_Server, ...]:
    given = environment(("GITHUB_SERVER_URL", "GITHUB_API_URL", "GITLAB_HOST", "CI_SERVER_URL"))
    api = _address(given.get("GITHUB_API_URL", ""))
    github = _address(given.get("GITHUB_SERVER_URL", "")) or _server_of(api)
    own = "https://api.github.com" if github == "https://github.com" else f"{github}/api/v3"
    gitlab = _address(given.get("GITLAB_HOST", "") or given.get("CI_SERVER_URL", ""))
    gitlab = gitlab or "https://gitlab.com"
    return (_Server("github", github, api or own), _Server("gitlab", gitlab, f"{gitlab}/api/v4"))


def _address(given: str) -> str:
    """Return an address without its end slash; a host alone is one of HTTPS."""
    text = given.strip().rstrip("/")
    return text if not text or "://" in text else f"https://{text}"


def _server_of(api: str) -> str:
    """Return the server of GitHub that an address of its interface belongs to."""
    if not api:
        return "https://github.com"
    parts = urlsplit(api)
    return f"{parts.scheme}://{parts.netloc.removeprefix('api.')}"
