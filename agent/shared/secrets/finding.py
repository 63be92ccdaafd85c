"""Finds secrets by a few strict rules and by the known forms of `detect-secrets` (Yelp).

The rules are strict because a model cannot quote a masked line of ordinary code. `verify` of
detect-secrets, which would send a key to its vendor, is never called.
"""

from __future__ import annotations

import base64
import functools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_DETECTORS = (
    *("artifactory.ArtifactoryDetector", "aws.AWSKeyDetector"),
    *("azure_storage_key.AzureStorageKeyDetector", "cloudant.CloudantDetector"),
    *("discord.DiscordBotTokenDetector", "github_token.GitHubTokenDetector"),
    *("gitlab_token.GitLabTokenDetector", "ibm_cloud_iam.IbmCloudIamDetector"),
    *("ibm_cos_hmac.IbmCosHmacDetector", "mailchimp.MailchimpDetector", "npm.NpmDetector"),
    *("pypi_token.PypiTokenDetector", "sendgrid.SendGridDetector", "slack.SlackDetector"),
    *("softlayer.SoftlayerDetector", "square_oauth.SquareOAuthDetector"),
    *("stripe.StripeDetector", "telegram_token.TelegramBotTokenDetector"),
    "twilio.TwilioKeyDetector",
)

# Each of these forms has a run of such characters with a digit in it. The longest, of GitLab for
# agents, has 1,024 characters. Of a longer run only the start is checked.
_RUN = re.compile(r"[A-Za-z0-9_-]{20,}|[A-Za-z0-9+/]{40,}={0,2}")
_SHORTEST = 20
_SIGNS = bytes(ord("x" if re.match(r"[A-Za-z0-9_+/-]", chr(code)) else " ") for code in range(256))
"""A translation table: `x` for bytes that a run may hold, spaces for the others."""
_PADDING = 2  # characters that may follow a run
_DIGIT = re.compile(r"[0-9]")
_MAX_RUN = 1100

# Characters beside a run that a pattern may need: a name such as `aws_secret_access_key = "`.
_BEFORE, _AFTER = 72, 40

# A shorter group is a part of a pattern (`ghp`), not the value.
_MIN_VALUE = 16

# Characters that some patterns match at the ends of a key.
_CLOSING = " \t\r\"'"
_SEPARATORS = _CLOSING + "=:"
_WORD = re.compile(r"[A-Za-z0-9_]")

Span = tuple[int, int, str]  # start, end, the form's name


def known_forms(text: str) -> Iterator[Span]:
    """Return the spans of keys of known forms, without line breaks, in no particular order."""
    seen: dict[str, Sequence[Span]] = {}
    for run in _runs(text):
        if not _DIGIT.search(text, run.start(), min(run.end(), run.start() + _MAX_RUN)):
            continue
        start, end = _surroundings(text, *run.span())
        part = text[start:end]
        if part not in seen:
            seen[part] = _matches_in(part)
        for first, last, what in seen[part]:
            yield start + first, start + last, what


def _runs(text: str) -> Iterator[re.Match[str]]:
    """Return what `_RUN.finditer` returns, searched only where enough characters stand together."""
    signs = _as_ascii(text).translate(_SIGNS)
    start = signs.find(b"x" * _SHORTEST)
    while start >= 0:
        end = signs.find(b" ", start)
        end = len(signs) if end < 0 else end
        yield from _RUN.finditer(text, start, end + _PADDING)
        start = signs.find(b"x" * _SHORTEST, end)


def _surroundings(text: str, start: int, end: int) -> tuple[int, int]:
    end = min(end, start + _MAX_RUN)
    first = max(start - _BEFORE, text.rfind("\n", 0, start) + 1)
    line_end = text.find("\n", end)
    last = end + _AFTER
    return first, min(last, line_end) if line_end >= 0 else last


