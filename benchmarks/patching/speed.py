"""How long large replies and large files take, and how that grows.

Every figure is the best of some repeats, in processor seconds: all runs in this one thread, and
other programs may run beside it. The ratios compare sizes of one run; the seconds hold for this
machine only.
"""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent.patching import apply_proposal, parse_reply
from agent.types import ApplyFailure, ParseFailure
from benchmarks.patching.drafting import Draft, Piece, text_of
from benchmarks.patching.perturbing import BY_NAME
from benchmarks.patching.rendering import SHAPES
from tests.support.memory_files import MemoryFiles

# What must stay below the limit, in seconds.
LIMIT = 2.0
_LARGE_REPLY = 10_000_000
_LARGE_FILE = 100_000

# Doubled sizes of the growth tables; linear time doubles with them.
_FILE_SIZES = (12_500, 25_000, 50_000, 100_000)
_REPLY_SIZES = (1_250_000, 2_500_000, 5_000_000, 10_000_000)

_PATH = "pkg/large.py"

# A reply has at most so many edits (`schema.MAX_EDITS`); large ones have large edits.
_EDITS = 200
_FILES = 25


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to time, at a size."""

    name: str
    reply: str
    files: MemoryFiles


@dataclass(frozen=True, slots=True)
class Timing:
    """Best seconds, and what came of it."""

    seconds: float
    what: str


def timed(task: Task, repeat: int) -> Timing:
    """Parse and apply, best of `repeat`."""
    best, what = float("inf"), ""
    for _ in range(repeat):
        started = time.process_time()
        what = _once(task)
        best = min(best, time.process_time() - started)
    return Timing(best, what)


def _once(task: Task) -> str:
    proposal = parse_reply(task.reply)
    if isinstance(proposal, ParseFailure):
        return f"not read: {proposal.kind}"
    applied = apply_proposal(proposal, task.files)
    if isinstance(applied, ApplyFailure):
        return f"refused: {applied.failures[0].kind}"
    return " ".join(sorted({str(edit.tier) for edit in applied.edits}))


# ------------------------------------------------------------------------------------------- files


def large_text(lines: int, *, alike: bool = False) -> list[str]:
    """Lines of made-up functions; `alike`: most lines occur thousands of times."""
    rng = random.Random(lines)
    result = []
    for number in range(0, lines, 10):
        key = number % 50 if alike else number
        result += [
            f"def function_{number}(first, second):",
            f'    """Handle case {key}, as in \'the table\' - see below."""',
            f"    total = first * {key} + second",
            "",
            f"    if total > {rng.randrange(10) if alike else rng.randrange(10**6)}:",
            f"        total -= {key + 1}",
            "    for step in range(total):",
            "        yield step",
            "    return None",
            "",
        ]
    return result


def _piece(lines: Sequence[str], at: int, size: int = 10) -> Piece:
    """A function of the file with its third line changed."""
    old = lines[at : at + size]
    marked = [(" ", line) for line in old]
    marked[2:3] = [("-", old[2]), ("+", old[2] + " - 1")]
    return Piece(tuple(marked), at + 1)


def _draft(lines: Sequence[str], pieces: Sequence[Piece], path: str = _PATH) -> Draft:
    new: list[str] = []
    done = 0
    for piece in pieces:
        new += [*lines[done : piece.line - 1], *piece.new]
        done = piece.line - 1 + len(piece.old)
    after = text_of([*new, *lines[done:]])
    files = {path: text_of(lines).encode(), "pkg/other.md": b"Nothing\nof the kind.\n" * 100}
    return Draft(path, path, tuple(pieces), files, {path: after.encode()}, whole=after)


_TIERS = (
    "none", "trailing white space", "indentation added", "tabs for spaces", "typographic signs",
    "line numbers in search", "line numbers in both", "blank lines dropped",
    "a context word changed", "a removed word changed", "quoted from another file",
    "already applied", "place occurs twice", "file has CRLF", "path unknown",
)  # fmt: skip


