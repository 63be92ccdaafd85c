"""Renders prompts from the templates in `prompts/`.

Issue text, repository text and test output are data. They stand between tags, and a closing tag
inside an issue or a result is escaped, so that data cannot pose as instructions. Secrets are
masked. Otherwise repository text is unchanged, since the model copies from it: its fences are
longer than any run of backticks in it, and if it has the closing tag itself, the model is told that
only the last one counts.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.result import Attempt
from agent.secrets import mask_secrets
from agent.settings import CODE_ROUNDS
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

    from agent.context import AskedCode
    from agent.protocols import TokenCounter
    from agent.validation import TestHints

# Tokens that chat formats add to each message and to the reply (3 to 4 in the OpenAI cookbook).
_TOKENS_A_MESSAGE = 6

# Longest failure report, in tokens. A longer one is cut in the middle.
FAILURE_TOKENS = 2500

# Regions shown of one failed edit, or fewer if the report becomes too long.
_MOST_REGIONS = 3

# Characters of the first line of a search text that name the edit.
_SEARCH_SHOWN = 120

# The previous reply is repeated to the model up to this length.
PREVIOUS_REPLY_TOKENS = 6000

# Closing tags as a model may read them: with blanks or invisible characters, or in full width.
_GAP = r"[\s\u00ad\u200b-\u200f\u2060-\u2064\ufeff]*"
_SLASH = rf"{_GAP}[/\uff0f]{_GAP}"
_CLOSING_TAG = re.compile(
    rf"[<\uff1c](?={_SLASH}(?:issue|context|result|failure|comment)\b)", re.IGNORECASE
)
_CLOSES_CONTEXT = re.compile(rf"[<\uff1c]{_SLASH}context{_GAP}[>\uff1e]", re.IGNORECASE)

_HEADINGS = {
    "no-edit": "It asked for no edit.",
    "unparseable": "It could not be read as the JSON object that was asked for.",
    "not-applied": "At least one edit could not be applied, so none was.",
    "already-fixed": "The files hold every replacement already, so nothing would change.",
    "broken": "The edits apply, but they do not hold up when checked.",
    "suspect": "The edits apply, but what their tests report cannot be believed.",
}


def render(template: str, **values: object) -> str:
    """Render `prompts/<template>.md.j2`. Raises jinja2.UndefinedError for a missing value."""
    return _environment().get_template(f"{template}.md.j2").render(**values).strip()


def make_prompt(messages: Sequence[Message], counter: TokenCounter) -> Prompt:
    """Count and hash messages. The hash covers roles and contents, not the name of the model."""
    canonical = json.dumps([[m.role, m.content] for m in messages], ensure_ascii=False)
    tokens = sum(counter.count(m.content) + _TOKENS_A_MESSAGE for m in messages)
    digest = hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()
    return Prompt(tuple(messages), digest, tokens)


def solve_prompt(
    problem: Problem, bundle: ContextBundle, tests: TestHints, counter: TokenCounter
) -> Prompt:
    """Return the prompt of the first call."""
    user = render(
        "solve",
        issue=as_data(problem.text),
        context=bundle.text,
        tests=tests,
        closes=_CLOSES_CONTEXT.search(bundle.text) is not None,
        signatures=any(piece.form == "signatures" for piece in bundle.pieces),
        reply_format=render("reply_format", rounds=CODE_ROUNDS),
    )
    return make_prompt([Message("system", render("system")), Message("user", user)], counter)


def code_prompt(
    previous: Prompt, attempt: Attempt, code: AskedCode, rounds_left: int, counter: TokenCounter
) -> Prompt:
    """Return the previous prompt with the reply and the code that it asked for.

    `rounds_left`: how often the next replies may ask for more. The messages so far stay as they
    are, so that a provider's prompt cache has them.
    """
    failure = attempt.parse_failure
    request = render(
        "more_code",
        code=_rendered(code),
        closes=_CLOSES_CONTEXT.search(code.text) is not None,
        rounds_left=rounds_left,
        test=failure is not None and failure.reproduction_test is not None,
    )
    return _with_turn(previous.messages, _reply(attempt), request, counter)


def with_code(bundle: ContextBundle, code: AskedCode) -> ContextBundle:
    """Return a context with the code that replies asked for at its end."""
    text = f"{bundle.text}\n{_rendered(code)}".strip()
    budget = bundle.budget + code.tokens
    return replace(bundle, text=text, tokens=bundle.tokens + code.tokens, budget=budget)


def _rendered(code: AskedCode) -> str:
    notes = "\n".join(f"- {as_data(note)}" for note in code.notes)
    return "\n\n".join(part.strip("\n") for part in (code.text, notes) if part)


def _reply(attempt: Attempt) -> str:
    return attempt.completion.text if attempt.completion else ""


def repair_prompt(
    previous: Prompt, attempt: Attempt, code: AskedCode, counter: TokenCounter
) -> Prompt:
    """Return the previous prompt with the reply, why it was not accepted, and code it lacked."""
    extra_context = _rendered(code)
    request = render(
        "repair",
        comment="",
        diff="",
        asked=attempt.asks_for_code,
        heading=_HEADINGS[attempt.status.value],
        failure=as_data(describe_failure(attempt, counter)),
        extra_context=extra_context,
        closes=_CLOSES_CONTEXT.search(extra_context) is not None,
        discarded=attempt.patch is not None,
    )
    return _with_turn(previous.messages, _reply(attempt), request, counter)


def retry_prompt(
    previous: Sequence[Message],
    reply: str,
    comment: str,
    counter: TokenCounter,
    *,
    status: str,
    reason: str,
    diff: str,
) -> Prompt:
    """Return the prompt that repeats a kept conversation and adds the user's comment.

    `status` and `reason` say how the reply was judged. `diff` is the best patch if it is not that
    of the reply, else "".
    """
    request = render(
        "repair",
        comment=as_data(comment),
        asked=False,
        heading=_HEADINGS.get(status, ""),
        failure=as_data(_shorten(reason, counter)),
        diff=as_data(counter.truncate(diff, PREVIOUS_REPLY_TOKENS)),
        extra_context="",
        closes=False,
        discarded=True,
    )
    return _with_turn(previous, reply, request, counter)


def _with_turn(
    previous: Sequence[Message], reply: str, request: str, counter: TokenCounter
) -> Prompt:
    said = counter.truncate(reply, PREVIOUS_REPLY_TOKENS).strip() or "(an empty reply)"
    return make_prompt([*previous, Message("assistant", said), Message("user", request)], counter)


def describe_failure(attempt: Attempt, counter: TokenCounter) -> str:
    """Describe for a model why an attempt failed, with the closest regions of failed edits."""
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
    """Return the two messages that begin the iterative mode."""
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
    """Return the message with the result of an action."""
    return Message(
        "user", render("iterative_result", result=as_data(result), steps_left=steps_left)
    )


def _describe_edit(failure: EditFailure, edits: Sequence[Edit], regions: int) -> str:
    """Describe one failed edit with at most `regions` regions of the file."""
    lines = [f"edit {failure.index + 1} ({failure.path}): {failure.told}"]
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
    """Return the first line of the search text, by which a model recognises the edit."""
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
    """Return text that can stand between tags: closing tags are escaped, secrets masked."""
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
