"""GitHub on the loopback interface: its HTTP interface, and git behind a token.

What is pushed goes through the real `git http-backend`. Every request without the token is refused.
"""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from tests.conftest import run_git
from tests.support.loopback import HttpServer, Received, Scripted


class ForgeServer(HttpServer):
    """A server with one project, whose default branch is `main`.

    `refuse_requests`: the status of the answer to each. `opened` has the requests for a merge, as
    they were sent, and `comments` those on issues by number. `issues` are title and body by number,
    and `permissions` those of users.
    """

    def __init__(self, folder: Path, project: str) -> None:
        super().__init__()
        self.folder = folder
        self.project = project
        self.token = "forge-token-0123456789abcdef"
        self.refuse_requests = 0
        self.opened: list[dict[str, Any]] = []
        self.comments: list[tuple[int, str]] = []
        self.issues: dict[int, tuple[str, str]] = {}
        self.permissions: dict[str, str] = {}
        self.reviews: dict[tuple[int, str], list[dict[str, Any]]] = {}

    def __enter__(self) -> Self:
        self.bare.mkdir(parents=True)
        run_git(self.bare, "init", "-q", "--bare", ".")
        run_git(self.bare, "config", "http.receivepack", "true")
        return super().__enter__()

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

    def answer(self, request: Received) -> Scripted:
        if not request.target.startswith("/api/"):
            return self._git(request)
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return Scripted({"message": "Bad credentials"}, 401)
        parts = urlsplit(request.target)
        rest = parts.path.removeprefix(f"/api/v3/repos/{self.project}")
        if rest == parts.path:
            return Scripted({"message": "Not Found"}, 404)
        path = [unquote(part) for part in rest.split("/")[1:]]
        status, data = self._about(request, path, parts.query)
        return Scripted(data, status)

    def _about(self, request: Received, path: list[str], query: str) -> tuple[int, Any]:
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
            case ["pulls", number, ("reviews" | "comments") as part]:
                return 200, self.reviews.get((int(number), part), [])
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

    def _git(self, request: Received) -> Scripted:
        """The answer of `git http-backend` (git-http-backend(1), a CGI program)."""
        pair = request.headers.get("authorization", "").removeprefix("Basic ")
        if base64.b64decode(pair).decode().rpartition(":")[2] != self.token:
            return Scripted(status=401, headers={"WWW-Authenticate": 'Basic realm="git"'})
        parts = urlsplit(request.target)
        done = subprocess.run(
            ["git", "-c", "safe.directory=*", "http-backend"],
            input=request.body,
            env={
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(self.folder),
                "GIT_HTTP_EXPORT_ALL": "1",
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
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(headers.pop("Status", "200 OK").split()[0])
        return Scripted(body, status, content_type=headers.pop("Content-Type", ""), headers=headers)
