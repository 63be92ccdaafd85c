"""Which project on GitHub or GitLab a repository comes from, and the token for it.

The address of `origin` is data of the repository, so it only chooses among hosts that are trusted
with a token: github.com and gitlab.com, or the ones that the user's environment names instead. All
addresses that get a token are made from those names.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from urllib.parse import urlsplit

from agent.errors import ForgeError
from agent.results.publishing.forge import Forge, Kind, token_names
from agent.settings import environment

_TOOL_SECONDS = 10.0  # gh and glab may ask a keyring
_TOOLS = {
    "github": ("gh", "auth", "token", "--hostname"),
    "gitlab": ("glab", "config", "get", "token", "--host"),
}
_SCP = re.compile(r"(?:[^@/:]+@)?(?P<host>[^@/:\[\]]+):(?P<path>(?!//).*)")
_PROJECT = re.compile(r"[\w.-]+(?:/[\w.-]+)+")


@dataclass(frozen=True, slots=True)
class _Server:
    """A server that may be sent the token. `address` and `api` have no slash at the end."""

    kind: Kind
    address: str
    api: str


def find_forge(origin: str) -> Forge:
    """Return the project that the address of a remote names, with a token for it.

    Raises ForgeError if there is no address, the host is not trusted, or no token is there.
    """
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
    token = _token(server)
    if not token:
        first = token_names(server.kind)[0]
        login = "gh auth login" if server.kind == "github" else "glab auth login"
        raise ForgeError(f"--pr needs a token that may write: set {first}, or run `{login}`")
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
    """Return the servers that may get a token: the public ones, or those that the user names."""
    given = environment(("GITHUB_SERVER_URL", "GITHUB_API_URL", "GITLAB_HOST", "CI_SERVER_URL"))
    api = _address(given.get("GITHUB_API_URL", ""))
    github = _address(given.get("GITHUB_SERVER_URL", "")) or _server_of(api)
    own = "https://api.github.com" if github == "https://github.com" else f"{github}/api/v3"
    gitlab = _address(given.get("GITLAB_HOST", "") or given.get("CI_SERVER_URL", ""))
    gitlab = gitlab or "https://gitlab.com"
    return (
        _Server("github", github, api or own),
        _Server("gitlab", gitlab, f"{gitlab}/api/v4"),
    )


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


def _token(server: _Server) -> str:
    """Return the token of the environment, or that of the tool that has signed in, or ""."""
    given = environment(token_names(server.kind))
    found = next((given[name] for name in token_names(server.kind) if name in given), "")
    return (found or _token_of_tool(server)).strip()


def _token_of_tool(server: _Server) -> str:
    command = [*_TOOLS[server.kind], urlsplit(server.address).netloc]
    try:
        with tempfile.TemporaryDirectory() as empty:  # it must not read the target
            done = subprocess.run(
                command, cwd=empty, stdin=subprocess.DEVNULL, capture_output=True,
                timeout=_TOOL_SECONDS, check=False, text=True,
            )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    token = done.stdout.strip()
    return token if done.returncode == 0 and re.fullmatch(r"[!-~]+", token) else ""