def _matches_in(part: str) -> Sequence[Span]:
    spans = (
        (*_value(match), what) for pattern, what in _patterns() for match in pattern.finditer(part)
    )
    return tuple(span for span in spans if _stands_alone(part, *span[:2]))


def _value(match: re.Match[str]) -> tuple[int, int]:
    """Return the span of the key: the first long group or the whole match, without quotes."""
    groups = range(1, match.re.groups + 1)
    group = next((g for g in groups if len(match[g] or "") >= _MIN_VALUE), 0)
    start, end = match.span(group)
    value = match[group]
    return end - len(value.lstrip(_SEPARATORS)), start + len(value.rstrip(_CLOSING))


def _stands_alone(part: str, start: int, end: int) -> bool:
    return not (_WORD.match(part, start - 1) if start else None) and not _WORD.match(part, end)


@functools.cache
def _patterns() -> Sequence[tuple[re.Pattern[str], str]]:
    from importlib import import_module

    patterns = []
    for place in _DETECTORS:
        module, name = place.rsplit(".", 1)
        detector = getattr(import_module(f"detect_secrets.plugins.{module}"), name)
        patterns += [(pattern, str(detector.secret_type)) for pattern in detector.denylist]
    return tuple(patterns)


def places_of(text: str, marks: Sequence[str], *, any_case: bool = False) -> list[int]:
    """Return the offsets of the marks (ASCII, lower case with `any_case`), ascending.

    Fixed strings are found a hundred times as fast as a pattern that begins with alternatives.
    """
    searched = _as_ascii(text)
    if any_case:
        searched = searched.lower()
    offsets: set[int] = set()
    for mark in marks:
        needle = mark.encode("ascii")
        at = searched.find(needle)
        while at >= 0:
            offsets.add(at)
            at = searched.find(needle, at + 1)
    return sorted(offsets)


def _as_ascii(text: str) -> bytes:
    return text.encode("ascii", "replace")


@dataclass(frozen=True, slots=True, order=True)
class SecretSpan:
    """A secret value at `text[start:end]`, on one line.

    `known_form`: its own shape shows that it is a secret, not the words around it.
    """

    start: int
    end: int
    what: str
    known_form: bool


