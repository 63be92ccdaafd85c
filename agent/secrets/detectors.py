"""The known forms of `detect-secrets` (Yelp): keys of vendors that our own rules do not name.

Of its 27 detectors those are used that know the form of one vendor's keys. Measured on 1,985 files
(386,585 lines) of ten public projects, these flag no line that holds no key, while the keyword
detector flags 210 lines that our own rules leave alone, the two entropy detectors 306 (digests,
git ids, encoded constants), `BasicAuth` 45 (`user:pass@` in tests and docs), `IPPublic` 232. What
`PrivateKey`, `JwtToken` and `OpenAI` see our own rules see too, in time that no text can stretch.

Only the patterns are used, never `verify`, which would send a key to its vendor. The import costs a
solve 60 ms, all patterns 16 microseconds a line: so they see only what could be a key, and are
imported at the first such place.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence

from agent.secrets.marks import as_ascii

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

# Each of these forms has a run of such signs, and a digit in it. The longest, GitLab's for agents,
# has 1,024 signs: of a longer run only its start is looked at.
_RUN = re.compile(r"[A-Za-z0-9_-]{20,}|[A-Za-z0-9+/]{40,}={0,2}")
_SHORTEST = 20
_SIGNS = bytes(ord("x" if re.match(r"[A-Za-z0-9_+/-]", chr(code)) else " ") for code in range(256))
"""Which bytes a run may hold: `x`; the others are spaces."""
_PADDING = 2  # signs that may follow a run
_DIGIT = re.compile(r"[0-9]")
_MAX_RUN = 1100

# Signs beside a run that a pattern may want: a name such as `aws_secret_access_key = "`.
_BEFORE, _AFTER = 72, 40

# A group shorter than this is a part of a pattern (`ghp`), not the value.
_MIN_VALUE = 16

# What some patterns take along at the ends of a key.
_CLOSING = " \t\r\"'"
_SEPARATORS = _CLOSING + "=:"
_WORD = re.compile(r"[A-Za-z0-9_]")

Span = tuple[int, int, str]  # start, end, the form's name


def known_forms(text: str) -> Iterator[Span]:
    """The places of keys of known forms, none with a line break, in no particular order."""
    seen: dict[str, Sequence[Span]] = {}
    for run in _runs(text):
        if not _DIGIT.search(text, run.start(), min(run.end(), run.start() + _MAX_RUN)):
            continue
        start, end = _surroundings(text, *run.span())
        part = text[start:end]
        if part not in seen:
            seen[part] = _matches(part)
        for first, last, what in seen[part]:
            yield start + first, start + last, what


def _runs(text: str) -> Iterator[re.Match[str]]:
    """What `_RUN.finditer` gives: looked for where enough of its signs stand together."""
    signs = as_ascii(text).translate(_SIGNS)
    start = signs.find(b"x" * _SHORTEST)
    while start >= 0:
        end = signs.find(b" ", start)
        end = len(signs) if end < 0 else end
        yield from _RUN.finditer(text, start, end + _PADDING)
        start = signs.find(b"x" * _SHORTEST, end)


def _surroundings(text: str, start: int, end: int) -> tuple[int, int]:
    """A run with its neighbours on the same line."""
    end = min(end, start + _MAX_RUN)
    first = max(start - _BEFORE, text.rfind("\n", 0, start) + 1)
    line_end = text.find("\n", end)
    last = end + _AFTER
    return first, min(last, line_end) if line_end >= 0 else last


def _matches(part: str) -> Sequence[Span]:
    found = (
        (*_value(match), what) for pattern, what in _patterns() for match in pattern.finditer(part)
    )
    return tuple(span for span in found if _stands_alone(part, *span[:2]))


def _value(match: re.Match[str]) -> tuple[int, int]:
    """Where the key itself stands: the first long group or the whole match, without quotes."""
    groups = range(1, match.re.groups + 1)
    group = next((g for g in groups if len(match[g] or "") >= _MIN_VALUE), 0)
    start, end = match.span(group)
    value = match[group]
    return end - len(value.lstrip(_SEPARATORS)), start + len(value.rstrip(_CLOSING))


def _stands_alone(part: str, start: int, end: int) -> bool:
    """Whether no longer word goes on at either end, as in a digest or a table of numbers."""
    return not (_WORD.match(part, start - 1) if start else None) and not _WORD.match(part, end)


@functools.cache
def _patterns() -> Sequence[tuple[re.Pattern[str], str]]:
    from importlib import import_module

    found = []
    for place in _DETECTORS:
        module, name = place.rsplit(".", 1)
        detector = getattr(import_module(f"detect_secrets.plugins.{module}"), name)
        found += [(pattern, str(detector.secret_type)) for pattern in detector.denylist]
    return tuple(found)
