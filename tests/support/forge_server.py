"""GitHub on the loopback interface: its HTTP interface, and git behind a token.

    with ForgeServer(tmp_path / "forge", "owner/name") as forge:
        run(GITHUB_SERVER_URL=forge.url, GITHUB_TOKEN=forge.token)
    assert forge.opened

What is pushed goes through the real `git http-backend`. Every request without the token is refused.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.conftest import run_git


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived; `target` is the path with its query."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class ForgeServer:
    """A server with one project, whose default branch is `main`.

    `refuse_requests` and `refuse_pushes`: the status of the answer to each. `opened` has the
    requests for a merge, as they were sent, and `comments` those on issues by number. `issues` are
    title and body by number, and `permissions` those of users.
    """

    folder: Path
    project: str
    token: str = "forge-token-0123456789abcdef"
    refuse_requests: int = 0
    refuse_pushes: int = 0
    opened: list[dict[str, Any]] = field(default_factory=list)
    comments: list[tuple[int, str]] = field(default_factory=list)
    issues: dict[int, tuple[str, str]] = field(default_factory=dict)
    permissions: dict[str, str] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)

    def __enter__(self) -> ForgeServer:
        self.bare.mkdir(parents=True)
        run_git(self.bare, "init", "-q", "--bare", ".")
        run_git(self.bare, "config", "http.receivepack", "true")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def origin(self) -> str:
        """The address of the project, as a clone has it."""
        return f"{self.url}/{self.project}.git"

    @property
    def bare(self) -> Path:
        """The repository behind it."""
        return self.folder / f"{self.project}.git"

    def publish(self, repository: Path) -> None:
        """Give the project the history of a repository, and make it the repository's origin."""
        run_git(repository, "push", "-q", str(self.bare), "HEAD:refs/heads/main")
        run_git(repository, "remote", "add", "origin", self.origin)

    def branches(self) -> dict[str, str]:
        """The branches of the project with their commits."""
        listing = run_git(self.bare, "for-each-ref", "--format=%(refname:short) %(objectname)")
        return {name: oid for name, _, oid in (line.partition(" ") for line in listing.split("\n"))}

    def answer(self, request: Request) -> tuple[int, Any]:
        """The status and the JSON of a request to an interface."""
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return 401, {"message": "Bad credentials"}
        parts = urlsplit(request.target)
        rest = parts.path.removeprefix(f"/api/v3/repos/{self.project}")
        if rest == parts.path:
            return 404, {"message": "Not Found"}
        return self._about(request, [unquote(part) for part in rest.split("/")[1:]], parts.query)

    def _about(self, request: Request, path: list[str], query: str) -> tuple[int, Any]:
        match path:
            case []:
                return 200, {"default_branch": "main"}
            case ["branches", name]:
                return (200, {"name": name}) if name in self.branches() else (404, {})
            case ["pulls"] if request.method == "POST":
                return self._open(request.json)
            case ["pulls"]:
                branch = parse_qs(query)["head"][0].rpartition(":")[2]
                return 200, [self._shown(one) for one in self.opened if one["head"] == branch]
            case ["issues", number] if int(number) in self.issues:
                title, body = self.issues[int(number)]
                return 200, {"title": title, "body": body}
            case ["issues", number, "comments"]:
                self.comments.append((int(number), request.json["body"]))
                return 201, {"html_url": f"{self.url}/{self.project}/issues/{number}#comment"}
            case ["collaborators", user, "permission"]:
                return 200, {"permission": self.permissions.get(user, "read")}
        return 404, {"message": "Not Found"}

    def _open(self, given: dict[str, Any]) -> tuple[int, Any]:
        if self.refuse_requests:
            return self.refuse_requests, {"message": f"refused, and {self.token} is quoted"}
        if any(one["head"] == given["head"] for one in self.opened):
            return 422, {"message": "Validation Failed", "errors": ["a request already exists"]}
        if given["head"] not in self.branches():
            return 422, {"message": "no such branch"}
        self.opened.append(given)
        return 201, self._shown(given)

    def _shown(self, given: dict[str, Any]) -> dict[str, Any]:
        number = self.opened.index(given) + 1
        return {"html_url": f"{self.url}/{self.project}/pull/{number}"}

    def git(self, request: Request) -> tuple[int, list[tuple[str, str]], bytes]:
        """The answer of `git http-backend` (git-http-backend(1), a CGI program)."""
        pair = request.headers.get("authorization", "").removeprefix("Basic ")
        if base64.b64decode(pair).decode().rpartition(":")[2] != self.token:
            return 401, [("WWW-Authenticate", 'Basic realm="git"')], b""
        if self.refuse_pushes:
            return self.refuse_pushes, [], b""
        parts = urlsplit(request.target)
        done = subprocess.run(
            ["git", "http-backend"],
            input=request.body,
            env={
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(self.folder),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "safe.directory",
                "GIT_CONFIG_VALUE_0": "*",
                "PATH_INFO": parts.path,
                "QUERY_STRING": parts.query,
                "REQUEST_METHOD": request.method,
                "CONTENT_TYPE": request.headers.get("content-type", ""),
                "CONTENT_LENGTH": str(len(request.body)),
                "HTTP_CONTENT_ENCODING": request.headers.get("content-encoding", ""),
                "REMOTE_USER": "pusher",
            },
            capture_output=True,
            timeout=30,
            check=True,
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        lines = [line.split(": ", 1) for line in head.decode().split("\r\n")]
        found = dict(lines)
        status = int(found.pop("Status", "200 OK").split()[0])
        return status, list(found.items()), body


def _handler_of(forge: ForgeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            request = Request(
                self.command,
                self.path,
                {name.lower(): value for name, value in self.headers.items()},
                self._body(),
            )
            forge.requests.append(request)
            if self.path.startswith("/api/"):
                status, data = forge.answer(request)
                self._send(
                    status, [("Content-Type", "application/json")], json.dumps(data).encode()
                )
            else:
                self._send(*forge.git(request))

        do_GET = do_POST = _answer

        def _body(self) -> bytes:
            if self.headers.get("transfer-encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("content-length", 0)))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _send(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers:
                if name.lower() != "content-length":
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the tests read what was recorded."""

    return Handler
