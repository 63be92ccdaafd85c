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
from typing import TYPE_CHECKING, Any

from agent.patching import edit_as_json, outdated_as_json
from agent.run.attempts import Attempt
from agent.settings import CODE_ROUNDS, OutdatedMode
from agent.shared.secrets import mask_secrets
from agent.shared.terminal import fence_around
from agent.types import (
    Completion,
    ContextBundle,
    Edit,
    EditFailure,
    Message,
    Problem,
    Prompt,
    SearchReplace,
    ToolDialogue,
    ValidationReport,
)
from agent.verify import NOT_RUN

if TYPE_CHECKING:
    import jinja2

    from agent.retrieval.context import AskedCode
    from agent.types.protocols import TokenCounter
    from agent.verify import TestHints

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

# Lines of a failure of the reproduction test that are shown.
_LOG_LINES = 20

# Closing tags as a model may read them: with blanks or invisible characters, or in full width.
_GAP = r"[\s\u00ad\u200b-\u200f\u2060-\u2064\ufeff]*"
_SLASH = rf"{_GAP}[/\uff0f]{_GAP}"
_CLOSING_TAG = re.compile(
    rf"[<\uff1c](?={_SLASH}(?:issue|context|result|failure|comment)\b)", re.IGNORECASE
)
_CLOSES_CONTEXT = re.compile(rf"[<\uff1c]{_SLASH}context{_GAP}[>\uff1e]", re.IGNORECASE)

# A reply that could not be applied is repeated whole up to this length.
_SHORT_REPLY_TOKENS = 1500

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


def make_prompt(
    messages: Sequence[Message], counter: TokenCounter, dialogue: ToolDialogue | None = None
) -> Prompt:
    """Count and hash messages. The hash covers roles and contents, not the name of the model.

    `dialogue` says the same; it is neither counted nor hashed.
    """
    canonical = json.dumps([[m.role, m.content] for m in messages], ensure_ascii=False)
    tokens = sum(counter.count(m.content) + _TOKENS_A_MESSAGE for m in messages)
    digest = hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()
    return Prompt(tuple(messages), digest, tokens, dialogue)


def solve_prompt(
    problem: Problem,
    bundle: ContextBundle,
    tests: TestHints,
    counter: TokenCounter,
    outdated: OutdatedMode = "show",
) -> Prompt:
    """Return the prompt of the first call. `outdated`: what tests called outdated are for."""
    reply_format = render("reply_format", rounds=CODE_ROUNDS, new_test=tests.new, outdated=outdated)
    return _first_prompt(problem, bundle, tests, counter, render("system"), reply_format)


def reproduction_prompt(
    problem: Problem, bundle: ContextBundle, tests: TestHints, counter: TokenCounter
) -> Prompt:
    """Return the prompt that asks for a test of the issue, without a patch."""
    system, reply_format = render("another_test_system"), render("reproduce", new_test=tests.new)
    return _first_prompt(problem, bundle, tests, counter, system, reply_format)


def second_reproduction_prompt(
    previous: Prompt, completion: Completion, reason: str, output: str, counter: TokenCounter
) -> Prompt:
    """Return that prompt with the reply, and what its test did on the base."""
    log = as_data(_shorten(output, counter))
    request = render("reproduce_again", reason=as_data(reason), log=log)
    return _with_turn(previous.messages, completion.text, request, counter)


def _first_prompt(
    problem: Problem,
    bundle: ContextBundle,
    tests: TestHints,
    counter: TokenCounter,
    system: str,
    reply_format: str,
) -> Prompt:
    user = render(
        "solve",
        issue=as_data(problem.text),
        context=bundle.text,
        tests=tests,
        closes=_CLOSES_CONTEXT.search(bundle.text) is not None,
        signatures=any(piece.form == "signatures" for piece in bundle.pieces),
        reply_format=reply_format,
    )
    return make_prompt([Message("system", system), Message("user", user)], counter)


def code_prompt(
    previous: Prompt, attempt: Attempt, code: AskedCode, rounds_left: int, counter: TokenCounter
) -> Prompt:
    """Return the previous prompt, unchanged for the prompt cache, with the reply and the code."""
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
    previous: Prompt,
    attempt: Attempt,
    code: AskedCode,
    counter: TokenCounter,
    *,
    rounds_left: int = 0,
    outdated: bool = False,
) -> Prompt:
    """Return the previous prompt with the reply, why it was not accepted, and code it lacked.

    `rounds_left`: how often the reply may ask for code. `outdated`: tests that the reply calls
    outdated may count.
    """
    if attempt.is_cut_off:
        begun = _reply(attempt).rstrip()
        turn = [Message("assistant", begun), Message("user", render("continue_reply"))]
        return make_prompt([*_without_parts(previous.messages), *turn], counter)
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
        outdated=outdated and bool(attempt.report and attempt.report.newly_failing),
        partial=attempt.proposal is not None,
        rounds_left=rounds_left,
    )
    if attempt.proposal is None:
        return _with_turn(previous.messages, _reply(attempt), request, counter)
    before = [_superseded(message) for message in _without_parts(previous.messages)]
    return _with_turn(before, _numbered(attempt, counter), request, counter)


