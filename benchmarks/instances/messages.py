"""From a commit's message to the text of an issue, where it tells what went wrong. Pure."""

from __future__ import annotations

import re

from training.messages import clean_message

LEAST_CHARS = 40
_LEAST_WORDS = 15
"""Of a description below its subject; a shorter one names a place, not a fault."""

_BULLET = re.compile(r"\s*[*+-]\s")
_NOTE_WORDS = 9

# Words of somebody who saw a program misbehave.
_SYMPTOM = re.compile(
    r"""\b(?: crash\w* | rais(?:e|es|ed|ing) | traceback | exceptions? | errors? | wrong\w*
      | incorrect\w* | fail(?:s|ed|ing|ures?)? | hang(?:s|ing)? | hung | leak\w* | lost | loses?
      | losing | ignor(?:e[sd]?|ing) | regress\w* | broken | breaks? | bugs? | instead\ of
      | no\ longer | never | not\ \w+ | doesn['’]t | wasn['’]t | didn['’]t | isn['’]t | can['’]t
      | couldn['’]t | would | duplicat\w+ | missing | invalid | unexpected\w* | deadlock\w* | race
      | infinite | stuck | corrupt\w* | mangle[sd]? | truncat\w+ | swallow\w* | silently
      | [A-Z]\w+Error
    )\b""",
    re.VERBOSE,
)

# Another text that the reader does not have.
_OTHER = (
    r"(?:(?:[\w.-]+/[\w.-]+)?\#\d+|\b(?:gh-|issue\ \#?|PR\ \#?|ticket\ \#?)\d+\b"
    r"|<?https?://\S*/(?:pulls?|issues?|commit|merge_requests|ticket|bugs?)/[^\s),>]+>?"
    r"|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b)"
)
_REFERENCE = re.compile(_OTHER, re.IGNORECASE)
_VERB = (
    r"(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?|references?|refs?|see(?:\ also)?|related\ to"
    r"|part\ of)"
)
_IN_BRACKETS = re.compile(rf"\s*\((?:{_VERB}:?\ *)?{_OTHER}(?:,?\ *{_OTHER})*\)", re.IGNORECASE)
_ELSEWHERE = "[elsewhere]"
# A line that is left of a reference: it says nothing by itself.
_REMAINS = re.compile(
    rf"(?:[\s*,.:;&()-]|\[elsewhere\]|\b(?:{_VERB}|and|this|issues?|ticket|pull-request(?:-sha)?)\b)*",
    re.IGNORECASE,
)
# What squashed pull requests say of the work on them, not of the fault.
_WORK = re.compile(
    r"\s*[*+-]\s+(?=.{0,80}$)(?:.*\b(?:tests?|changelog|news|review\w*|lint\w*|format\w*|mypy|ruff"
    r"|black|pre-commit|typos?|docs?|comments?|nits?|rebase\w*|coverage)\b.*"
    r"|(?:update|rename|clean|address|apply|merge|simplify|refactor|move)\b.*)",
    re.IGNORECASE,
)
# The bot's or the reviewers' part of a message begins here.
_REST = re.compile(r"-{3,}\s*|(?:co-authored|signed-off|reviewed)-by:.*", re.IGNORECASE)


def describe(raw: str, project: str) -> str | None:
    """The message as the text of an issue; None where it does not say what went wrong.

    `project` is the name without owner. Trailers, references, links and ids of commits are left
    out, and so is what squashed commits say of tests, reviews and changelogs.
    """
    message = clean_message(raw, project)
    if message is None or not message.fix:
        return None
    lines = [_without_references(line) for line in _told(message.text.split("\n"))]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    # A subject alone is a headline: it says what was done, seldom what was seen.
    body = "\n".join(line for line in text.split("\n")[1:] if not _is_note(line)).strip()
    if len(body) < LEAST_CHARS or len(body.split()) < _LEAST_WORDS or not _SYMPTOM.search(text):
        return None
    return text + "\n"


def _is_note(line: str) -> bool:
    """Whether a line is a bullet too short to describe anything: a commit among those squashed."""
    return _BULLET.match(line) is not None and len(line.split()) <= _NOTE_WORDS


def _told(lines: list[str]) -> list[str]:
    """The lines up to the part of machines, without those about the work."""
    end = next((at for at, line in enumerate(lines) if _REST.fullmatch(line.strip())), len(lines))
    return [line for line in lines[:end] if not _WORK.fullmatch(line)]


def _without_references(line: str) -> str:
    short = _REFERENCE.sub(_ELSEWHERE, _IN_BRACKETS.sub("", line)).rstrip()
    return "" if _REMAINS.fullmatch(short) else short
