"""Renders what the model is sent, from the templates in `prompts/`.

Issue text, repository text and test output are data: they stand between tags, and a closing tag
inside the issue or a result is defused, so that data cannot pose as instructions. Secrets in them
are masked. Repository text stays byte for byte otherwise, or the model could not copy from it: its
fences are longer than any run of backticks it holds, and where it holds the closing tag itself the
model is told that only the last one counts.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from agent.result import Attempt
from agent.secrets.masking import mask_secrets
from agent.types import (
    ContextBundle,
    Edit,
    EditFailure,
    Message,
    Problem,
    Prompt,
    SearchReplace,
)

if TYPE_CHECKING:
    import jinja2

    from agent.protocols import TokenCounter
    from agent.validation.choosing.hints import TestHints

# The framing that chat formats add to each message and to the reply (OpenAI's cookbook says 3-4).
_TOKENS_A_MESSAGE = 6

# A failure report longer than this (in tokens) hides its point; the head says what, the tail how.
FAILURE_TOKENS = 2500

# Regions shown of one failed edit at first; fewer where the report would become too long.
_MOST_REGIONS = 3

# Characters of the first line of a search text that name the edit.
_SEARCH_SHOWN = 120

# A previous reply is repeated to the model; one that ran away is cut here.
PREVIOUS_REPLY_TOKENS = 6000

# As a model may read them: with space or invisible characters inside, in full width.
_GAP = r"[\s\u00ad\u200b-\u200f\u2060-\u2064\ufeff]*"
_SLASH = rf"{_GAP}[/\uff0f]{_GAP}"
_CLOSING_TAG = re.compile(
    rf"[<\uff1c](?={_SLASH}(?:issue|context|result|failure)\b)", re.IGNORECASE
)
_CLOSES_CONTEXT = re.compile(rf"[<\uff1c]{_SLASH}context{_GAP}[>\uff1e]", re.IGNORECASE)

_HEADINGS = {
    "no-edit": "It asked for no edit.",
    "unparseable": "It could not be read as the JSON object that was asked for.",
    "not-applied": "At least one edit could not be applied, so none was.",
    "broken": "The edits apply, but they do not hold up when checked.",
    "suspect": "The edits apply, but what their tests report cannot be believed.",
}


def render(template: str, **values: object) -> str:
    """Render `prompts/<template>.md.j2`. Raises jinja2.UndefinedError for a missing value."""
    return _environment().get_template(f"{template}.md.j2").render(**values).strip()


def make_prompt(messages: Sequence[Message], counter: TokenCounter) -> Prompt:
    """Count and hash messages. The hash covers roles and contents only, never the model's name."""
    canonical = json.dumps([[m.role, m.content] for m in messages], ensure_ascii=False)
    tokens = sum(counter.count(m.content) + _TOKENS_A_MESSAGE for m in messages)
    digest = hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()
    return Prompt(tuple(messages), digest, tokens)


def solve_prompt(
    problem: Problem, bundle: ContextBundle, tests: TestHints, counter: TokenCounter
) -> Prompt:
    """The prompt of the one call."""
    user = render(
        "solve",
        issue=as_data(problem.text),
        context=bundle.text,
        tests=tests,
        closes=_CLOSES_CONTEXT.search(bundle.text) is not None,
        signatures=any(piece.form == "signatures" for piece in bundle.pieces),
        reply_format=render("reply_format"),
    )
    return make_prompt([Message("system", render("system")), Message("user", user)], counter)


def repair_prompt(
    previous: Prompt, attempt: Attempt, extra_context: str, counter: TokenCounter
) -> Prompt:
    """The conversation so far, the reply, and why it was not accepted."""
    reply = attempt.completion.text if attempt.completion else ""
    request = render(
        "repair",
        heading=_HEADINGS[attempt.status.value],
        failure=as_data(describe_failure(attempt, counter)),
        extra_context=extra_context,
        closes=_CLOSES_CONTEXT.search(extra_context) is not None,
        discarded=attempt.patch is not None,
    )
    said = counter.truncate(reply, PREVIOUS_REPLY_TOKENS).strip() or "(an empty reply)"
    return make_prompt(
        [*previous.messages, Message("assistant", said), Message("user", request)], counter
    )


def describe_failure(attempt: Attempt, counter: TokenCounter) -> str:
    """Why an attempt failed, for a model: the reason, and for edits the closest regions."""
    if attempt.apply_failure is None:
        failure = attempt.parse_failure
        return _shorten(failure.told if failure else attempt.reason, counter)
    failures = attempt.apply_failure.failures
    edits = attempt.proposal.edits if attempt.proposal else ()
    for regions in range(_MOST_REGIONS, -1, -1):
        text = "\n\n".join(_describe_edit(failure, edits, regions) for failure in failures)
        if counter.count(text) <= FAILURE_TOKENS:
            return text
    return _shorten(text, counter)


def iterative_start(
    problem: Problem,
    bundle: ContextBundle,
    history: str,
    *,
    max_steps: int,
    max_read_lines: int,
    find: bool = False,
) -> tuple[Message, Message]:
    """The two messages that open the iterative mode."""
    system = render(
        "iterative_system", max_steps=max_steps, max_read_lines=max_read_lines, find=find
    )
    user = render(
        "iterative_start",
        issue=as_data(problem.text),
        context=bundle.text,
        closes=_CLOSES_CONTEXT.search(bundle.text) is not None,
        history=as_data(history),
    )
    return Message("system", system), Message("user", user)


def iterative_result(result: str, *, steps_left: int) -> Message:
    """The message that shows the result of an action."""
    return Message(
        "user", render("iterative_result", result=as_data(result), steps_left=steps_left)
    )


def _describe_edit(failure: EditFailure, edits: Sequence[Edit], regions: int) -> str:
    """One failed edit: what it was, why it failed, and at most so many regions of the file."""
    lines = [f"edit {failure.index + 1} ({failure.path}): {failure.reason}"]
    if failure.index < len(edits):
        lines.extend(_quoted_search(edits[failure.index]))
    for candidate in failure.candidates[:regions]:
        where = f"{candidate.path}, lines {candidate.start}-{candidate.end}"
        what = f"closest text in {where} ({candidate.similarity:.0%} alike)"
        if failure.kind == "ambiguous":
            what = f"one of the places, with its neighbours: {where}"
        fence = "`" * max(3, max(map(len, re.findall("`+", candidate.text)), default=0) + 1)
        lines.append(f"{what}:\n{fence}\n{candidate.text}\n{fence}")
    return "\n".join(lines)


def _quoted_search(edit: Edit) -> Iterator[str]:
    """The first line of what an edit looked for, by which a model knows it again."""
    first = edit.search.strip("\n").split("\n")[0] if isinstance(edit, SearchReplace) else ""
    if first.strip():
        cut = "..." if len(first) > _SEARCH_SHOWN else ""
        yield f"its search text begins: {first[:_SEARCH_SHOWN]}{cut}"


def _shorten(text: str, counter: TokenCounter) -> str:
    if counter.count(text) <= FAILURE_TOKENS:
        return text
    head = counter.truncate(text, FAILURE_TOKENS // 2)
    tail = text[-len(head) :]
    return f"{head}\n[...]\n{tail}"


def as_data(text: str) -> str:
    """Text that goes between tags: it closes none of them, and its secrets are masked."""
    return _CLOSING_TAG.sub(r"<\\", mask_secrets(text).text)


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("prompts", "."),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701  (prompts are plain text, not HTML)
        trim_blocks=True,
        lstrip_blocks=False,
        keep_trailing_newline=False,
    )
