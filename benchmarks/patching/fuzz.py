"""Mutated replies of every shape: nothing but declared failures, and every accepted patch is sound.

Each case is made from its number and the seed alone, so that one that fails can be run again by
itself (`--first N --cases 1`). A case that works for longer than a second counts as a hang.
"""

from __future__ import annotations

import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from agent.patching import apply_proposal, parse_reply
from agent.types import (
    AppliedPatch,
    ApplyFailure,
    FileChange,
    ParseFailure,
    PatchProposal,
    SearchReplace,
)
from benchmarks.patching.drafting import Change, draft
from benchmarks.patching.perturbing import PERTURBATIONS
from benchmarks.patching.rendering import SHAPES
from benchmarks.patching.strict_patch import BadDiff, strict_patch
from tests.support.memory_files import MemoryFiles

# Shapes whose own end says that they are complete: only these are read if the output limit was hit.
_CLOSED = ("json", "json-fenced", "json-prose", "json-lenient", "json-patch", "apply-patch")

# Processor seconds: a case takes about a millisecond; this is no slow case, it is a hang.
_HANG = 1.0
_GIT_LIMIT = 20

_LEDGER = """class Ledger:
    def __init__(self, name="main"):
        self.name = name
        self.rows = []

    def add(self, amount, note=""):
        if amount == 0:
            return None
        self.rows.append((amount, note))
        return len(self.rows)

    def total(self):
        return sum(amount for amount, _ in self.rows)
"""
_LEDGER_NEW = _LEDGER.replace("return None", 'raise ValueError("zero")').replace(
    "return len(self.rows)", "return len(self.rows) - 1"
)
_FILES: Mapping[str, bytes] = {
    "pkg/ledger.py": _LEDGER.encode(),
    "pkg/crlf.txt": b"alpha\r\nbeta\r\ngamma\r\nbeta\r\n",
    "pkg/mixed.js": b"let a = 1;\r\nlet b = 2;\nlet c = a + b;\r\n// end",
    "pkg/mark.py": b"\xef\xbb\xbfX = 1\nY = 2\n",
    "pkg/latin.py": "# -*- coding: latin-1 -*-\nNAME = 'Zo\xeb'\n".encode("latin-1"),
    "pkg/bad.txt": b"fine\n\xff\xfe broken \x80\nfine too\n",
    "Makefile": b"all:\n\techo one\n\techo two\n",
    "empty.txt": b"",
}
_SMALL: Mapping[str, tuple[str, str]] = {
    "pkg/crlf.txt": ("alpha\nbeta\n", "alpha\nBETA\n"),
    "pkg/mixed.js": ("let c = a + b;\n", "let c = a - b;\nlet d = 0;\n"),
    "pkg/mark.py": ("X = 1\n", "X = 3\n"),
    "pkg/latin.py": ("NAME = 'Zo\xeb'\n", "NAME = 'No\xebl'\n"),
    "Makefile": ("\techo one\n", "\techo eins\n"),
}
_TOKENS = (
    "<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE\n", "```", "```json\n", "@@ -1,3 +1,3 @@\n",
    "--- a/pkg/ledger.py\n", "+++ b/pkg/ledger.py\n", "*** Begin Patch\n", "*** End Patch\n",
    "*** Update File: pkg/ledger.py\n", "*** Add File: new.py\n", "*** Delete File: Makefile\n",
    "...\n", "# ... existing code\n", '"', "\\", "\\u", "\\ud800", "{", "}", "[", "]", ",", "\n",
    "\r\n", "\t", "    ", "\0", "\u2028", "\u202e", "\ufeff", "<think>", "</think>", "../", ".git/",
    "null", "1e999", "-" * 9, "+", "-", " ", "/dev/null", '{"edits": [', "*** Move to: x.py\n",
    "rename from Makefile\nrename to Make\n", "12 | ", "\\ No newline at end of file\n", "\u201c",
)  # fmt: skip


class Hang(Exception):
    """A case ran past its limit."""


class Broken(Exception):
    """An invariant does not hold."""


@dataclass(slots=True)
class Tally:
    """What came of the cases, and the ones that must not be."""

    cases: int = 0
    seconds: float = 0.0
    processor: float = 0.0  # seconds, whatever else the machine does
    outcomes: Counter[str] = field(default_factory=Counter)
    tiers: Counter[str] = field(default_factory=Counter)
    readers: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    git_checked: int = 0
    findings: list[str] = field(default_factory=list)


