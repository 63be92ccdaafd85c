"""Keeps what looks like a secret out of prompts.

Rules are few and strict, because a masked line of ordinary code cannot be quoted back by the model:
key formats that vendors document, private key blocks, and random-looking values assigned to names
like `API_TOKEN`. `detect-secrets` 1.5 was tried in their place: 130 microseconds a line, and on the
standard library its entropy rules flag `shlex`'s alphabets and `hashlib`'s examples.

Masking never changes the number of lines, so line numbers stay those of the file.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import PurePosixPath

MASK = "<secret removed>"


@dataclass(frozen=True, slots=True)
class Masked:
    """A text without its secrets. `count` is the number of values replaced by MASK."""

    text: str
    count: int


_SECRET_NAMES = frozenset(
    {
        *(".netrc", "_netrc", ".pgpass", ".pypirc", ".npmrc", ".git-credentials", ".htpasswd"),
        *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".dockercfg", ".s3cfg", ".boto"),
    }
)
_SECRET_SUFFIXES = frozenset({".pem", ".key", ".p12", ".pfx", ".ppk", ".jks", ".keystore", ".kdbx"})
_SECRET_PATHS = re.compile(r"(?:^|/)(?:\.aws/credentials|\.docker/config\.json|\.kube/config)$")
# `.env.example` and its kin are made to be read.
_ENV_FILE = re.compile(r"^\.env(?:rc)?(?:\.(?!example|sample|template|dist|defaults?$)[\w.-]+)?$")


def is_secret_path(path: str) -> bool:
    """Whether a file exists to hold secrets (`.env`, private keys, credential stores)."""
    pure = PurePosixPath(path)
    name = pure.name.lower()
    return (
        name in _SECRET_NAMES
        or pure.suffix.lower() in _SECRET_SUFFIXES
        or _ENV_FILE.match(name) is not None
        or _SECRET_PATHS.search(path.lower()) is not None
    )


# Formats documented by their vendors; a match is a secret whatever stands around it.
_TOKENS = re.compile(
    r"""(?<![A-Za-z0-9_])(?:
      (?:AKIA|ASIA)[0-9A-Z]{16}                       # AWS access key id
    | gh[pousr]_[A-Za-z0-9]{36,255}                   # GitHub
    | github_pat_[A-Za-z0-9_]{60,255}
    | glpat-[A-Za-z0-9_-]{20,64}                      # GitLab
    | xox[abeoprs]-[A-Za-z0-9-]{10,255}               # Slack
    | xapp-\d-[A-Za-z0-9-]{20,255}
    | AIza[0-9A-Za-z_-]{35}                           # Google
    | [sr]k_(?:live|test)_[0-9a-zA-Z]{20,255}         # Stripe
    | npm_[A-Za-z0-9]{36}
    | pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,255}
    | hf_[A-Za-z0-9]{34,40}                           # Hugging Face
    | SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}        # SendGrid
    | eyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{16,1000}  # JSON Web Token
    )(?![A-Za-z0-9_])""",
    re.VERBOSE,
)
# OpenAI, Anthropic, OpenRouter; also a CSS class or a package name unless it looks random.
_SK_KEY = re.compile(r"(?<![A-Za-z0-9_-])(?P<key>sk-[A-Za-z0-9_-]{20,255})")

# The body ends at the next dashes; a block that is cut off has no end line.
_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
    r"(?P<body>(?:[^-]|-(?!----)){0,20000}+)"
)
_KEY_LINE = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")
_FULL_KEY_LINE = 40  # characters; PEM lines have 64, the last one fewer

_ASSIGNED = re.compile(
    r"""(?<!public)(?<!publickey)(?:secret|token|passw(?:or)?d|passphrase|api_?key|access_?key|private_?key|account_?key
          |credential)s?[\w-]{0,40}
        ["']?\s{0,8}(?::=|=>|[:=])\s{0,8}
        (?:"(?P<double>[^\s"]{16,512})"|'(?P<single>[^\s']{16,512})'
          |(?P<bare>[A-Za-z0-9+/_=-]{20,512})[ \t]*$)""",
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
_URL_PASSWORD = re.compile(
    r"[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"]{1,64}:(?P<password>[^\s/@'\"]{12,256})@"
)

_PLACEHOLDER = re.compile(
    r"example|sample|changeme|placeholder|dummy|your|xxxx|1234567|[{}<>$()]|\.\.\.", re.I
)
_LETTER_RUN = re.compile(r"[a-z]{9,}|[A-Z]{9,}")
_BITS_PER_CHARACTER = 3.0  # random hexadecimal of 16 digits has 3.4, words and paths less than 3


def mask_secrets(text: str) -> Masked:
    """Replace what looks like a secret by MASK, keeping every line break."""
    count = 0

    def _whole(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return MASK

    def _key_line(match: re.Match[str]) -> str:
        # A program may only compare with the header: words of its code are no key.
        is_key = len(match[0]) >= _FULL_KEY_LINE or _looks_random(match[0])
        return _whole(match) if is_key else match[0]

    def _block(match: re.Match[str]) -> str:
        return _inside(match, match.span("body"), _KEY_LINE.sub(_key_line, match["body"]))

    def _value(match: re.Match[str]) -> str:
        group = match.lastgroup or 0
        if not _looks_random(match[group]):
            return match[0]
        return _inside(match, match.span(group), _whole(match))

    text = _KEY_BLOCK.sub(_block, text)
    text = _TOKENS.sub(_whole, text)
    text = _SK_KEY.sub(_value, text)
    text = _URL_PASSWORD.sub(_value, text)
    text = _ASSIGNED.sub(_value, text)
    return Masked(text, count)


def _inside(match: re.Match[str], span: tuple[int, int], replacement: str) -> str:
    start, end = span[0] - match.start(), span[1] - match.start()
    return match[0][:start] + replacement + match[0][end:]


def _looks_random(value: str) -> bool:
    """Letters and digits mixed, no long word, no placeholder, enough entropy."""
    return (
        any(character.isdigit() for character in value)
        and any(character.isalpha() for character in value)
        and _PLACEHOLDER.search(value) is None
        and _LETTER_RUN.search(value) is None
        and _entropy(value) >= _BITS_PER_CHARACTER
    )


def _entropy(value: str) -> float:
    """Shannon entropy of the characters, in bits per character."""
    total = len(value)
    return -sum(n / total * math.log2(n / total) for n in Counter(value).values())
