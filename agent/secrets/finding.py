"""Finds what looks like a secret: our own few rules, and the known forms of `detect-secrets`.

Rules are few and strict, because a masked line of ordinary code cannot be quoted back by the model:
key formats that vendors document, private key blocks, and random-looking values assigned to names
like `API_TOKEN`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.secrets.detectors import known_forms
from agent.secrets.marks import lines_with, places_of


@dataclass(frozen=True, slots=True, order=True)
class Found:
    """A secret value at `text[start:end]`, on one line.

    `known_form`: its own shape tells it (a vendor's token, a line of a private key); otherwise it
    is a random value that a telling name or a URL gives away.
    """

    start: int
    end: int
    what: str
    known_form: bool


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
    | sk-ant-[a-z]{2,12}\d\d-[A-Za-z0-9_-]{20,255}    # Anthropic
    | pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,255}
    | hf_[A-Za-z0-9]{34,40}                           # Hugging Face
    | SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}        # SendGrid
    | eyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{16,1000}  # JSON Web Token
    )(?![A-Za-z0-9_])""",
    re.VERBOSE,
)
# What each of them begins with; the pattern is tried there alone. The same of the patterns below.
_TOKEN_MARKS = (
    *("AKIA", "ASIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox"),
    *("xapp-", "AIza", "sk_live_", "sk_test_", "rk_live_", "rk_test_", "npm_", "sk-ant-"),
    *("pypi-AgEIcHlwaS5vcmc", "hf_", "SG.", "eyJ"),
)
# OpenAI, Anthropic, OpenRouter; also a CSS class or a package name unless it looks random.
_SK_KEY = re.compile(r"(?<![A-Za-z0-9_-])(?P<key>sk-[A-Za-z0-9_-]{20,255})")
_SK_MARKS = ("sk-",)

# The body ends at the next dashes; a block that is cut off has no end line.
_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
    r"(?P<body>(?:[^-]|-(?!----)){0,20000}+)"
)
_KEY_BLOCK_MARKS = ("-----BEGIN ",)
_KEY_LINE = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")
_FULL_KEY_LINE = 40  # characters; PEM lines have 64, the last one fewer

_ASSIGNED = re.compile(
    r"""(?<!public)(?<!publickey)(?:secret|token|passw(?:or)?d|passphrase|api_?key|access_?key|private_?key|account_?key
          |credential)s?[\w-]{0,40}
        \\?["']?\s{0,8}(?::=|=>|[:=])\s{0,8}
        (?:"(?P<double>[^\s"]{16,512})"|'(?P<single>[^\s']{16,512})'
          |\\"(?P<escaped>[^\s"\\]{16,512})\\"     # JSON in a string, or a quoted line
          |(?P<bare>[A-Za-z0-9+/_=-]{20,512})[ \t]*$)""",
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
_ASSIGNED_MARKS = (
    *("secret", "token", "passwd", "password", "passphrase", "credential"),
    *(
        f"{kind}{joined}key"
        for kind in ("api", "access", "private", "account")
        for joined in ("", "_")
    ),
)
# Not ASCII, and yet the same as a letter of it where case is ignored.
_FOLDED = "\u0130\u0131\u017f\u212a"
_URL_PASSWORD = re.compile(
    r"[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"]{1,64}:(?P<password>[^\s/@'\"]{12,256})@"
)

_PLACEHOLDER = re.compile(
    r"example|sample|changeme|placeholder|dummy|your|xxxx|1234567|[{}<>$()]|\.\.\.", re.I
)
_LETTER_RUN = re.compile(r"[a-z]{9,}|[A-Z]{9,}")
_BITS_PER_CHARACTER = 3.0  # random hexadecimal of 16 digits has 3.4, words and paths less than 3


def find_secrets(text: str) -> tuple[Found, ...]:
    """Every secret value, in order of its place; places do not overlap.

    Where two rules take overlapping places, their union counts once, as what the first one says.
    """
    found = sorted((*_key_lines(text), *_tokens(text), *_named_values(text)))
    merged: list[Found] = []
    for one in found:
        if merged and one.start < merged[-1].end:
            last = merged[-1]
            known = last.known_form or one.known_form
            merged[-1] = Found(last.start, max(last.end, one.end), last.what, known)
        else:
            merged.append(one)
    return tuple(merged)


def is_placeholder(value: str) -> bool:
    """Whether a value says itself that it is made up (`your-api-key`, `xxxxxxxx`)."""
    return _PLACEHOLDER.search(value) is not None


def _key_lines(text: str) -> Iterator[Found]:
    for block in _matches(_KEY_BLOCK, text, places_of(text, _KEY_BLOCK_MARKS)):
        for line in _KEY_LINE.finditer(text, *block.span("body")):
            # A program may only compare with the header: words of its code are no key.
            if len(line[0]) >= _FULL_KEY_LINE or _looks_random(line[0]):
                yield Found(*line.span(), "private key", known_form=True)


def _tokens(text: str) -> Iterator[Found]:
    for match in _matches(_TOKENS, text, places_of(text, _TOKEN_MARKS)):
        yield Found(*match.span(), "token of a known form", known_form=True)
    for match in _matches(_SK_KEY, text, places_of(text, _SK_MARKS)):
        if _looks_random(match["key"]):
            yield Found(*match.span("key"), "API key", known_form=True)
    for start, end, what in known_forms(text):
        yield Found(start, end, what, known_form=True)


def _named_values(text: str) -> Iterator[Found]:
    for match in (*_passwords_in_urls(text), *_assigned(text)):
        group = match.lastgroup or 0
        if _looks_random(match[group]):
            yield Found(*match.span(group), "value of a telling name", known_form=False)


def _passwords_in_urls(text: str) -> Iterator[re.Match[str]]:
    for start, end in lines_with(text, "://"):
        yield from _URL_PASSWORD.finditer(text, start, end)


def _assigned(text: str) -> Iterator[re.Match[str]]:
    if not text.isascii() and any(letter in text for letter in _FOLDED):
        return _ASSIGNED.finditer(text)
    return _matches(_ASSIGNED, text, places_of(text, _ASSIGNED_MARKS, any_case=True))


def _matches(pattern: re.Pattern[str], text: str, places: Sequence[int]) -> Iterator[re.Match[str]]:
    """What `finditer` gives for a pattern that matches at some of these places only."""
    done = 0
    for place in places:
        match = pattern.match(text, place) if place >= done else None
        if match is not None:
            done = match.end()
            yield match


def _looks_random(value: str) -> bool:
    """Letters and digits mixed, no long word, no placeholder, enough entropy."""
    return (
        any(character.isdigit() for character in value)
        and any(character.isalpha() for character in value)
        and not is_placeholder(value)
        and _LETTER_RUN.search(value) is None
        and _entropy(value) >= _BITS_PER_CHARACTER
    )


def _entropy(value: str) -> float:
    """Shannon entropy of the characters, in bits per character."""
    total = len(value)
    return -sum(n / total * math.log2(n / total) for n in Counter(value).values())
