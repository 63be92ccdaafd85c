"""Masks keys in texts."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator

from pydantic import SecretStr

from agent.settings import secret_values
from agent.shared.secrets import MASK as REMOVED

MASK = "***"

# A shorter value is a placeholder ("test", "none", "ollama"), and would mask ordinary words.
SHORTEST_SECRET = 8
# A text that was cut, or a server's own quotation, may hold a part of a key: this many of its
# characters in a row are masked too.
PART = 12

# Shorter values that are words (`lm-studio`) stay in replies, because code may hold them.
_LONGEST_WORD = 15
_WORD = re.compile(r"[A-Za-z_.-]+")
_BASE64 = (base64.b64encode, base64.urlsafe_b64encode)
# How JSON may write the characters of a key.
_ESCAPED = re.compile(r"\\u00([0-9a-fA-F]{2})|\\(?=/)")

# Encoded words: a digit, or a small letter before a capital one, is in all but the rarest.
_BASIC_FORM = r"(?-i:(?=[A-Za-z+/]*(?:[0-9]|[a-z][A-Z]))[A-Za-z0-9+/]{4,}={0,2})"
_NAMES = r"[\w-]*(?:api[_-]?key|token|secret|password|passwd|signature|credentials?)|key|sig"
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        # Headers, as text and as JSON.
        (
            r"\b((?:proxy-)?authorization|x-api-key|api-key|x-goog-api-key)"
            r"""(["']?\s*[:=]\s*["']?)(?:(bearer|basic)\s+)?[^\s"',;]+""",
            rf"\1\2{MASK}",
        ),
        (r"\b(bearer\s+)[^\s\"',;]{4,}", rf"\1{MASK}"),
        # User and password of a URL, as its header carries them; "basic support" is a phrase.
        (rf"\b(basic\s+){_BASIC_FORM}", rf"\1{MASK}"),
        (rf"([?&;](?:{_NAMES})=)[^&\s\"'#;]+", rf"\1{MASK}"),
        (r"(\b[a-z][a-z0-9+.-]*://)[^\s/@\"']+@", rf"\1{MASK}@"),
        (r"\b(?:sk|rk|pk|xai|gsk)[-_][\w*.-]{12,}", MASK),
    )
)


class Redactor:
    """Masks secrets, also reversed or in Base64. Those shorter than SHORTEST_SECRET stay."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        values = {secret for secret in secrets if len(secret) >= SHORTEST_SECRET}
        forms = {secret: _forms(secret) for secret in values}
        every = {form for some in forms.values() for form in some}
        self._widths = sorted({min(len(form), PART) for form in every})
        self._parts = frozenset(part for form in every for part in _parts(form))
        whole = {form for secret, some in forms.items() if not _is_word(secret) for form in some}
        longest = sorted(whole, key=lambda form: (-len(form), form))
        self._whole = re.compile("|".join(map(re.escape, longest))) if longest else None

    def __call__(self, text: str) -> str:
        """`text` without the secrets, every part of PART of their characters, and key-like forms.

        What is masked is replaced by MASK; nothing is ever added to a text without secrets.
        """
        if self._parts:
            text = self._without_known(text)
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        return text

    def known(self, text: str) -> str:
        """`text` without the secrets and their parts; what only looks like a key stays."""
        return self._without_known(text) if self._parts else text

    def in_reply(self, text: str) -> str:
        """A server's reply without whole secrets: edits with what stands for them are refused."""
        if self._whole is None:
            return text
        text = self._whole.sub(REMOVED, text)
        plain = _ESCAPED.sub(lambda match: chr(int(match[1], 16)) if match[1] else "", text)
        return self._whole.sub(REMOVED, plain) if self._whole.search(plain) else text

    def _without_known(self, text: str) -> str:
        pieces: list[str] = []
        done = 0
        for start, end in _merged(self._spans(text)):
            pieces += (text[done:start], MASK)
            done = end
        return "".join(pieces) + text[done:]

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        for start in range(len(text) - SHORTEST_SECRET + 1):
            for width in self._widths:
                if text[start : start + width] in self._parts:
                    yield start, start + width


def _is_word(secret: str) -> bool:
    return len(secret) <= _LONGEST_WORD and _WORD.fullmatch(secret) is not None


def _forms(secret: str) -> frozenset[str]:
    """A secret as it is, reversed, and both in Base64, at each place of a longer text."""
    plain = (secret, secret[::-1])
    forms = set(plain)
    for text in plain:
        for shift in range(3):
            data = bytes(shift) + text.encode("utf-8", "surrogateescape")
            own = slice(-(-shift * 8 // 6), len(data) * 8 // 6)  # no bits of what stands around it
            forms |= {encode(data).decode()[own] for encode in _BASE64}
    return frozenset(form for form in forms if len(form) >= SHORTEST_SECRET)


def _parts(secret: str) -> Iterator[str]:
    width = min(len(secret), PART)
    for start in range(len(secret) - width + 1):
        yield secret[start : start + width]


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start <= merged[-1][1]:
            start, end = merged[-1][0], max(merged.pop()[1], end)
        merged.append((start, end))
    return merged


def own_redactor(*more: str) -> Redactor:
    """What masks the keys that this process was given, and `more`."""
    return Redactor((*secret_values(), *more))


def redact(text: str, key: SecretStr | None = None) -> str:
    """`text` without the key and without anything that looks like one."""
    return Redactor([key.get_secret_value()] if key else ())(text)