# Formats documented by their vendors: how a token begins, and what
# follows. A match is a secret in any context. Patterns are tried only where such a mark stands.
_TOKEN_FORMS: Mapping[str, tuple[str, ...]] = {
    r"[0-9A-Z]{16}": ("AKIA", "ASIA"),  # AWS
    r"[A-Za-z0-9]{36,255}": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),  # GitHub
    r"[A-Za-z0-9_]{60,255}": ("github_pat_",),
    r"[A-Za-z0-9_-]{20,64}": (  # GitLab
        *("glpat-", "glptt-", "gldt-", "glsoat-", "glcbt-", "glft-", "glagent-", "glimt-"),
    ),
    r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}": ("SG.",),  # SendGrid
    r"[A-Za-z0-9-]{10,255}": ("xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-"),
    r"\d-[A-Za-z0-9-]{20,255}": ("xapp-",),  # Slack
    r"[0-9A-Za-z_-]{35}": ("AIza",),  # Google
    r"[A-Za-z0-9_-]{24,40}": ("GOCSPX-",),
    r"[A-Za-z0-9_-]{50,1000}": ("ya29.",),
    r"[0-9a-zA-Z]{20,255}": ("sk_live_", "sk_test_", "rk_live_", "rk_test_"),  # Stripe
    r"[A-Za-z0-9+/]{24,100}": ("whsec_",),
    r"[a-z]{2,12}\d\d-[A-Za-z0-9_-]{20,255}": ("sk-ant-",),  # Anthropic
    r"[A-Za-z0-9]{34,40}": ("npm_", "hf_", "r8_"),  # npm, Hugging Face, Replicate
    r"[A-Za-z0-9]{32,100}": ("gsk_", "xai-", "pplx-", "lin_api_", "ntn_"),
    r"[A-Za-z0-9_-]{22,60}": ("dckr_pat_", "figd_", "sq0atp-", "sq0csp-", "sq0idp-", "NRAK-"),
    r"[0-9a-fA-F]{32}(?:-\d)?": ("key-", "shpat_", "shpca_", "shppa_", "shpss_", "dapi"),
    r"[0-9a-f]{40,64}": ("dop_v1_", "doo_v1_", "dor_v1_", "sbp_", "rubygems_"),
    r"[A-Za-z0-9_-]{20,300}": ("hvs.", "hvb.", "hvr."),  # HashiCorp Vault
    r"(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{32,64}": ("pscale_",),  # PlanetScale
    r"[a-z]{3,10}-[A-Za-z0-9-]{20,80}": ("tskey-",),  # Tailscale
    r"[0-9a-f]{24}-[0-9a-f]{34}": ("PMAK-",),  # Postman
    r"[A-Za-z0-9]{14}\.[0-9a-f]{64}": ("pat",),  # Airtable
    r"[A-Za-z0-9_=-]{60,300}": ("ATATT3",),  # Atlassian
    r"[0-9A-Z]{58}": ("AGE-SECRET-KEY-1",),
    r"(?!BDRVJU|BQVUJMSUM)[A-Za-z0-9+/]{40,20000}={0,2}": ("LS0tLS1CRUdJTi",),  # a key in Base64
    r"[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{16,1000}": ("eyJ",),  # JWT
}
_TOKEN_MARKS = tuple(mark for marks in _TOKEN_FORMS.values() for mark in marks)
_TOKENS = re.compile(
    "(?<![A-Za-z0-9_])(?:"
    + "|".join(f"(?:{'|'.join(map(re.escape, m))}){rest}" for rest, m in _TOKEN_FORMS.items())
    + ")(?![A-Za-z0-9_])"
)
# Keys of OpenAI, OpenRouter and PyPI; a CSS class or package name unless it looks random.
_SK_KEY = re.compile(r"(?<![A-Za-z0-9_-])(?P<key>(?:sk|pypi)-[A-Za-z0-9_-]{20,255})")
_SK_MARKS = ("sk-", "pypi-")

# The body ends at the next dashes; a block that is cut off has no end line.
_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
    r"(?P<body>(?>(?:[^-]|-(?!----)){0,20000}))"
)
_KEY_BLOCK_MARKS = ("-----BEGIN ",)
_KEY_LINE = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")
_FULL_KEY_LINE = 40  # characters; PEM lines have 64, the last one fewer

_KEY_KINDS = (
    *("api", "access", "private", "account", "encryption", "signing", "auth", "master", "shared"),
    *("storage", "jwt", "hmac", "fernet", "session"),
)
_NAME = rf"""(?<!public)(?<!publickey)
    (?:secret|token|passw(?:or)?d|passphrase|pwd|[_-]pass(?![a-z])|credential
      |(?:{"|".join(_KEY_KINDS)})[_-]?key)s?[\w-]{{0,40}}+"""
