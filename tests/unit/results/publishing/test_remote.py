from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ForgeError
from agent.results.publishing import find_forge
from tests.support.forge_server import ForgeServer

NAMES = (
    "GITHUB_SERVER_URL", "GITHUB_API_URL", "GITLAB_HOST", "CI_SERVER_URL", "GITHUB_TOKEN",
    "GH_TOKEN", "GITLAB_TOKEN",
)  # fmt: skip


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GITHUB_TOKEN", "hub")
    monkeypatch.setenv("GITLAB_TOKEN", "lab")


@pytest.mark.parametrize(
    ("origin", "api", "project", "token"),
    [
        ("https://github.com/owner/name.git", "https://api.github.com", "owner/name", "hub"),
        ("https://x:secret@github.com/owner/name", "https://api.github.com", "owner/name", "hub"),
        ("git@github.com:owner/name.git", "https://api.github.com", "owner/name", "hub"),
        ("ssh://git@GitHub.com:22/owner/name", "https://api.github.com", "owner/name", "hub"),
        ("git@gitlab.com:a/b/c.git", "https://gitlab.com/api/v4", "a/b/c", "lab"),
    ],
)
def test_the_public_servers_get_their_token(
    origin: str, api: str, project: str, token: str
) -> None:
    forge = find_forge(origin)
    assert (forge.api, forge.project, forge.token) == (api, project, token)
    assert forge.push_url == f"{forge.server}/{project}.git"
    assert token not in repr(forge).replace("github", "").replace("gitlab", "")


@pytest.mark.parametrize(
    ("variables", "origin", "api"),
    [
        (
            {"GITHUB_SERVER_URL": "https://corp.example"},
            "git@corp.example:a/b.git",
            "https://corp.example/api/v3",
        ),
        (
            {"GITHUB_API_URL": "https://corp.example/api/v3/"},
            "https://corp.example/a/b",
            "https://corp.example/api/v3",
        ),
        (
            {"GITHUB_API_URL": "https://api.corp.ghe.com"},
            "https://corp.ghe.com/a/b",
            "https://api.corp.ghe.com",
        ),
        (
            {"GITLAB_HOST": "lab.example:8443"},
            "https://lab.example:8443/a/b",
            "https://lab.example:8443/api/v4",
        ),
        (
            {"CI_SERVER_URL": "https://lab.example/under"},
            "https://lab.example/under/a/b.git",
            "https://lab.example/under/api/v4",
        ),
    ],
)
def test_the_server_that_the_user_names_gets_the_token(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], origin: str, api: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    forge = find_forge(origin)
    assert (forge.api, forge.project) == (api, "a/b")
    with pytest.raises(ForgeError, match="gets no token"):  # the token is for that server
        find_forge(f"https://{'github' if 'GITHUB' in next(iter(variables)) else 'gitlab'}.com/a/b")


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        ("", "needs the remote origin"),
        ("https://github.com.evil.example/a/b", "github.com.evil.example, which gets no token"),
        ("https://github.com@evil.example/a/b", "evil.example, which gets no token"),
        ("https://github.com:8443/a/b", "github.com:8443, which gets no token"),
        ("https://github.com/../x/a/b", "names no project"),
        ("https://github.com/a", "names no project"),
        ("git@github.com:a/b c", "names no project"),
        ("git@github.com:a/%2e%2e", "names no project"),
        ("/srv/repository.git", "must be one on GitHub or GitLab"),
        ("ext::sh -c true", "gets no token"),
        ("file:///srv/x", "must be one on GitHub or GitLab"),
        ("https://[::1/a/b", "must be one on GitHub or GitLab"),
    ],
)
def test_other_addresses_get_none(origin: str, message: str) -> None:
    with pytest.raises(ForgeError) as error:
        find_forge(origin)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "origin", ["https://evil.example\\@github.com/a/b", "https://github.com/a/b?x=1#y/../c"]
)
def test_nothing_but_the_project_is_taken_from_an_address(origin: str) -> None:
    assert find_forge(origin).push_url == "https://github.com/a/b.git"


def test_without_a_token_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_TOKEN")
    with pytest.raises(ForgeError, match="set GITHUB_TOKEN"):
        find_forge("https://github.com/a/b")


def test_a_redirection_is_not_followed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    with ForgeServer(tmp_path / "forge", "owner/name") as server:
        server.refuse_requests = 307
        monkeypatch.setenv("GITHUB_SERVER_URL", server.url)
        monkeypatch.setenv("GITHUB_TOKEN", server.token)
        forge = find_forge(server.origin)
        assert forge.default_branch() == "main"
        with pytest.raises(ForgeError, match=r"307: refused, and \*\*\* is quoted"):
            forge.open_request("b", "main", "t", "x", draft=False)
