"""The appliers that are compared: ours, ours held to exact matches, `git apply`, `patch`.

The last two get the case as a diff: the reply's own, cut from its fence, or one rendered from the
search and replace texts (its numbers from the first exact occurrence). They run in a folder of
their own, under a time limit, and what they leave behind counts as applied only if they succeed.
"""

from __future__ import annotations

import difflib
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from agent.patching import apply_proposal, parse_reply
from agent.types import (
    AppliedPatch,
    CreateFile,
    DeleteFile,
    MatchTier,
    ParseFailure,
    PatchProposal,
    SearchReplace,
)
from benchmarks.patching.cases import Attempt, Case, Result
from tests.support.memory_files import MemoryFiles

# Of one run of a foreign applier, in seconds.
_LIMIT = 20

_PLAIN_TIERS = frozenset({MatchTier.EXACT, MatchTier.CREATED, MatchTier.DELETED})
_FENCED = re.compile(r"^```(?:diff|patch)?[ \t]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_DIFF_START = re.compile(r"^(?:diff --git |--- \S)", re.MULTILINE)

Applier = Callable[[Case], Attempt | None]  # None: the case is not in a form that it reads


def apply_ours(case: Case) -> Attempt:
    """Parse and apply as the command does."""
    proposal = parse_reply(case.reply, finish_reason=case.finish_reason)
    if isinstance(proposal, ParseFailure):
        return Attempt(None, reason=f"{proposal.kind}: {proposal.reason}")
    applied = apply_proposal(proposal, MemoryFiles(case.files), allow=("*",))
    if not isinstance(applied, AppliedPatch):
        return Attempt(None, reader=proposal.reader, reason=applied.reason)
    changed = {change.path: change.after for change in applied.changes}
    tiers = (
        *(str(edit.tier) for edit in applied.edits),
        *(f"repair: {repair.name}" for repair in applied.repairs),
    )
    return Attempt(changed, tiers, proposal.reader)


def exact_only(attempt: Attempt) -> Attempt:
    """The same attempt by an applier that has no tier but the exact one, and mends nothing.

    Tiers are tried strictest first, so what it would do is what was done, or nothing.
    """
    if _PLAIN_TIERS.issuperset(attempt.tiers):
        return attempt
    return Attempt(None, reader=attempt.reader, reason="not an exact match")


# --------------------------------------------------------------------------------- foreign appliers


def apply_git(case: Case) -> Attempt | None:
    """`git apply`; rendered hunks may lack context, which it takes only when told."""
    rendered = _as_diff(case)
    if rendered is None:
        return None
    diff, own = rendered
    option = [] if own else ["--unidiff-zero"]
    return _foreign(case, lambda strip: ["git", "apply", f"-p{strip}", *option, "../it.diff"], diff)


def apply_patch_fuzz(case: Case) -> Attempt | None:
    """`patch --fuzz=5`, with the options of the SWE-bench harness."""
    rendered = _as_diff(case)
    if rendered is None:
        return None
    return _foreign(
        case,
        lambda strip: ["patch", "--batch", "--fuzz=5", f"-p{strip}", "-i", "../it.diff"],
        rendered[0],
    )


def _foreign(case: Case, command: Callable[[int], Sequence[str]], diff: str) -> Attempt:
    """One run with the strip count that the diff's names need."""
    strip = 1 if re.search(r"^--- \"?a/", diff, re.MULTILINE) else 0
    with tempfile.TemporaryDirectory(prefix="patchshot-score-") as folder:
        tree = Path(folder) / "tree"
        _write(tree, case)
        (tree.parent / "it.diff").write_bytes(diff.encode("utf-8", "surrogateescape"))
        try:
            done = subprocess.run(
                command(strip), cwd=tree, capture_output=True, timeout=_LIMIT, check=False,
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", "GIT_CEILING_DIRECTORIES": folder},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Attempt(None, reason="time limit")
        if done.returncode != 0:
            return Attempt(None, reason=done.stderr.decode("utf-8", "replace")[:200])
        return Attempt(_read_back(tree, case))


def _write(tree: Path, case: Case) -> None:
    tree.mkdir()
    for path, content in case.files.items():
        place = tree / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def _read_back(tree: Path, case: Case) -> Result:
    now = {
        place.relative_to(tree).as_posix(): place.read_bytes()
        for place in sorted(tree.rglob("*"))
        if place.is_file() and place.suffix not in (".orig", ".rej")
    }
    changed: dict[str, bytes | None] = {p: c for p, c in now.items() if case.files.get(p) != c}
    changed.update({path: None for path in case.files if path not in now})
    return changed


def _as_diff(case: Case) -> tuple[str, bool] | None:
    """The case as a diff, and whether it is the reply's own."""
    if case.shape == "diff":
        fenced = _FENCED.search(case.reply)
        body = fenced[1] if fenced else case.reply
        start = _DIFF_START.search(body)
        return (body[start.start() if start else 0 :].rstrip("\n") + "\n", True)
    proposal = parse_reply(case.reply, finish_reason=case.finish_reason)
    if not isinstance(proposal, PatchProposal):
        return None
    parts = list(_rendered(proposal, case))
    return ("".join(parts), False) if parts else None


def _rendered(proposal: PatchProposal, case: Case) -> Iterator[str]:
    for edit in proposal.edits:
        match edit:
            case SearchReplace(path=path, search=search, replace=replace):
                text = case.files.get(path, b"").decode("utf-8", "replace")
                yield f"--- a/{path}\n+++ b/{path}\n" + _hunk(text, search, replace)
            case CreateFile(path=path, content=content):
                lines = _lines(content)
                body = "".join(f"+{line}\n" for line in lines)
                yield f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n{body}"
            case DeleteFile(path=path):
                lines = _lines(case.files.get(path, b"").decode("utf-8", "replace"))
                body = "".join(f"-{line}\n" for line in lines)
                yield f"--- a/{path}\n+++ /dev/null\n@@ -1,{len(lines)} +0,0 @@\n{body}"


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _hunk(text: str, search: str, replace: str) -> str:
    old, new = _lines(search), _lines(replace)
    at = text.find(search)
    line = text.count("\n", 0, at) + 1 if at >= 0 else max(2, text.count("\n") // 2)
    body: list[str] = []
    for tag, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            body.extend(f" {one}\n" for one in old[i:j])
        else:
            body.extend(f"-{one}\n" for one in old[i:j])
            body.extend(f"+{one}\n" for one in new[k:m])
    return f"@@ -{line},{len(old)} +{line},{len(new)} @@\n{''.join(body)}"
