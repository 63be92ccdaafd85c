"""Keys of vendors in the forms that `detect-secrets` (Yelp) knows.

Of its 27 detectors, those for the keys of one vendor are used. On 1,985 files (386,585 lines) of
ten public projects they flag no line without a key. The others flag ordinary lines: the keyword
detector 210, the two entropy detectors 306 (digests, git ids, encoded constants), `BasicAuth` 45
(`user:pass@` in tests and docs), `IPPublic` 232. The rules in `finding` cover `PrivateKey`,
`JwtToken` and `OpenAI`, in linear time.

Only the patterns are used, never `verify`, which would send a key to its vendor. The import costs
60 ms and the patterns 16 microseconds a line. So they are tried only where a key may be, and
imported at the first such place.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence

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
            seen[part] = _matches(part)
        for first, last, what in seen[part]:
            yield start + first, start + last, what


def _runs(text: str) -> Iterator[re.Match[str]]:
    """Return what `_RUN.finditer` returns, searched only where enough characters stand together."""
    signs = as_ascii(text).translate(_SIGNS)
    start = signs.find(b"x" * _SHORTEST)
    while start >= 0:
        end = signs.find(b" ", start)
        end = len(signs) if end < 0 else end
        yield from _RUN.finditer(text, start, end + _PADDING)
        start = signs.find(b"x" * _SHORTEST, end)


def _surroundings(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span of a run with its neighbours on the same line."""
    end = min(end, start + _MAX_RUN)
    first = max(start - _BEFORE, text.rfind("\n", 0, start) + 1)
    line_end = text.find("\n", end)
    last = end + _AFTER
    return first, min(last, line_end) if line_end >= 0 else last


def _matches(part: str) -> Sequence[Span]:
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
    """Whether the span is not a part of a longer word, such as a digest."""
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

    Python's `re` tries a pattern that begins with alternatives at every character, which takes a
    tenth of a second for 500 kB. Fixed strings are found a hundred times as fast.
    """
    searched = as_ascii(text)
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


def lines_with(text: str, mark: str) -> Iterator[tuple[int, int]]:
    """Return start and end of each line with the mark."""
    at = text.find(mark)
    while at >= 0:
        line_end = text.find("\n", at)
        end = len(text) if line_end < 0 else line_end
        yield text.rfind("\n", 0, at) + 1, end
        at = text.find(mark, end)


def as_ascii(text: str) -> bytes:
    """Return one byte for each character, `?` for characters outside of ASCII."""
    return text.encode("ascii", "replace")