def seeds() -> list[str]:
    """Sound replies in every shape and with every perturbation: what the mutations start from."""
    change = Change("fuzz", "pkg/ledger.py", _LEDGER, _LEDGER_NEW, dict(_FILES))
    replies = []
    for perturbation in PERTURBATIONS:
        base = draft(change, context=perturbation.context)
        for shape in sorted(perturbation.shapes):
            rng = random.Random(f"{perturbation.name}:{shape}")
            changed = perturbation.change(base, rng) if base else None
            if changed:
                replies.append(SHAPES[shape](changed, rng))
    for path, (old, new) in _SMALL.items():
        block = f"{path}\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n"
        replies += [
            block,
            f'{{"edits": [{{"path": "{path}", "search": {old!r}, "replace": {new!r}}}]}}',
        ]
    replies += [
        '{"edits": [{"path": "pkg/new.py", "create": "A = 1\\n"},'
        ' {"path": "Makefile", "delete": true}]}',
        "diff --git a/Makefile b/Make\nsimilarity index 100%\n"
        "rename from Makefile\nrename to Make\n",
        "*** Begin Patch\n*** Add File: a/b.py\n+x = 1\n"
        "*** Delete File: empty.txt\n*** End Patch\n",
    ]
    return replies


def mutated(replies: Sequence[str], rng: random.Random) -> str:
    """One reply after one to six random changes."""
    text = rng.choice(replies)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 6))):
        text = rng.choice(_MUTATIONS)(text, replies, rng)
    return text[:20_000]


Mutation = Callable[[str, Sequence[str], random.Random], str]


def _span(text: str, rng: random.Random, most: int) -> tuple[int, int]:
    start = rng.randrange(len(text) + 1)
    return start, min(len(text), start + rng.randrange(1, most))


def _flip(text: str, _: Sequence[str], rng: random.Random) -> str:
    """A bit of a byte: what was a character may become U+FFFD, as a client would decode it."""
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    for _number in range(rng.choice((1, 1, 4))):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data.decode("utf-8", "replace")


def _cut(text: str, _: Sequence[str], rng: random.Random) -> str:
    start, end = _span(text, rng, 200)
    return text[:start] if rng.random() < 0.3 else text[:start] + text[end:]


def _double(text: str, _: Sequence[str], rng: random.Random) -> str:
    start, end = _span(text, rng, 400)
    return text[:end] + text[start:end] * rng.choice((1, 1, 2, 5)) + text[end:]


def _splice(text: str, replies: Sequence[str], rng: random.Random) -> str:
    other = rng.choice(replies)
    start, end = _span(other, rng, 600)
    at = rng.randrange(len(text) + 1)
    return text[:at] + other[start:end] + text[at:]