def _numbered(attempt: Attempt, counter: TokenCounter) -> str:
    """Return the reply with all of its edits, numbered, whatever it took over from earlier ones.

    Of a long reply that could not be applied, edits that could be are only named.
    """
    proposal = attempt.proposal
    assert proposal is not None
    test, failure = proposal.reproduction_test, attempt.apply_failure
    failed = {one.index for one in failure.failures} if failure else set()
    edits = [{"edit": n, **edit_as_json(edit)} for n, edit in enumerate(proposal.edits, 1)]
    said: dict[str, Any] = {"thought": proposal.thought, "edits": edits}
    if test is not None:
        said["reproduction_test"] = {"path": test.path, "content": test.content}
    if proposal.outdated_tests:
        said["outdated_tests"] = [*map(outdated_as_json, proposal.outdated_tests)]
    text = json.dumps(said, ensure_ascii=False)
    if failure is None or counter.count(text) <= _SHORT_REPLY_TOKENS:
        return text
    named = [
        edit if n in failed else {"edit": edit["edit"], "path": edit["path"], "applies": True}
        for n, edit in enumerate(edits)
    ]
    return json.dumps({"thought": proposal.thought, "edits": named}, ensure_ascii=False)


def _without_parts(messages: Sequence[Message]) -> list[Message]:
    """Leave out the parts of replies that were continued: what follows has them joined."""
    asked = Message("user", render("continue_reply"))
    ends = {index for index, message in enumerate(messages) if message == asked}
    return [m for index, m in enumerate(messages) if not {index, index + 1} & ends]


def _superseded(message: Message) -> Message:
    """Return an earlier reply with edits as its thought: the next reply has all of its edits."""
    if message.role != "assistant" or not message.content.startswith('{"thought": '):
        return message
    try:
        said = json.loads(message.content)
    except (ValueError, RecursionError):
        return message
    if not (isinstance(said, dict) and isinstance(said.get("edits"), list) and said["edits"]):
        return message
    short = {"thought": said.get("thought"), "edits": "as your next reply has them"}
    return Message("assistant", json.dumps(short, ensure_ascii=False))


def another_test_prompt(
    problem: Problem, done: Attempt, hints: TestHints, counter: TokenCounter
) -> Prompt:
    """Return the prompt that asks for another reproduction test of an accepted patch."""
    assert done.patch is not None
    diff = done.patch.diff.decode("utf-8", "replace")
    test = done.proposal.reproduction_test if done.proposal else None
    user = render(
        "another_test",
        issue=as_data(problem.text),
        diff=as_data(counter.truncate(diff, PREVIOUS_REPLY_TOKENS)),
        path=test.path if test else "",
        test=as_data(test.content) if test else "",
        happened=as_data(_what_happened(done)),
        log=as_data(_shorten(_log_excerpt(done.report), counter)) if done.report else "",
        hints=hints,
        excerpt=as_data(hints.excerpt),
    )
    system = render("another_test_system")
    return make_prompt([Message("system", system), Message("user", user)], counter)


def _what_happened(done: Attempt) -> str:
    """Return why the reproduction test was not run, or else why the patch is not verified."""
    notes = done.report.notes if done.report else ()
    refused = (note for note in notes if note.startswith(NOT_RUN))
    return next(refused, done.reason.partition("\n")[0])


def _log_excerpt(report: ValidationReport) -> str:
    """Return the end of one failure of the reproduction test, or of a run without outcomes."""
    for run in filter(None, (report.reproduction_after, report.reproduction_before)):
        texts = [run.output_tail] if not run.outcomes else [*run.failures.values()]
        if any(texts):
            return "\n".join(texts[0].rstrip().splitlines()[-_LOG_LINES:])
    return ""


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
    """Return a kept conversation with the user's comment. `diff`: a best patch that is another."""
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
        outdated=False,
        partial=False,
        rounds_left=CODE_ROUNDS,
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


def iterative_start(problem: Problem, bundle: ContextBundle, history: str, kept: int = 0) -> str:
    """Return the message that begins the iterative mode.

    `kept`: the reply, counted from 1, whose edits are in the files; 0 for none.
    """
    return render(
        "iterative_start",
        issue=as_data(problem.text),
        context=bundle.text,
        closes=_CLOSES_CONTEXT.search(bundle.text) is not None,
        history=as_data(history),
        kept=kept,
    )


def _describe_edit(failure: EditFailure, edits: Sequence[Edit], regions: int) -> str:
    lines = [f"edit {failure.index + 1} ({failure.path}): {failure.told}"]
    if failure.index < len(edits):
        lines.extend(_quoted_search(edits[failure.index]))
    for candidate in failure.candidates[:regions]:
        where = f"{candidate.path}, lines {candidate.start}-{candidate.end}"
        what = f"closest text in {where} ({candidate.similarity:.0%} alike)"
        if failure.kind == "ambiguous":
            what = f"one of the places, with its neighbours: {where}"
        fence = fence_around(candidate.text)
        lines.append(f"{what}:\n{fence}\n{candidate.text}\n{fence}")
    return "\n".join(lines)


def _quoted_search(edit: Edit) -> Iterator[str]:
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
