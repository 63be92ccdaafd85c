"""Secrets as they are written in eight languages, and how many of them are masked."""

from __future__ import annotations

import base64
import random
import string

import pytest

from agent.shared.secrets import MASK, mask_secrets

# The values are drawn, so that no scanner finds them in this file.
_DRAW = random.Random(7)
_BASE62 = string.ascii_letters + string.digits


def drawn(length: int, alphabet: str = _BASE62) -> str:
    """Return a random text with letters and digits."""
    while True:
        text = "".join(_DRAW.choices(alphabet, k=length))
        if any(c.isdigit() for c in text) and any(c.isalpha() for c in text):
            return text


HEX = "0123456789abcdef"
VALUE, LOWER, PASSWORD = drawn(32), drawn(40, HEX), "Tr0ub4" + "dor!3"
UPPER = string.ascii_uppercase + string.digits

# Each has its own beginning, so no name is needed.
PREFIXED = {
    "github": f"ghp_{drawn(36)}",
    "github, longer": f"ghs_{drawn(50)}",
    "github fine": f"github_pat_{drawn(22)}_{drawn(59)}",
    "gitlab": f"glpat-{drawn(20)}",
    "gitlab trigger": f"glptt-{drawn(40, HEX)}",
    "slack": f"xoxb-{drawn(12, string.digits + 'a')}-{drawn(24)}",
    "anthropic": f"sk-ant-api03-{drawn(80)}",
    "openai": f"sk-proj-{drawn(48)}",
    "google": f"AIza{drawn(35)}",
    "google oauth": f"GOCSPX-{drawn(28)}",
    "aws id": f"AKIA{drawn(16, UPPER)}",
    "npm": f"npm_{drawn(36)}",
    "pypi": f"pypi-AgEIcHlwaS5vcmc{drawn(80)}",
    "pypi of another index": f"pypi-{drawn(60)}",
    "hugging face": f"hf_{drawn(34)}",
    "sendgrid": f"SG.{drawn(22)}.{drawn(43)}",
    "stripe": f"sk_live_{drawn(24)}",
    "stripe restricted": f"rk_live_{drawn(24)}",
    "square": f"sq0csp-{drawn(43)}",
    "mailgun": f"key-{drawn(32, HEX)}",
    "vault": f"hvs.{drawn(90)}",
    "digitalocean": f"dop_v1_{drawn(64, HEX)}",
    "groq": f"gsk_{drawn(52)}",
    "shopify": f"shpat_{drawn(32, HEX)}",
    "databricks": f"dapi{drawn(32, HEX)}",
    "linear": f"lin_api_{drawn(40)}",
    "docker": f"dckr_pat_{drawn(27)}",
    "age": f"AGE-SECRET-KEY-1{drawn(58, UPPER)}",
    "jwt": f"eyJ{drawn(20)}.eyJ{drawn(40)}.{drawn(43)}",
    "base64 pem": base64.b64encode(
        f"-----BEGIN RSA PRIVATE KEY-----\n{drawn(64)}\n".encode()
    ).decode(),
    "base64 pkcs8": base64.b64encode(f"-----BEGIN PRIVATE KEY-----\n{drawn(64)}".encode()).decode(),
}

# `@` is where the value stands.
ASSIGNED = {
    "python": "API_TOKEN = '@'",
    "python annotated": 'api_key: str = "@"',
    "python final": 'DB_PASSWORD: Final[str] = "@"',
    "python optional": 'token: str | None = "@"',
    "python bytes": "SECRET_KEY = b'@'",
    "python f-string": 'auth_token = f"@"',
    "python f-string with a field": 'auth_token = f"{PREFIX}@"',
    "python raw": 'client_secret = r"@"',
    "python triple": 'ENCRYPTION_KEY = """@"""',
    "python subscript": 'os.environ["DB_PASSWORD"] = "@"',
    "python subscript, bytes": "config['signing_key'] = b'@'",
    "python dict": '{"password": "@", "user": "x"}',
    "python keyword": 'connect(user="x", passwd="@")',
    "python call": 'os.environ.setdefault("SECRET_KEY", "@")',
    "python default": 'os.getenv("API_TOKEN", "@")',
    "python brackets": 'SECRET_KEY = (\n    "@"\n)',
    "python compare": 'assert request.token == "@"',
    "js": 'const apiKey = "@";',
    "js property": "module.exports = { clientSecret: '@' };",
    "js template": "const token = `@`;",
    "ts": 'private accessToken: string = "@";',
    "js environment": 'process.env.API_KEY = "@";',
    "js header": 'headers: { Authorization: "Bearer @" }',
    "yaml": "db_password: @",
    "yaml quoted": '  access_key: "@"',
    "yaml comment": "api_token: @  # of production",
    "toml": 'encryption_key = "@"',
    "ini": "password = @",
    "ini comment": "secret_key=@ ; the real one",
    "env": "ENCRYPTION_KEY=@",
    "shell export": "export AWS_SECRET_ACCESS_KEY=@",
    "shell quoted": "API_TOKEN='@' ./run",
    "shell before": "API_TOKEN=@ ./run",
    "shell option": "deploy --password @ --force",
    "shell option =": "deploy --api-token=@ --force",
    "curl header": "curl -H 'Authorization: Bearer @' https://x.y",
    "curl header, key": "curl -H 'X-Api-Key: @' https://x.y",
    "query": "https://x.y/z?a=1&access_token=@&b=2",
    "url": "postgres://app:@@db.internal:5432/shop",
    "connection": "Server=db;User Id=sa;Pwd=@;Encrypt=true",
    "json": '{"api_key": "@"}',
    "json in a string": r'"{\"api_key\": \"@\"}"',
    "go": 'apiToken := "@"',
    "go typed": 'var dbPassword string = "@"',
    "go struct": 'Config{SecretKey: "@"}',
    "go environment": 'os.Setenv("JWT_SECRET", "@")',
    "java": 'private static final String API_TOKEN = "@";',
    "java call": 'props.setProperty("db.password", "@");',
    "java setter": 'config.setPassword("@");',
    "java properties": "spring.datasource.password=@",
    "php": "define('AUTH_KEY', '@');",
    "ruby": "config.secret_key_base = '@'",
    "rust": 'const API_KEY: &str = "@";',
    "xml": "<password>@</password>",
}
PASSWORDS = {
    name: ASSIGNED[name]
    for name in (
        *("python annotated", "python subscript", "python dict", "js property", "yaml quoted"),
        *("toml", "ini", "env", "json", "go typed", "java call", "url", "connection"),
    )
}