def _insert(text: str, _: Sequence[str], rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    if rng.random() < 0.5:
        at = text.rfind("\n", 0, at) + 1
    return text[:at] + rng.choice(_TOKENS) + text[at:]


def _swap_lines(text: str, _: Sequence[str], rng: random.Random) -> str:
    lines = text.split("\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    return "\n".join(lines)


def _drop_line(text: str, _: Sequence[str], rng: random.Random) -> str:
    lines = text.split("\n")
    del lines[rng.randrange(len(lines))]
    return "\n".join(lines)


def _join(text: str, replies: Sequence[str], rng: random.Random) -> str:
    return text + rng.choice(("\n", "\n\n", "")) + rng.choice(replies)


_MUTATIONS: Sequence[Mutation] = (
    _flip, _flip, _cut, _double, _splice, _insert, _insert, _swap_lines, _drop_line, _join
)  # fmt: skip


# ------------------------------------------------------------------------------------------ running


@contextmanager
def _watched() -> Iterator[None]:
    """Raises `Hang` in whatever runs when the timer, set per case, runs out."""

    def ring(_: int, __: FrameType | None) -> None:
        raise Hang

    previous = signal.signal(signal.SIGPROF, ring)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def fuzz(
    cases: int, seed: int, *, first: int = 0, git_sample: int = 0,
    progress: Callable[[Tally], None] = lambda _: None,
) -> Tally:  # fmt: skip
    """Run cases `first` to `first + cases` of a seed. Findings are collected, not raised."""
    tally, replies, files = Tally(), seeds(), MemoryFiles(_FILES)
    began, worked = time.perf_counter(), time.process_time()
    with _watched():
        for number in range(first, first + cases):
            rng = random.Random(seed * 1_000_003 + number)
            reply = mutated(replies, rng)
            finish = "length" if rng.random() < 0.05 else "stop"
            started = time.perf_counter()
            signal.setitimer(signal.ITIMER_PROF, _HANG)
            try:
                ask_git = git_sample > 0 and number % git_sample == 0
                _one(reply, finish, files, tally, ask_git=ask_git)
            except Exception as error:  # noqa: BLE001 - finding them is the purpose
                tally.findings.append(_finding(number, seed, error, reply))
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            tally.slowest = max(tally.slowest, time.perf_counter() - started)
            tally.cases += 1
            if tally.cases % 5000 == 0:
                tally.seconds = time.perf_counter() - began
                tally.processor = time.process_time() - worked
                progress(tally)
    tally.seconds = time.perf_counter() - began
    tally.processor = time.process_time() - worked
    return tally


def _finding(number: int, seed: int, error: Exception, reply: str) -> str:
    at = error.__traceback__
    place = ""
    while at is not None:
        place = f"{Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno}"
        at = at.tb_next
    return f"case {number} of seed {seed}: {type(error).__name__} at {place}: {error}\n{reply!r}"


def _one(reply: str, finish: str, files: MemoryFiles, tally: Tally, *, ask_git: bool) -> None:
    proposal = parse_reply(reply, finish_reason=finish)
    if isinstance(proposal, ParseFailure):
        tally.outcomes[f"parse: {proposal.kind}"] += 1
        _expect(bool(proposal.reason), "a parse failure without a reason")
        return
    _expect(isinstance(proposal, PatchProposal), f"parse_reply gave {type(proposal).__name__}")
    complete = finish == "stop" or proposal.reader in _CLOSED
    _expect(complete, f"a reply marked as cut is read by {proposal.reader}")
    applied = apply_proposal(proposal, files)
    if isinstance(applied, ApplyFailure):
        for failure in applied.failures:
            tally.outcomes[f"apply: {failure.kind}"] += 1
            _expect(bool(failure.reason), "an apply failure without a reason")
        return
    _expect(isinstance(applied, AppliedPatch), f"apply_proposal gave {type(applied).__name__}")
    tally.outcomes["applied"] += 1
    tally.readers[proposal.reader] += 1
    tally.tiers.update(str(edit.tier) for edit in applied.edits)
    _check(proposal, applied)
    if ask_git:
        _ask_git(applied)
        tally.git_checked += 1


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


def _check(proposal: PatchProposal, applied: AppliedPatch) -> None:
    """The invariants of an accepted patch."""
    expected = dict(_FILES)
    for change in applied.changes:
        _expect(_inside(change.path), f"the path {change.path!r} leaves the repository")
        _expect(change.before == _FILES.get(change.path), f"{change.path}: before is not the file")
        _expect(change.before != change.after, f"{change.path}: listed but not changed")
        _expect_local(proposal, applied, change)
        if change.after is None:
            del expected[change.path]
        else:
            expected[change.path] = change.after
    try:
        _expect(strict_patch(applied.diff, _FILES) == expected, "the diff gives other bytes")
    except (BadDiff, KeyError, IndexError) as error:
        raise Broken(f"the diff does not apply: {error}") from error


def _inside(path: str) -> bool:
    parts = path.split("/")
    return (
        bool(path) and not ({"", ".", ".."} & set(parts)) and ".git" not in path.lower().split("/")
    )


def _expect_local(proposal: PatchProposal, applied: AppliedPatch, change: FileChange) -> None:
    """No more lines come and go than the edits have: what they do not show stays."""
    replaces = [edit for edit in proposal.edits if isinstance(edit, SearchReplace)]
    if len(replaces) < len(proposal.edits):
        return
    old, new = (Counter((text or b"").split(b"\n")) for text in (change.before, change.after))
    shown = sum(edit.search.count("\n") + 1 for edit in replaces)
    given = sum(edit.replace.count("\n") + 1 for edit in replaces)
    spare = len(replaces) + len(applied.repairs)  # a line broken or joined, an import mended
    _expect((old - new).total() <= shown + spare, f"{change.path}: more lines went than shown")
    _expect((new - old).total() <= given + spare, f"{change.path}: more lines came than given")


def _ask_git(applied: AppliedPatch) -> None:
    """Real git on a copy: the diff is taken, and gives the same bytes."""
    with tempfile.TemporaryDirectory(prefix="patchshot-fuzz-") as folder:
        tree = Path(folder)
        for path, content in _FILES.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_bytes(content)
        done = subprocess.run(
            ["git", "apply", "-"], input=applied.diff, cwd=tree, capture_output=True,
            timeout=_GIT_LIMIT, check=False,
            env={"PATH": "/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": str(tree.parent)},
        )  # fmt: skip
        _expect(done.returncode == 0, f"git refuses the diff: {done.stderr[:200]!r}")
        for change in applied.changes:
            place = tree / change.path
            now = place.read_bytes() if place.is_file() else None
            _expect(now == change.after, f"git makes other bytes of {change.path}")


def main(cases: int, seed: int, git_sample: int, first: int = 0) -> int:
    """Run, print the tally; 1 if there are findings."""

    def progress(tally: Tally) -> None:
        if tally.cases % 50_000 == 0:
            rate = tally.cases / tally.processor
            print(
                f"{tally.cases:,} cases, {rate:,.0f}/s, {len(tally.findings)} findings", flush=True
            )

    tally = fuzz(cases, seed, first=first, git_sample=git_sample, progress=progress)
    print(
        f"\n{tally.cases:,} cases in {tally.seconds:.0f} s, {tally.processor:.0f} s of processor "
        f"time ({tally.cases / max(tally.processor, 1e-9):,.0f}/s)"
    )
    print(f"slowest case {tally.slowest * 1000:.0f} ms; asked git {tally.git_checked} times")
    for title, counts in (
        ("outcomes", tally.outcomes), ("readers", tally.readers), ("tiers", tally.tiers)
    ):  # fmt: skip
        print(f"{title}: " + ", ".join(f"{name} {count:,}" for name, count in counts.most_common()))
    print(f"findings: {len(tally.findings)}")
    for finding in tally.findings[:20]:
        print(finding)
    return 1 if tally.findings else 0
