"""Words the results of actions for the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.iterative.actions import Region
from agent.types import BAD_OUTCOMES, AppliedEdit, CommandRun, MatchTier, Outcome, TestRun
from agent.verify import failure_texts

MAX_READ_LINES = 250  # lines that one `read` shows: about 2,500 tokens
MAX_LIST_ENTRIES = 200  # entries that one `list` shows
_OUTPUT_SHOWN = 8_000  # characters of a command's output: about 2,000 tokens
_PATHS_SHOWN = 3  # paths of one kind that a command changed


def list_entries(paths: Sequence[str], prefix: str) -> str:
    """All paths if they are few, else the next level only, with counts."""
    if len(paths) <= MAX_LIST_ENTRIES:
        return "\n".join(paths)
    counts: dict[str, int] = {}
    for path in paths:
        head, slash, _ = path[len(prefix) :].partition("/")
        counts[head + slash] = counts.get(head + slash, 0) + 1
    lines = [
        f"{prefix}{name} ({count} files)" if name.endswith("/") else prefix + name
        for name, count in sorted(counts.items())
    ]
    return "\n".join(list_lines(lines, MAX_LIST_ENTRIES))


def list_lines(lines: Sequence[str], limit: int) -> list[str]:
    """At most `limit` lines, and how many more there are."""
    more = len(lines) - limit
    return [*lines] if more <= 0 else [*lines[:limit], f"... and {more} more"]


def show_region(region: Region, lines: Sequence[str], end: int, wanted: int, state: str) -> str:
    """Numbered lines of a file whose state has the hash `state`."""
    if end < region.start:
        return f"{region.path}: not shown, {MAX_READ_LINES} lines are the most; read it next"
    numbered = enumerate(lines[region.start - 1 : end], region.start)
    shown = "\n".join(f"{number}\t{line}" for number, line in numbered)
    cut = f"\n[cut: go on at line {end + 1}]" if end < wanted else ""
    return f"### {region.path}:L{region.start}-{end} of {len(lines)} #{state}\n{shown}{cut}"


def describe_edit(edit: AppliedEdit) -> str:
    """What one edit did."""
    if edit.tier in (MatchTier.CREATED, MatchTier.DELETED):
        return f"{edit.tier.value} {edit.path}"
    if edit.tier is MatchTier.RENAMED:
        return f"renamed {edit.path_as_written} to {edit.path}"
    if edit.tier is MatchTier.ALREADY_APPLIED:
        return f"left {edit.path} as it is: line {edit.line} has this change already"
    return f"changed {edit.path} at line {edit.line}"


def describe_test_run(run: TestRun) -> str:
    """Counts and failures; the output where no outcome of a test could be read."""
    outcomes = list(run.outcomes.values())
    ended = "" if run.ended == "exited" else f" (the run ended early: {run.ended})"
    if not outcomes:
        code = "" if run.exit_code is None else f" (exit code {run.exit_code})"
        unread = f"no outcome of a test could be read{code}{ended}; the output ends:"
        return f"{unread if run.command else 'nothing was run:'}\n{run.output_tail}"
    bad = [test for test, outcome in sorted(run.outcomes.items()) if outcome in BAD_OUTCOMES]
    head = f"{outcomes.count(Outcome.PASSED)} passed, {len(bad)} failed{ended}"
    silent = [test for test in bad if not run.failures.get(test)]
    return "\n".join(filter(None, (head, failure_texts(run, bad), *silent)))


def describe_command(run: CommandRun, kept: Sequence[str], lost: Mapping[str, str]) -> str:
    """How a command ended, what it printed, and what became of the files that it changed."""
    end = f"exit code {run.exit_code}" if run.ended == "exited" else f"ended: {run.ended}"
    parts = [end, _cut_middle(run.output)] if run.output else [end, "(no output)"]
    if kept:
        parts.append("now edits: " + "; ".join(list_lines(kept, _PATHS_SHOWN)))
    for why in sorted(set(lost.values())):
        paths = [ascii(path) for path, reason in sorted(lost.items()) if reason == why]
        parts.append(f"not kept ({why}): " + ", ".join(list_lines(paths, _PATHS_SHOWN)))
    return "\n".join(parts)


def _cut_middle(text: str) -> str:
    if len(text) <= _OUTPUT_SHOWN:
        return text
    half = _OUTPUT_SHOWN // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters ...]\n{text[-half:]}"