def masked(template: str, value: str) -> bool:
    text = f"x = 1\n{template.replace('@', value, 1)}\ny = 2\n"
    if "://" in template and template.count("@") == 2:
        text = f"x = 1\n{template.replace('@@', value + '@')}\ny = 2\n"
    return value not in mask_secrets(text).text and MASK in mask_secrets(text).text


@pytest.mark.parametrize("name", sorted(PREFIXED))
def test_what_a_vendor_issues_is_masked(name: str) -> None:
    for template in ("use @ here", 'x = "@"', "- @", "f(b'@')", "a: @,"):
        assert masked(template, PREFIXED[name]), template
    both = mask_secrets(f'call("{PREFIXED[name]}")  # and {PREFIXED[name]}\nnext line')
    assert (both.text, both.count) == (f'call("{MASK}")  # and {MASK}\nnext line', 2)


def test_random_values_are_masked_in_54_ways_of_eight_languages() -> None:
    values = [VALUE, LOWER]
    values += [drawn(length) for length in (20, 24, 32, 40, 64) for _ in range(20)]
    tried = [(name, value) for name in sorted(ASSIGNED) for value in values]
    passed = [(n, v) for n, v in tried if not masked(ASSIGNED[n], v)]
    assert len(passed) <= 0.05 * len(tried), passed[:20]


@pytest.mark.parametrize("name", sorted(PASSWORDS))
def test_passwords_of_people_are_masked(name: str) -> None:
    template = PASSWORDS[name].replace("api_key", "password").replace("access_key", "password")
    template = template.replace("encryption_key", "password").replace("ENCRYPTION_KEY", "PASSWORD")
    assert masked(template, PASSWORD)


@pytest.mark.parametrize(
    "line",
    [
        "DATABASE_URL = 'postgres://app:wombat@db.internal:5432/shop'",
        "dsn: mongodb+srv://app:wombat@cluster0.example.net/",
        'auth = HTTPBasicAuth("deploy", "wombat")',
        "mysql -u app -pwombat shop < dump.sql",
        "curl -u deploy:wombat https://ci.internal/job",
        "curl --user 'deploy:wombat' https://ci.internal/job",
        'cs = "Server=db1;Database=shop;User Id=sa;Password=wombat;Encrypt=true"',
    ],
)
def test_a_plain_word_where_only_a_password_stands_is_masked(line: str) -> None:
    assert mask_secrets(line).text == line.replace("wombat", MASK)


def test_the_key_of_a_sentry_address_is_masked() -> None:
    key = drawn(32, HEX)
    line = f"sentry_sdk.init('https://{key}@o42.ingest.sentry.io/4501')"
    assert mask_secrets(line).text == line.replace(key, MASK)


def test_credentials_of_a_basic_header_are_masked() -> None:
    value = base64.b64encode(f"deploy:{PASSWORD}".encode()).decode()
    for template in ('"Authorization": "Basic @"', "Authorization: Basic @", "'Basic @'"):
        assert masked(template, value)


@pytest.mark.parametrize(
    "line",
    [
        "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==",  # of RFC 7617
        'w1 = call.tokens("cache_write_1h_tokens")',
        '    "MLKEM768X25519PublicKey",\n    "MLKEM1024P384PublicKey",',
        "https://foo.com:123,foo:bar@bar.com/path",
        "token = self.nextToken2Value.base64Field",
        "access_token=new_access_token_v2, scope=1",
        "password=hash_pbkdf2_sha256(raw1)",
        "--token NAME2 reads it from NAME2",
        "Bearer tokens of RFC6750SectionTwo are sent",
        "secret=os.environ.get(X1), y=2",
        "pwd = os.getcwd()",
        "url = 'postgres://postgres:postgres@db/x'",
        "url = 'mysql://app:wombat@localhost/x'",
        "url = f'postgres://{user}:{password}@{host}'",
        "HTTPBasicAuth('user', 'pass')",
        "mysql -u root -p shop",
        "curl -u user:password https://x.y",
        "cs = f'Server={host};User Id=sa;Password={password};'",
        "cd ../ && pwd > ../x1/Y2/z3-log",
        'key = "a1B2c3D4e5F6g7H8i9J0"',
        "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUI5VENDQVp1Z0F3SUJBZ0lVYXc5",
    ],
)
def test_ordinary_lines_are_left_alone(line: str) -> None:
    assert mask_secrets(line).text == line