def tier_tasks(lines: int, *, alike: bool = False) -> Iterator[Task]:
    """One edit in a file of so many lines, damaged so that every tier has its turn."""
    text = large_text(lines, alike=alike)
    base = _draft(text, [_piece(text, len(text) // 20 * 10)])
    for name in _TIERS:
        rng = random.Random(name)
        changed = BY_NAME[name].change(base, rng)
        if changed is not None:
            yield Task(name, SHAPES["blocks"](changed, rng), MemoryFiles(changed.files))
    yield Task("middle left out", _elided_reply(base.pieces[0]), MemoryFiles(base.files))


def _elided_reply(piece: Piece) -> str:
    old, new = piece.old, piece.new
    search = text_of([*old[:3], "    ...", *old[7:]])
    replace = text_of([*new[:3], "    ...", *new[7:]])
    return f"{_PATH}\n<<<<<<< SEARCH\n{search}=======\n{replace}>>>>>>> REPLACE\n"


# ----------------------------------------------------------------------------------------- replies


def shape_tasks(size: int) -> Iterator[Task]:
    """Replies of about so many bytes in every shape, over many files or one; or around one edit."""
    drafts = [_many_edits(f"pkg/part{number}.py", size // _FILES, 10) for number in range(_FILES)]
    one = _many_edits(_PATH, size, _EDITS)
    rng = random.Random(size)
    for shape, render in SHAPES.items():
        files = {path: content for each in drafts for path, content in each.files.items()}
        yield Task(f"{shape}, {_FILES} files", _joined(shape, drafts, rng), MemoryFiles(files))
        if shape != "whole":
            yield Task(f"{shape}, one file", render(one, rng), MemoryFiles(one.files))
    yield from _around(size)


def _many_edits(path: str, size: int, edits: int) -> Draft:
    """Edits that quote nearly all of a file, so that the reply comes to about `size` bytes."""
    lines = large_text(size // 64 // edits // 10 * 10 * edits)
    share = len(lines) // edits
    return _draft(lines, [_piece(lines, number * share, share) for number in range(edits)], path)


def _joined(shape: str, drafts: Sequence[Draft], rng: random.Random) -> str:
    """One reply about all drafts."""
    replies = [SHAPES[shape](draft, rng) for draft in drafts]
    match shape:
        case "json":
            return json.dumps({"edits": [e for r in replies for e in json.loads(r)["edits"]]})
        case "snippet":
            key = "edited code"
            return json.dumps({key: [item for r in replies for item in json.loads(r)[key]]})
        case "envelope":
            bodies = (reply.split("\n", 1)[1].rsplit("*** End", 1)[0] for reply in replies)
            return "*** Begin Patch\n" + "".join(bodies) + "*** End Patch\n"
    return "\n".join(replies)


def _around(size: int) -> Iterator[Task]:
    """Large replies that hold one small edit, or none."""
    lines = large_text(500)
    base = _draft(lines, [_piece(lines, 100)])
    rng = random.Random(1)
    files = MemoryFiles(base.files)
    prose = "The cause is that `total` is {wrong} [here], see '''below''' <<<.\n"
    prose *= size // len(prose)
    for shape in ("json", "blocks", "diff", "envelope"):
        yield Task(f"{shape} after prose", prose + SHAPES[shape](base, rng), files)
    yield Task("prose alone", prose, files)
    for name, unit in _HOSTILE.items():
        yield Task(name, unit * (size // len(unit)), files)
    thought = json.dumps({"thought": "x " * (size // 2), "edits": []})
    yield Task("JSON, long thought", thought, files)
    yield Task("JSON cut off", SHAPES["json"](base, rng)[:-20] + "x" * size, files)


_HOSTILE: Mapping[str, str] = {
    "only {": "{", "only [": '{"edits":[', "only quotes": '"', "only backslashes": "\\",
    "only fences": "```\n", "only block heads": "<<<<<<< SEARCH\n", "only dividers": "=======\n",
    "only hunk heads": "@@ -1,3 +1,3 @@\n", "only diff heads": "--- a/x.py\n+++ b/x.py\n",
    "only Begin Patch": "*** Begin Patch\n", "only Update File": "*** Update File: x.py\n",
    "only think": "<think>", "only ellipses": "...\n", "one long line": "ab ", "only CR": "\r",
    "path lines": "pkg/large.py\n", "empty JSON objects": "{} ",
}  # fmt: skip


# ------------------------------------------------------------------------------------------- tables


def main(repeat: int) -> int:
    """Print the three tables; 1 if anything takes longer than the limit."""
    slow = [
        *_table(f"file of {_LARGE_FILE:,} lines", tier_tasks(_LARGE_FILE), repeat),
        *_table(f"file of {_LARGE_FILE:,} lines that are alike",
                tier_tasks(_LARGE_FILE, alike=True), repeat),
        *_table(f"reply of {_LARGE_REPLY // 1_000_000} MB", shape_tasks(_LARGE_REPLY), repeat),
    ]  # fmt: skip
    _growth("lines of the file", _FILE_SIZES, tier_tasks, repeat)
    _growth("bytes of the reply", _REPLY_SIZES, shape_tasks, repeat)
    print(f"over {LIMIT} s: {', '.join(slow) or 'none'}")
    return 1 if slow else 0


def _table(title: str, tasks: Iterator[Task], repeat: int) -> list[str]:
    slow = []
    print(f"| {title} | reply, MB | seconds | outcome |\n|---|---:|---:|---|")
    for task in tasks:
        done = timed(task, repeat)
        size = len(task.reply) / 1e6
        print(f"| {task.name} | {size:.2f} | {done.seconds:.3f} | {done.what} |", flush=True)
        if done.seconds > LIMIT:
            slow.append(f"{title}: {task.name}")
    print()
    return slow


def _growth(
    title: str, sizes: Sequence[int], tasks: Callable[[int], Iterator[Task]], repeat: int
) -> None:
    """Seconds at doubling sizes, and the factor from each size to the next."""
    rows: dict[str, list[float]] = {}
    for size in sizes:
        for task in tasks(size):
            rows.setdefault(task.name, []).append(timed(task, repeat).seconds)
    print(f"| {title} | " + " | ".join(f"{size:,}" for size in sizes) + " | factors |")
    print("|---|" + "---:|" * len(sizes) + "---|")
    for name, seconds in rows.items():
        steps = itertools.pairwise(seconds)
        factors = " ".join(f"{after / max(before, 1e-6):.1f}" for before, after in steps)
        print(f"| {name} | " + " | ".join(f"{one:.3f}" for one in seconds) + f" | {factors} |")
    print()
