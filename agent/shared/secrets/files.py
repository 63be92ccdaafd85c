"""Files that exist to hold secrets: which they are, what stands in their place, what they hold.

A run of tests gets a placeholder with the same keys and made-up values of the same shape. Values
that cannot be secret stay (switches, small numbers, plain words, addresses), and certificates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import PurePosixPath

from agent.shared.secrets.finding import MASK, is_placeholder

_SECRET_NAMES = frozenset(
    {
        *(".netrc", "_netrc", ".pgpass", ".pypirc", ".npmrc", ".git-credentials", ".htpasswd"),
        *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".dockercfg", ".s3cfg", ".boto"),
        *(".vault-token", ".vault_pass", ".terraformrc", "terraform.tfstate", "kubeconfig"),
        *(".dockerconfigjson", ".my.cnf", "credentials", ".credentials", ".secrets"),
        *("local.settings.json", "wp-config.php"),
    }
)
_SECRET_SUFFIXES = frozenset(
    {".pem", ".key", ".p8", ".p12", ".pfx", ".ppk", ".jks", ".jceks", ".keystore", ".kdbx"}
    | {".tfvars", ".kubeconfig"}
)
_SECRET_PATHS = re.compile(r"(?:^|/)(?:\.aws/credentials|\.docker/config\.json|\.kube/config)$")
# `.env`, `.env.local`, `prod.env`; stores such as `secrets.yaml` and `service-account-1.json`.
_SECRET_NAME = re.compile(
    r"\.env(?:rc)?(?:\.[\w.-]+)?|[\w-]+\.env"
    r"|[\w.-]*\.tfvars\.json"
    r"|\.?(?:[\w-]+[._-])?(?:secrets?|credentials?)(?:[._-][\w-]+)?"
    r"\.(?:ya?ml|json|toml|ini|env|properties|cfg|conf|txt|xml|enc)"
    r"|(?:[\w-]+[._-])?(?:service[_-]?account|client[_-]?secret)[\w.-]*\.json"
)
# Meant to be read.
_EXAMPLE = re.compile(r"(?:^|[._-])(?:example|sample|template|dist|defaults?|schema)(?:[._-]|$)")
_PATHS_KNOWN = 1 << 12  # packing asks for the same few files again and again


@lru_cache(maxsize=_PATHS_KNOWN)
def is_secret_path(path: str) -> bool:
    """Whether a file exists to hold secrets (`.env`, private keys, credential stores)."""
    pure = PurePosixPath(path)
    name = pure.name.lower()
    if name in _SECRET_NAMES or _SECRET_PATHS.search(path.lower()) is not None:
        return True
    if _EXAMPLE.search(name):
        return False
    return pure.suffix.lower() in _SECRET_SUFFIXES or _SECRET_NAME.fullmatch(name) is not None


# ---- placeholders

_PEM = re.compile(r"-----BEGIN [^\n-]{0,60}-----")
_PRIVATE = re.compile(
    r"-----BEGIN [^\n-]{0,40}PRIVATE KEY[^\n-]{0,10}-----(?P<value>(?:[^-]|-(?!----))*+)"
)
_JSON = re.compile(r"\s*(?:\{|\[\s*[\[{\"0-9])")
_JSON_PART = re.compile(
    r'"(?P<value>(?:[^"\\]|\\.)*+)"(?P<colon>\s*:)?|(?P<number>(?<![\w.])\d{6,}(?![\w.]))'
)
_LINE = re.compile(
    r"""^[ \t]*(?:export[ \t]+|-[ \t]+)?["']?(?P<key>[\w.@/-]{1,200})["']?
        [ \t]*(?:=>|:=|=|:)[ \t]*
        (?:(?P<quote>["'])(?P<quoted>.*)(?P=quote)[ \t]*[,;]?[ \t]*(?:\#.*)?
          |(?P<bare>.*?))[ \t]*$""",
    re.VERBOSE,
)
_NETRC = re.compile(r"\b(?:login|account|password)[ \t]+(?P<value>[^\s=:]\S*)")
_COMMENT = re.compile(r"[ \t]*(?:[#;]|//)")
_STRUCTURE = re.compile(r"[ \t]*(?:\[[^\]]*\]|---|\.\.\.|[{}\[\](),]*|[|>][+-]?)[ \t]*")

_TELLING = re.compile(
    r"secret|token|passw|passphrase|pwd|pass$|pass[_.-]|key|credential|auth|salt|dsn|\bpin\b"
    r"|private|signature|session|cookie",
    re.IGNORECASE,
)
_SWITCH = re.compile(r"(?:true|false|yes|no|on|off|null|none|~|__token__)?", re.IGNORECASE)
_HARMLESS = re.compile(
    r"\d{1,5}|\d{1,4}(?:\.\d{1,4}){1,3}|(?:\.{0,2}/)?[A-Za-z_][A-Za-z_./-]*"
    r"|[a-z][a-z0-9+]*://(?:/?[A-Za-z_][\w./-]*|[\w.-]+(?::\d{1,5})?)(?:/[A-Za-z_./-]*)?"
)
_DUMMY = str.maketrans(
    {chr(c): "a" for c in range(97, 123)}
    | {chr(c): "A" for c in range(65, 91)}
    | {chr(c): "0" for c in range(48, 58)}
)
_ESCAPE = re.compile(r"\\.")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://")
_URL_PASSWORD = re.compile(r"//[^/@:]*:([^/@]+)@")


class _Placeholder:
    """Makes the text of a placeholder. `values` are those that were replaced."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self._key = ""  # of the values that follow, in JSON

    def of_text(self, text: str) -> str:
        if _JSON.match(text):
            return _JSON_PART.sub(self._of_json, text)
        if _PEM.search(text):
            return _replaced(_PRIVATE, text, self._of_key)
        return "\n".join(map(self._of_line, text.split("\n")))

    def _dummy_of(self, value: str, key: str) -> str:
        if _SWITCH.fullmatch(value) or (not _TELLING.search(key) and _HARMLESS.fullmatch(value)):
            return value
        scheme = _SCHEME.match(value)
        prefix = scheme.end() if scheme else 0
        dummy = "".join(c if c.isascii() else "a" for c in value[prefix:].translate(_DUMMY))
        if value != value[:prefix] + dummy:
            self.values += (value, *_URL_PASSWORD.findall(value))
        return value[:prefix] + dummy

    def _of_key(self, found: re.Match[str]) -> str:
        return "\n".join(self._dummy_of(line, "key") for line in found["value"].split("\n"))

    def _of_json(self, found: re.Match[str]) -> str:
        if found["colon"]:
            self._key = found["value"]
            return found[0]
        if found["number"]:
            return "1" + self._dummy_of(found["number"], "key")[1:]
        made = self._dummy_of(found["value"], self._key)
        for escape in _ESCAPE.finditer(found["value"]):
            made = made[: escape.start()] + escape[0] + made[escape.end() :]
        return f'"{made}"'

    def _of_line(self, line: str) -> str:
        if _COMMENT.match(line):  # it may hold what was the value yesterday
            return "#"
        if _NETRC.search(line):
            return _replaced(_NETRC, line, lambda match: self._dummy_of(match["value"], "key"))
        match = _LINE.match(line)
        if match is None:
            return line if _STRUCTURE.fullmatch(line) else self._dummy_of(line, "key")
        group = "quoted" if match["quote"] else "bare"
        value = match[group] if match["quote"] else match[group].partition(" #")[0].rstrip()
        if _STRUCTURE.fullmatch(value):
            return line
        quote = match["quote"] or ""
        end = line[match.end(group) :].partition("#")[0].rstrip() if quote else ""
        return line[: match.start(group)] + self._dummy_of(value, match["key"]) + end


def _replaced(pattern: re.Pattern[str], text: str, made: Callable[[re.Match[str]], str]) -> str:
    def whole(found: re.Match[str]) -> str:
        start, end = found.start("value") - found.start(), found.end("value") - found.start()
        return found[0][:start] + made(found) + found[0][end:]

    return pattern.sub(whole, text)


def placeholder(data: bytes) -> bytes:
    """Return what stands for a file of secrets: the same keys with made-up values.

    A file that is not UTF-8 text, such as a key store, becomes empty.
    """
    text = _decoded(data)
    return b"" if text is None else _Placeholder().of_text(text).encode()


# ---- values

_SHORTEST = 6  # characters; a shorter value would mask ordinary words
_WORD = re.compile(r"[A-Za-z_.-]+|[0-9.:]+")
_LONGEST_WORD = 16
_MOST_VALUES = 4096


class KnownSecrets:
    """The values that files of secrets hold, to be masked wherever they show up."""

    def __init__(self, files: Iterable[bytes]) -> None:
        made = _Placeholder()
        for text in filter(None, map(_decoded, files)):
            made.of_text(text)
        pieces = {p.strip() for value in made.values for p in (value, *value.split("\\n"))}
        longest = sorted(filter(_is_telling, pieces), key=lambda value: (-len(value), value))
        self.values = tuple(longest[:_MOST_VALUES])

    def masked(self, text: str) -> str:
        """Return the text with MASK in the place of each value that stands alone."""
        for value in self.values:
            if value in text:
                # "\\n" before it belongs to a text in quotes.
                before = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
                alone = rf"{before}{re.escape(value)}(?![A-Za-z0-9])"
                text = re.sub(alone, MASK, text)
        return text


def _is_telling(value: str) -> bool:
    """Whether a value is a secret wherever it stands, and no word that code uses as well."""
    if len(value) < _SHORTEST or is_placeholder(value):
        return False
    return not _WORD.fullmatch(value) or len(value) >= _LONGEST_WORD


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode("utf-8") if b"\0" not in data else None
    except UnicodeDecodeError:
        return None
