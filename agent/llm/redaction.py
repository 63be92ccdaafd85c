"""The text of a server's error, made fit to print: one line, without keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import SecretStr

MASK = "***"

# A shorter value is a placeholder ("test", "none", "ollama"), and would mask ordinary words.
SHORTEST_SECRET = 8
# A text that was cut, or a server's own quotation, may hold a part of a key: this many of its
# characters in a row are masked too.
PART = 12

# Encoded words: a digit, or a small letter before a capital one, is in all but the rarest.
BASIC_FORM = r"(?-i:(?=[A-Za-z+/]*(?:[0-9]|[a-z][A-Z]))[A-Za-z0-9+/]{4,}={0,2})"

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
        (rf"\b(basic\s+){BASIC_FORM}", rf"\1{MASK}"),
        (rf"([?&;](?:{_NAMES})=)[^&\s\"'#;]+", rf"\1{MASK}"),
        (r"(\b[a-z][a-z0-9+.-]*://)[^\s/@\"']+@", rf"\1{MASK}@"),
        (r"\b(?:sk|rk|pk|xai|gsk)[-_][\w-]{12,}", MASK),
    )
)


class Redactor:
    """Masks secrets in texts. Values shorter than SHORTEST_SECRET are left alone."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        kept = {secret for secret in secrets if len(secret) >= SHORTEST_SECRET}
        self._widths = sorted({min(len(secret), PART) for secret in kept})
        self._parts = frozenset(part for secret in kept for part in _parts(secret))

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

    def _without_known(self, text: str) -> str:
        pieces: list[str] = []
        kept = 0
        for start, end in _merged(self._found(text)):
            pieces += (text[kept:start], MASK)
            kept = end
        return "".join(pieces) + text[kept:]

    def _found(self, text: str) -> Iterator[tuple[int, int]]:
        """Spans of parts, by start."""
        for start in range(len(text) - SHORTEST_SECRET + 1):
            for width in self._widths:
                if text[start : start + width] in self._parts:
                    yield start, start + width


def _parts(secret: str) -> Iterator[str]:
    width = min(len(secret), PART)
    for start in range(len(secret) - width + 1):
        yield secret[start : start + width]


def _merged(spans: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Spans that touch or overlap as one."""
    current: tuple[int, int] | None = None
    for start, end in spans:
        if current is not None and start <= current[1]:
            current = current[0], max(current[1], end)
            continue
        if current is not None:
            yield current
        current = start, end
    if current is not None:
        yield current


_WORDING_LIMIT = 300  # characters of a server's own message that an error quotes

_KEY_LIKE = re.compile(
    r"\b(sk|rk|pk|xai|gsk)[-_][\w*.-]{6,}|\bBearer\s+[^\s\"']+" rf"|\bBasic\s+{BASIC_FORM}",
    re.IGNORECASE,
)
_MARKUP = re.compile(rb"^\s*(<!doctype|<html|<head|<\?xml)", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


def one_line(text: str, limit: int = _WORDING_LIMIT) -> str:
    """`text` without control characters or line breaks, at most `limit` characters."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"


def redact(text: str, key: SecretStr | None = None) -> str:
    """`text` without the key and without anything that looks like one."""
    if key is not None:
        text = text.replace(key.get_secret_value(), "***")
    return _KEY_LIKE.sub("***", text)


def is_markup(body: bytes) -> bool:
    """Whether a body is a web page: a proxy's, a login form's, a gateway's."""
    return bool(_MARKUP.match(body))


def wordings(body: bytes, key: SecretStr | None) -> tuple[str, str]:
    """The text to show and the text to match (with error codes), both redacted."""
    text = body.decode("utf-8", "replace")
    if is_markup(body):
        title = _TITLE.search(text)
        shown = matched = title.group(1) if title else "a web page"
    else:
        try:
            parts = list(_texts(json.loads(text)))
        except (ValueError, RecursionError):
            parts = [text]
        shown = parts[0] if parts else ""
        matched = " | ".join(parts)
    return one_line(redact(shown, key)), one_line(redact(matched, key), 2000)


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Every text of an error body, the message proper first; codes and parameters follow."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth < 4:
        for item in value:
            yield from _texts(item, depth + 1)
    elif isinstance(value, dict) and depth < 4:
        known = (
            "error",
            "message",
            "detail",
            "msg",
            "metadata",
            "raw",
            "code",
            "type",
            "error_type",
            "param",
        )
        for name in (*known, "loc", "errors", "error_description", "reason"):
            yield from _texts(value.get(name), depth + 1)


def excerpt(body: bytes, key: SecretStr | None) -> str:
    """The beginning of a body, quoted."""
    return repr(one_line(redact(body[:400].decode("utf-8", "replace"), key), 80))
