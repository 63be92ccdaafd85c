from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.shared.secrets import MASK, is_secret_path, mask_secrets


@pytest.mark.parametrize(
    "path",
    [
        *(".env", "deploy/.env.production", ".env.local", "id_rsa", "certs/server.pem", "a/b.key"),
        *(".npmrc", "home/.aws/credentials", ".netrc", "x.p12", ".ENV", "infra/terraform.tfstate"),
        *("config/prod.env", "secrets.yaml", "deploy/app-secrets.yml", "credentials.json"),
        *("infra/prod.tfvars", "infra/prod.tfvars.json", "service-account.json"),
        *("gcp/my-service_account-prod.json", "client_secret_1.json", ".pypirc"),
        *(".streamlit/secrets.toml", "func/local.settings.json", "blog/wp-config.php"),
    ],
)
def test_files_made_for_secrets(path: str) -> None:
    assert is_secret_path(path)


@pytest.mark.parametrize(
    "path",
    [
        *(".env.example", "config/.env.sample", "env.py", "keys.py", "id_rsa.pub", "secrets.py"),
        *("tests/test_env.py", "environment.yml", "aws/credentials.py", ".envoy.yaml"),
        *("example.env", "prod.env.example", "secrets.example.yaml", "secretsanta.yaml"),
        *("docs/secrets.md", "shop/credentials.go", "service_account.py", "variables.tf"),
    ],
)
def test_other_files(path: str) -> None:
    assert not is_secret_path(path)


# Assembled, so that no scanner finds them in this file.
RANDOM = "q7Rf2Zx9" + "Lm4Tb8Wn" + "C6Vy1KpD"
HEX = "9f86d081" + "884c7d65" + "9a2feaa0" + "c55ad015"
KEY_LINES = "\n".join(["MIIEpAIBAAKCAQEA7bq" + RANDOM * 2] * 3)


@pytest.mark.parametrize("kind", ["RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PRIVATE KEY"])
def test_private_key_blocks_lose_their_body_and_keep_their_lines(kind: str) -> None:
    text = f"x\n-----BEGIN {kind}-----\n{KEY_LINES}\n-----END {kind}-----\ny\n"
    masked = mask_secrets(text)
    assert masked.text == (
        f"x\n-----BEGIN {kind}-----\n{MASK}\n{MASK}\n{MASK}\n-----END {kind}-----\ny\n"
    )
    cut_off = mask_secrets(text.split("-----END")[0])
    assert KEY_LINES.split("\n")[0] not in cut_off.text


@pytest.mark.parametrize(
    "line",
    [
        "token = parser.next_token()",
        "PASSWORD_FIELD = 'password_confirmation'",
        "SECRET_KEY = os.environ['DJANGO_SECRET_KEY']",
        "api_key = 'your-api-key-goes-here-1234'",
        "API_TOKEN = 'xxxxxxxxxxxxxxxx1234'",
        "password = '{{ vault_password_2024 }}'",
        "url = 'http://user:password@example.com/'",
        f"sha1 = '{HEX}'",
        "commit = 'da39a3ee5e6b4b0d3255bfef95601890afd80709'",
        "class = 'sk-learn-compatible-estimator-list'",
        "key = '-----BEGIN PRIVATE KEY-----'\nraise NotImplementedErrorOfThisModule",
        "token_type_ids = np.zeros_like(input_ids_2)",
        "CSRF_TOKEN_LENGTH = 2 * CSRF_SECRET_LENGTH",
        "<a publicKeyToken='1fc8b3b9a1e18e3b'>",
    ],
)
def test_ordinary_code_is_left_alone(line: str) -> None:
    assert mask_secrets(line).text == line


@given(
    st.lists(
        st.sampled_from(["\n", '"', "token=", "-----BEGIN PRIVATE KEY-----", RANDOM, " ", "a"])
    ).map("".join)
)
def test_masking_keeps_every_line_break_and_is_idempotent(text: str) -> None:
    masked = mask_secrets(text)
    assert masked.text.count("\n") == text.count("\n")
    assert mask_secrets(masked.text).text == masked.text


@pytest.mark.parametrize(
    "text",
    [
        "token" * 100_000,
        "a" * 500_000,
        "-----BEGIN PRIVATE KEY-----" * 20_000,
        "eyJ" * 150_000,
        'token = "' * 50_000,
        "password" + " " * 500_000,
        "a://b:" * 80_000,
        *(unit * (500_000 // len(unit)) for unit in ("a1" * 9_000, "aws key", "x1 ", "sk-a1")),
        *(unit * (500_000 // len(unit)) for unit in ("mysql ", "curl -u a:", ";uid=a;", "pypi-1")),
    ],
)
def test_hostile_text_takes_no_time(text: str) -> None:
    start = time.process_time()
    mask_secrets(text)
    assert time.process_time() - start < 3


def test_this_projects_own_sources_have_no_secrets() -> None:
    root = Path(__file__).parents[4] / "agent"
    found = [p.name for p in sorted(root.rglob("*.py")) if mask_secrets(p.read_text()).count]
    assert found == []
