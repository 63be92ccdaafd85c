"""The commit message and the description of a pull request.

The title and the model's explanation are untrusted: on GitHub and GitLab a text can close issues,
call people, skip checks and run commands. So the message loses such words, and the description has
foreign text in code blocks only, where they mean nothing.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from agent.run.record import RunRecord, TestCounts

_SUBJECT = 72  # characters of a subject line that tools show whole
_THOUGHT = 2_000
_TESTS = 20
_LINE = 300
# GitHub takes 65,536 characters of a comment or a description.
_MOST = 60_000

_REFERENCE = re.compile(r"(#|GH-|/(?:issues|pull|merge_requests|work_items)/)(?=\d)", re.IGNORECASE)
_SKIP = re.compile(r"\[((?:skip|no)[ -](?:ci|actions)|(?:ci|actions) skip)\]", re.IGNORECASE)
_ISSUE = re.compile(r"[\w.-]+/[\w.-]+#\d+|https?://[^\s?#]+/(?:issues|work_items)/\d+/?")


def commit_message(title: str, thought: str, source: str) -> str:
    """Return the message of a commit for an issue: its title, the explanation, the issue's name."""
    subject = _plain(" ".join(title.split())) or "the issue"
    first = textwrap.shorten(f"Fix: {subject}", _SUBJECT, placeholder="…")
    paragraphs = (" ".join(part.split()) for part in _plain(thought)[:_THOUGHT].split("\n\n"))
    body = [textwrap.fill(part, _SUBJECT) for part in paragraphs if part]
    return "\n\n".join([first, *body, *([f"Fixes {source}"] if is_issue(source) else [])]) + "\n"


def is_issue(source: str) -> bool:
    """Whether the source of a problem is an issue on GitHub or GitLab."""
    return _ISSUE.fullmatch(source) is not None


def describe_result(result: RunRecord, *, with_diff: bool = False) -> str:
    """Return what a run found as Markdown: the verdict, the tests before and after, the cost.

    `with_diff` adds the diff, at most as much of it as a comment can hold.
    """
    ended = (result.verdict or result.status.value).upper().replace("_", "-")
    parts = [f"**{ended}**", fenced(result.message)]
    found = result.deciding
    if found is not None:
        parts += _tests("Failed before and pass now", found.fail_to_pass or found.newly_passing)
        parts += _tests("Fail now and passed before", found.newly_failing)
        runs = (
            ("tests of the project", found.before, found.after),
            ("test of the issue", found.reproduction_before, found.reproduction_after),
        )
        parts += ["\n".join(_table(runs))] if any(run for _, *both in runs for run in both) else []
    if result.dirty:
        parts.append("The tests ran with uncommitted changes, which are not in the commit.")
    if result.thought:
        parts += ["The model's explanation:", fenced(result.thought[:_THOUGHT])]
    parts.append(_cost(result))
    if result.issue and is_issue(result.issue.source) and not with_diff:
        parts.append(f"Fixes {result.issue.source}")
    text = "\n\n".join(parts)
    if with_diff and result.diff:
        room = max(0, _MOST - len(text))
        cut = "\n[cut off]" if len(result.diff) > room else ""
        text += f"\n\nThe best patch:\n\n{fenced(result.diff[:room] + cut, 'diff')}"
    return f"{text}\n"


def fenced(text: str, language: str = "text") -> str:
    """Return untrusted text as a code block, which it cannot end."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    clean = "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)
    return f"{fence}{language}\n{clean.strip(chr(10))}\n{fence}"


def _plain(text: str) -> str:
    """Return untrusted text without words that a forge acts on."""
    clean = "".join(c if c.isprintable() or c == "\n" else " " for c in text)
    return _SKIP.sub(r"(\1)", _REFERENCE.sub(r"\1 ", clean)).strip()


def _tests(heading: str, names: Sequence[str]) -> Iterator[str]:
    if names:
        more = [f"and {len(names) - _TESTS:,} more"] if len(names) > _TESTS else []
        yield f"{heading}:"
        yield fenced("\n".join([*(name[:_LINE] for name in names[:_TESTS]), *more]))


def _table(runs: Sequence[tuple[str, TestCounts | None, TestCounts | None]]) -> Iterator[str]:
    yield "| | before | after |"
    yield "|---|---|---|"
    for name, before, after in runs:
        if before or after:
            yield f"| {name} | {_counts(before)} | {_counts(after)} |"


def _counts(run: TestCounts | None) -> str:
    return "not run" if run is None else f"{run.passed:,} passed, {run.failed:,} failed"


def _cost(result: RunRecord) -> str:
    used = result.usage
    tokens = used.input_tokens + used.output_tokens
    price = "" if used.cost_usd is None else f", ${used.cost_usd:.4f}"
    calls = f"{used.calls} call{'s' * (used.calls != 1)}"
    model = re.sub(r"[^\w./:-]", "?", result.model or "")
    return (
        f"Made by patchshot: {calls}{f' of `{model}`' if model else ''}, {tokens:,} tokens{price}."
    )
