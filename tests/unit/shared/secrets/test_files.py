"""What stands in the place of files of secrets, and what they hold."""

from __future__ import annotations

import configparser
import json
import tomllib

import pytest

from agent.shared.secrets import MASK, KnownSecrets, placeholder

# Assembled, so that no scanner finds them in this file.
VALUE = "q7Rf2Zx9" + "Lm4Tb8Wn"
KEY_LINE = "MIIEpAIBAAKCAQEA7bq" + VALUE
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{KEY_LINE}\n{KEY_LINE}\n-----END RSA PRIVATE KEY-----\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB9TCCAZug1\n-----END CERTIFICATE-----\n"

FILES = {
    ".env": f"# old: {VALUE}\nDEBUG=true\nPORT=8080\nexport API_TOKEN='{VALUE}'\n"
    f"DATABASE_URL=postgres://app:{VALUE}@db:5432/shop  # {VALUE}\nDB_PASSWORD=hunter2\n"
    "DJANGO_SETTINGS_MODULE=shop.settings\nLOG_LEVEL=info\nEMPTY=\nCACHE=redis://localhost:6379\n",
    "secrets.yaml": f"db:\n  host: localhost\n  password: {VALUE}\n  keys:\n    - {VALUE}\n"
    f"  pem: |\n    {KEY_LINE}\n    {KEY_LINE}\n",
    "account.json": json.dumps(
        {"type": "service_account", "private_key": PEM, "id": 123456789, "on": True, "a": [VALUE]}
    ),
    "indented.json": json.dumps({"password": VALUE, "port": 80}, indent=2),
    ".netrc": f"machine x.y login bob-7 password {VALUE}\n",
    ".pypirc": f"[pypi]\nusername = __token__\npassword = {VALUE}\n",
    "prod.tfvars": f'region = "eu"\ndb_password = "{VALUE}"\n',
    "secrets.toml": f'title = "shop"\n[db]\npassword = "{VALUE}"\nport = 5432\n',
    "id_rsa": PEM,
    "master.key": VALUE,
    ".git-credentials": f"https://bob:{VALUE}@github.com\n",
    ".htpasswd": f"bob:$apr1${VALUE}\n",
}


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_placeholder_has_no_value_and_as_many_lines(name: str) -> None:
    made = placeholder(FILES[name].encode()).decode()
    for secret in (VALUE, KEY_LINE, "hunter2", "123456789"):
        assert secret not in made
    assert made.count("\n") == FILES[name].count("\n")
    assert placeholder(made.encode()).decode() == made


def test_a_placeholder_loads_with_the_same_keys() -> None:
    made = {name: placeholder(text.encode()).decode() for name, text in FILES.items()}
    assert made[".env"].split("\n")[1:3] == ["DEBUG=true", "PORT=8080"]
    for line in ("DJANGO_SETTINGS_MODULE=shop.settings", "LOG_LEVEL=info", "EMPTY="):
        assert line in made[".env"]
    assert "DATABASE_URL=postgres://" in made[".env"]
    assert "CACHE=redis://localhost:6379" in made[".env"]
    account = json.loads(made["account.json"])
    assert list(account) == ["type", "private_key", "id", "on", "a"]
    assert (account["type"], account["on"]) == ("service_account", True)
    assert account["private_key"].count("\n") == PEM.count("\n")
    assert json.loads(made["indented.json"])["port"] == 80
    assert tomllib.loads(made["secrets.toml"])["db"]["port"] == 5432
    parser = configparser.ConfigParser()
    parser.read_string(made[".pypirc"])
    assert parser["pypi"]["username"] == "__token__"
    assert 'region = "eu"' in made["prod.tfvars"]


def test_certificates_stay_and_private_keys_beside_them_do_not() -> None:
    assert placeholder(CERTIFICATE.encode()).decode() == CERTIFICATE
    both = placeholder((CERTIFICATE + PEM).encode()).decode()
    assert both.startswith(CERTIFICATE)
    assert KEY_LINE not in both


def test_headers_within_a_key_do_not_end_it() -> None:
    head = "-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: AES-128-CBC,1\n\n"
    assert KEY_LINE not in placeholder(f"{head}{KEY_LINE}\n-----END".encode()).decode()


def test_a_key_store_becomes_empty() -> None:
    assert placeholder(b"\x30\x82\x00\xff") == b""


def test_what_a_file_holds_is_masked_wherever_it_shows_up() -> None:
    known = KnownSecrets(text.encode() for text in FILES.values())
    text = f"E  AssertionError: got {VALUE}, 'hunter2' and {KEY_LINE}; shop.settings, info, 8080"
    masked = known.masked(text)
    assert masked == (
        f"E  AssertionError: got {MASK}, '{MASK}' and {MASK}; shop.settings, info, 8080"
    )
    assert known.masked(f"x{VALUE}y") == f"x{VALUE}y"
    assert known.masked(f"'a\\n{VALUE}\\n'") == f"'a\\n{MASK}\\n'"


def test_ordinary_words_of_a_file_are_not_masked() -> None:
    known = KnownSecrets(
        [b"DB_PASSWORD=postgres\nAPI_KEY=changeme\nTOKEN=test\nPASS=your-password1\n"]
    )
    assert known.values == ()
