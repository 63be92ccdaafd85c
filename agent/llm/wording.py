"""The text of a server's error, made fit to print: one line, without keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic import SecretStr

from agent.llm.redaction import BASIC_FORM

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
        known = ("error", "message", "detail", "msg", "metadata", "raw", "code", "type", "param")
        for name in (*known, "loc", "errors", "error_description", "reason"):
            yield from _texts(value.get(name), depth + 1)


def excerpt(body: bytes, key: SecretStr | None) -> str:
    """The beginning of a body, quoted."""
    return repr(one_line(redact(body[:400].decode("utf-8", "replace"), key), 80))
