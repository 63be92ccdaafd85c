from __future__ import annotations

import pytest

from agent.secrets.files import is_secret_path


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        "deploy/.env.production",
        ".env.local",
        "id_rsa",
        "certs/server.pem",
        "a/b.key",
        ".npmrc",
        "home/.aws/credentials",
        ".netrc",
        "x.p12",
        ".ENV",
        "infra/terraform.tfstate",
    ],
)
def test_files_made_for_secrets(path: str) -> None:
    assert is_secret_path(path)


@pytest.mark.parametrize(
    "path",
    [
        ".env.example",
        "config/.env.sample",
        "env.py",
        "keys.py",
        "id_rsa.pub",
        "secrets.py",
        "tests/test_env.py",
        "environment.yml",
        "aws/credentials.py",
        ".envoy.yaml",
    ],
)
def test_other_files(path: str) -> None:
    assert not is_secret_path(path)