_NAME_MARKS = (
    *("secret", "token", "passwd", "password", "passphrase", "pwd", "_pass", "-pass", "credential"),
    *(f"{kind}{joined}key" for kind in _KEY_KINDS for joined in ("", "_", "-")),
)
# What a language writes between the name and a quoted value: the end of a subscript or of a quoted
# key, a type, a comma or a parenthesis of a call.
_QUOTED = re.compile(
    _NAME
    + r"""\\?["'`]?\]?
        (?:(?:\s{0,4}:\s{0,4}[A-Za-z_][\w.]{0,30}(?:\[[\w., |]{0,40}\])?(?=\s{0,4}=)
            |[ \t]{1,8}string(?=[ \t]{0,4}=))?
            \s{0,8}(?::=|=>|===?|[:=])\s{0,8}\(?\s{0,8}
          |(?P<call>(?<=["']),[ \t]{0,4}|\(\s{0,8}))
        (?:f|rf|fr|br?|rb?|u)?
        (?:"(?:"")?(?P<double>[^\s"]{8,512})"|'(?:'')?(?P<single>[^\s']{8,512})'
          |`(?P<tick>[^\s`]{8,512})`
          |\\"(?P<escaped>[^\s"\\]{8,512})\\")     # JSON in a string, or a quoted line
    """,
    re.VERBOSE | re.IGNORECASE,
)
# Without quotes: a line of .env, INI, YAML or shell, a parameter of a URL, a part of a connection
# string, an option of a command, an element of XML.
_UNQUOTED = re.compile(
    _NAME
    + r"""["']?(?:[ \t]{0,8}(?::=|=>|[:=])[ \t]{0,8}|(?P<space>[ \t]{1,4})|>)
        (?:(?P<line>[A-Za-z0-9+/_=-]{20,512})[ \t]*(?:[;#].*)?$
          |(?P<part>[^\s"'`;,&<>(){}\[\]\\]{8,512})(?=[\s"'`;,&<\\]|$))
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
_HEADER = re.compile(
    r"(?:bearer|basic)[ \t]{1,3}(?P<value>[A-Za-z0-9._~+/-]{12,4000}={0,2})", re.IGNORECASE
)
_HEADER_MARKS = ("bearer", "basic")
_FIELD = re.compile(r"\{[^{}]*\}")  # of a format string
# Names for which a value of a few characters counts too.
_PASSWORD = re.compile(r"passw|pwd|.pass|secret", re.IGNORECASE)
_LONG = 16  # characters of a random value
_OPTION = re.compile(r"(?<![\w-])--[\w-]{0,40}$")  # what stands before `token x`
_LONGEST_OPTION = 48
_SIGN = re.compile(r"[^\w./:\\-]")  # what no name and no path of code has
_CLASSES = tuple(map(re.compile, (r"[a-z]", r"[A-Z]", r"[0-9]", r"[^A-Za-z0-9]")))
_LETTER_AND_DIGIT = re.compile(r"(?=.*[0-9]).*[A-Za-z]")
_HEX = re.compile(r"(?=.*[a-f])[0-9a-f]{20,}")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+")
# Values that stand where only a password does: a mark of the line, and the pattern. Short and plain
# words count too, except for placeholders and the usual words of examples.
_SPELLED = tuple(
    (mark, re.compile(pattern, re.IGNORECASE))
    for mark, pattern in {
        "://": r"\b(?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?|mssql)(?:\+\w{1,20})?://"
        r"[^\s/:@'\"]{0,64}:(?P<value>[^\s/@,'\"]{4,256})@(?!localhost|127\.)",
        ".sentry.io/": r"://(?P<value>[0-9a-f]{32}(?::[0-9a-f]{32})?)@",
        "HTTPBasicAuth": r"HTTPBasicAuth\(\s{0,8}[^\s,()]{1,80},\s{0,8}"
        r"(?P<mark>[\"'])(?P<value>[^\s\"']{4,256})(?P=mark)",
        "mysql": r"\bmysql(?:dump|admin)?\b[^\n|;&]{0,200}?\s-p(?P<value>[^\s'\"]{4,256})",
        "curl": r"\bcurl\b[^\n|;&]{0,200}?\s(?:-u|--user)[\s=]?[\"']?[^\s:\"']{1,80}:"
        r"(?P<value>[^\s\"']{4,256})",
        ";": r"\b(?:server|data source|user id|uid)\s?=[^\n\"']{1,400}?;\s?(?:password|pwd)\s?="
        r"\s?(?P<value>[^\s;\"']{4,256})",
    }.items()
)
_USUAL = re.compile(
    r"(?:pass(?:word|wd)?|secret|postgres|mysql|mariadb|redis|root|admin|users?|test|guest|foo|bar|"
    r"hunter|tiger|demo|local|dev)\d{0,3}",
    re.IGNORECASE,
)
# Letters outside of ASCII that equal an ASCII letter where case is ignored.
_FOLDED = "\u0130\u0131\u017f\u212a"
_URL_PASSWORD = re.compile(
    r"[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"]{0,64}:(?P<password>[^\s/@,'\"]{8,256})@"
)

_PLACEHOLDER = re.compile(
    r"example|sample|changeme|placeholder|dummy|your|xxxx|1234567|[{}<>$()]|\.\.\.", re.I
)
_LETTER_RUN = re.compile(r"[a-z]{9,}|[A-Z]{9,}")
_BITS_OF_A_PASSWORD = 2.5  # of eight characters, six differ
_BITS_PER_CHARACTER = 3.0  # random hexadecimal of 16 digits has 3.4, words and paths less than 3


def find_secrets(text: str) -> tuple[SecretSpan, ...]:
    """Return all secret values in order; overlapping ones are merged."""
    spans = sorted((*_key_lines(text), *_tokens(text), *_named_values(text)))
    merged: list[SecretSpan] = []
    for one in spans:
        if merged and one.start < merged[-1].end:
            last = merged[-1]
            known_form = last.known_form or one.known_form
            merged[-1] = SecretSpan(last.start, max(last.end, one.end), last.what, known_form)
        else:
            merged.append(one)
    return tuple(merged)


def is_placeholder(value: str) -> bool:
    """Whether a value is obviously made up (`your-api-key`, `xxxxxxxx`)."""
    return _PLACEHOLDER.search(value) is not None


def _key_lines(text: str) -> Iterator[SecretSpan]:
    for block in _matches(_KEY_BLOCK, text, places_of(text, _KEY_BLOCK_MARKS)):
        for line in _KEY_LINE.finditer(text, *block.span("body")):
            # A program may just compare with the header, and words of its code are no key.
            if len(line[0]) >= _FULL_KEY_LINE or _looks_random(line[0]):
                yield SecretSpan(*line.span(), "private key", known_form=True)


def _tokens(text: str) -> Iterator[SecretSpan]:
    for match in _matches(_TOKENS, text, places_of(text, _TOKEN_MARKS)):
        yield SecretSpan(*match.span(), "token of a known form", known_form=True)
    for match in _matches(_SK_KEY, text, places_of(text, _SK_MARKS)):
        if _looks_random(match["key"]):
            yield SecretSpan(*match.span("key"), "API key", known_form=True)
    for start, end, what in known_forms(text):
        yield SecretSpan(start, end, what, known_form=True)


def _named_values(text: str) -> Iterator[SecretSpan]:
    for mark, pattern in _SPELLED:
        for match in _in_lines(pattern, text, mark):
            value = match["value"]
            if not (_USUAL.fullmatch(value) or is_placeholder(value)):
                yield SecretSpan(*match.span("value"), "password", known_form=False)
    for match in _in_lines(_URL_PASSWORD, text, "://"):
        if _looks_random(match["password"]) or _looks_chosen(match["password"]):
            yield SecretSpan(*match.span("password"), "password in a URL", known_form=False)
    for match in _matches(_HEADER, text, places_of(text, _HEADER_MARKS, any_case=True)):
        if _is_credential(match["value"], basic=match[0][1] in "aA"):
            yield SecretSpan(*match.span("value"), "credentials of a header", known_form=False)
    for match in _assigned(text):
        group = match.lastgroup or ""
        if match.re is _QUOTED:
            is_secret = _is_quoted_secret(match, _FIELD.sub("", match[group]))
        else:
            is_secret = _is_unquoted_secret(match, group)
        if is_secret:
            yield SecretSpan(*match.span(group), "value of a telling name", known_form=False)


def _is_quoted_secret(match: re.Match[str], value: str) -> bool:
    if len(value) >= _LONG:  # a call may well take two names
        return _looks_mixed(value) if match["call"] else _looks_random(value)
    return _PASSWORD.search(match[0]) is not None and _looks_chosen(value)


def _is_unquoted_secret(match: re.Match[str], group: str) -> bool:
    """Code has names and numbers in the place of such values, so more is asked of them."""
    value, start = match[group], match.start()
    if match["space"] and not _OPTION.search(match.string, max(start - _LONGEST_OPTION, 0), start):
        return False
    if group == "line":
        return _looks_random(value)
    if len(value) >= _LONG and _looks_mixed(value):
        return True
    named = _PASSWORD.search(match[0]) is not None
    return named and _SIGN.search(value) is not None and _looks_chosen(value)


def _is_credential(value: str, *, basic: bool) -> bool:
    if not basic:
        return len(value) >= _LONG and _looks_random(value)
    password = _decoded(value).partition(":")[2]
    return _LETTER_AND_DIGIT.search(password) is not None and not is_placeholder(password)


def _decoded(value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode("utf-8")
    except ValueError:
        return ""


def _in_lines(pattern: re.Pattern[str], text: str, mark: str) -> Iterator[re.Match[str]]:
    at = text.find(mark)
    while at >= 0:
        line_end = text.find("\n", at)
        end = len(text) if line_end < 0 else line_end
        yield from pattern.finditer(text, text.rfind("\n", 0, at) + 1, end)
        at = text.find(mark, end)


def _assigned(text: str) -> Iterator[re.Match[str]]:
    if not text.isascii() and any(letter in text for letter in _FOLDED):
        yield from _QUOTED.finditer(text)
        yield from _UNQUOTED.finditer(text)
        return
    places = places_of(text, _NAME_MARKS, any_case=True)
    yield from _matches(_QUOTED, text, places)
    yield from _matches(_UNQUOTED, text, places)


def _matches(pattern: re.Pattern[str], text: str, places: Sequence[int]) -> Iterator[re.Match[str]]:
    """Return what `finditer` returns for a pattern that matches at these places only."""
    done = 0
    for place in places:
        match = pattern.match(text, place) if place >= done else None
        if match is not None:
            done = match.end()
            yield match


def _looks_random(value: str) -> bool:
    """Whether a value has letters, and nothing that is written by intention."""
    return any(map(str.isalpha, value)) and _is_no_word(value, _BITS_PER_CHARACTER)


def _looks_chosen(value: str) -> bool:
    """Whether a value looks like a password: three kinds of characters, digits among them."""
    kinds = sum(kind.search(value) is not None for kind in _CLASSES)
    return kinds >= 3 and _is_no_word(value, _BITS_OF_A_PASSWORD)


def _is_no_word(value: str, bits: float) -> bool:
    """Whether a value has digits, no long word, no placeholder, and so many bits a character."""
    return (
        any(map(str.isdigit, value))
        and not is_placeholder(value)
        and _LETTER_RUN.search(value) is None
        and _entropy(value) >= bits
    )


def _looks_mixed(value: str) -> bool:
    """Whether a value is random beyond what a name of code is: digits stand in several places."""
    if _HEX.fullmatch(value):
        return _looks_random(value)
    return (
        len(re.findall(r"[0-9]+", value)) >= 2
        and all(kind.search(value) for kind in _CLASSES[:2])
        and not _DOTTED.fullmatch(value)
        and _looks_random(value)
    )


def _entropy(value: str) -> float:
    total = len(value)
    return -sum(n / total * math.log2(n / total) for n in Counter(value).values())


# ---- masking

MASK = "<secret removed>"


@dataclass(frozen=True, slots=True)
class Masked:
    """A text without its secrets. `count` is the number of values replaced by MASK."""

    text: str
    count: int


def mask_secrets(text: str) -> Masked:
    """Replace secrets by MASK. The number of lines stays the same."""
    spans = find_secrets(text)
    parts: list[str] = []
    position = 0
    for one in spans:
        parts += (text[position : one.start], MASK)
        position = one.end
    parts.append(text[position:])
    return Masked("".join(parts), len(spans))
