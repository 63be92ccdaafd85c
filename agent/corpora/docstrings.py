"""The words that a definition begins with: Python's docstring, elsewhere the comment above it."""

from __future__ import annotations

import re

MAX_CHARS = 4_000
"""Of one docstring; what follows is an example or a table."""

_OPENING = re.compile(r"(?:\s|#[^\n]*+\n)*+[rRuU]?(\"\"\"|'''|\"|')")
_MARK = re.compile(r"^\s*+(?:/{2,}+!?|/\*++!?|\*++/?|#++|-{2,}+|;++)[ \t]?")
_CLOSING_MARK = re.compile(r"\s*+\*++/\s*+$")
_TAG = re.compile(r"</?[A-Za-z][^<>\n]{0,80}/?>")
_TAGGED = frozenset({"csharp", "java", "javascript", "typescript", "tsx", "php"})


def docstring_of(code: str, signature: str, language: str) -> str:
    """What the definition says of itself, without marks of comments; "" for nothing.

    `code` is the text of a chunk, which holds the `signature` and the comment above it.
    """
    at = code.find(signature) if signature else -1
    if at < 0:
        return ""
    if language == "python":
        return _quoted(code[at + len(signature) :])
    text = _uncommented(code[:at])
    return _TAG.sub("", text).strip()[:MAX_CHARS] if language in _TAGGED else text


def first_sentence(docstring: str) -> str:
    """The first sentence of the first paragraph, in one line, without the full stop."""
    paragraph = " ".join(docstring.strip().split("\n\n", 1)[0].split())
    return re.split(r"(?<=[.!?])\s", paragraph, maxsplit=1)[0].rstrip(".!? ")


def _quoted(body: str) -> str:
    found = _OPENING.match(body)
    if found is None:
        return ""
    quote = found.group(1)
    end = body.find(quote, found.end())
    text = body[found.end() : end if end >= 0 else None]
    if len(quote) == 1 and "\n" in text:
        return ""
    return _dedented(text)


def _dedented(text: str) -> str:
    first, *rest = text.strip()[:MAX_CHARS].split("\n")
    depth = min((len(s) - len(s.lstrip()) for s in rest if s.strip()), default=0)
    return "\n".join([first.strip(), *(line[depth:].rstrip() for line in rest)]).strip()


def _uncommented(lead: str) -> str:
    lines = [_CLOSING_MARK.sub("", _MARK.sub("", line)).rstrip() for line in lead.split("\n")]
    return "\n".join(lines).strip()[:MAX_CHARS]
