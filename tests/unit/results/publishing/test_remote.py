from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ForgeError
from agent.results.publishing import find_forge
from tests.support.forge_server import ForgeServer


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_SERVER_URL", "GITHUB_API_URL", "GH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GITHUB_TOKEN", "secret-token")


@pytest.mark.parametrize(
    ("variables", "origin", "api"),
    [
        ({}, "https://github.com/a/b.git", "https://api.github.com"),
        ({}, "https://x:secret@github.com/a/b", "https://api.github.com"),
        ({}, "git@github.com:a/b.git", "https://api.github.com"),
        ({}, "ssh://git@GitHub.com:22/a/b", "https://api.github.com"),
        # Nothing but the project is taken from an address.
        ({}, "https://evil.example\\@github.com/a/b", "https://api.github.com"),
        ({}, "https://github.com/a/b?x=1#y/../c", "https://api.github.com"),
        (
            {"GITHUB_SERVER_URL": "https://corp.example:8443/under/"},
            "https://corp.example:8443/under/a/b.git",
            "https://corp.example:8443/under/api/v3",
        ),
        (
            {"GITHUB_API_URL": "https://corp.example/api/v3/"},
            "git@corp.example:a/b",
            "https://corp.example/api/v3",
        ),
        (
            {"GITHUB_API_URL": "https://api.corp.ghe.com"},
            "https://corp.ghe.com/a/b",
            "https://api.corp.ghe.com",
        ),
    ],
)
def test_github_or_the_server_that_the_user_names_gets_the_token(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], origin: str, api: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    forge = find_forge(origin)
    assert (forge.api, forge.project, forge.token) == (api, "a/b", "secret-token")
    assert forge.push_url == f"{forge.server}/a/b.git"
    assert "secret-token" not in repr(forge)
    if variables:
        with pytest.raises(ForgeError, match="gets no token"):  # the token is for that server
            find_forge("https://github.com/a/b")


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        ("", "needs the remote origin"),
        ("https://gitlab.com/a/b", "gitlab.com, which gets no token: pull requests are for GitHub"),
        ("https://github.com.evil.example/a/b", "github.com.evil.example, which gets no token"),
        ("https://github.com@evil.example/a/b", "evil.example, which gets no token"),
        ("https://github.com:8443/a/b", "github.com:8443, which gets no token"),
        ("https://github.com/../x/a/b", "names no project"),
        ("https://github.com/a", "names no project"),
        ("https://github.com/a/b/c", "names no project"),
        ("git@github.com:a/b c", "names no project"),
        ("git@github.com:a/%2e%2e", "names no project"),
        ("/srv/repository.git", "must be one on GitHub"),
        ("ext::sh -c true", "gets no token"),
        ("file:///srv/x", "must be one on GitHub"),
        ("https://[::1/a/b", "must be one on GitHub"),
    ],
)
def test_other_addresses_get_none(origin: str, message: str) -> None:
    with pytest.raises(ForgeError) as error:
        find_forge(origin)
    assert message in str(error.value)


def test_without_a_token_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_TOKEN")
    with pytest.raises(ForgeError, match="set GITHUB_TOKEN"):
        find_forge("https://github.com/a/b")


def test_a_redirection_is_not_followed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with ForgeServer(tmp_path / "forge", "owner/name") as server:
        server.refuse_requests = 307
        monkeypatch.setenv("GITHUB_SERVER_URL", server.url)
        monkeypatch.setenv("GITHUB_TOKEN", server.token)
        forge = find_forge(server.origin)
        assert forge.default_branch() == "main"
        with pytest.raises(ForgeError, match=r"307: refused, and \*\*\* is quoted"):
            forge.open_request("b", "main", "t", "x", draft=False)
