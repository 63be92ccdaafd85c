"""Replies with blocks of aider's chat history; the truth of an applied reply is its commit.

A reply that aider could not apply is set on the parent of the next commit to the same file.
Nothing of them is stored: the repository is read where it lies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.patching.cases import Case, Likeness, Wanted
from benchmarks.patching.perturbing import times
from benchmarks.patching.repositories import Repository, find_repository

AIDER = "Aider-AI/aider"

_HISTORY = "tests/fixtures/chat-history.md"

# Files of the commit put beside those that the reply is about, so that names can be confused.
_BESIDE = 6

_COMMIT = r"> Commit ([0-9a-f]{7,}) "

_BLOCK = re.compile(
    r"^<{5,9} ?SEARCH[^\n]*\n(?P<old>.*?)^={5,9}[ \t]*\n(?P<new>.*?)^>{5,9} ?REPLACE",
    re.MULTILINE | re.DOTALL,
)

# How far ahead the base of a reply that was not committed is looked for.
_TURNS_AHEAD = 12


@dataclass(slots=True)
class _Turn:
    """An assistant's reply and what aider printed after it."""

    line: int
    reply: list[str] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)

    def edit_commit(self) -> str:
        """The commit of the edits themselves: others tidy up before and after."""
        applied = [i for i, line in enumerate(self.printed) if line.startswith("> Applied edit")]
        later = self.printed[applied[-1] :] if applied else []
        return next((m[1] for line in later if (m := re.match(_COMMIT, line))), "")

    def said(self, pattern: str) -> list[str]:
        return [m[1] for line in self.printed if (m := re.match(pattern, line))]


def aider_cases(corpora: Path) -> Iterator[Case]:
    """Every reply with blocks of which a base, and mostly the truth, is in the history."""
    place = find_repository(corpora, AIDER)
    if place is None:
        return
    repository = Repository(place)
    history = repository.blob(f"HEAD:{_HISTORY}")
    turns = list(_turns((history or b"").decode("utf-8", "replace")))
    listed = {commit for turn in turns for commit in turn.said(_COMMIT)}
    commits = frozenset(commit for commit in listed if repository.exists(commit))
    for index, turn in enumerate(turns):
        if any("< SEARCH" in line for line in turn.reply):
            case = _aider_case(repository, commits, turns, index)
            if case is not None:
                yield case


def _turns(history: str) -> Iterator[_Turn]:
    turn = _Turn(0)
    for number, line in enumerate(history.split("\n"), start=1):
        if line.startswith(("#### ", "# aider chat started")):
            yield turn
            turn = _Turn(number)
        elif line.startswith("> ") or line.strip() == ">":
            turn.printed.append(line.rstrip())
        elif turn.printed and line.strip():
            yield turn
            turn = _Turn(number, [line])
        elif not turn.printed:
            turn.reply.append(line)
    yield turn


def _aider_case(
    repository: Repository, commits: Set[str], turns: Sequence[_Turn], index: int
) -> Case | None:
    turn, later = turns[index], turns[index + 1 : index + 1 + _TURNS_AHEAD]
    failed = turn.said(r"> ## SearchReplaceNoExactMatch: .* lines in (\S+)")
    if len(_blocks("\n".join(turn.reply))) != sum("< SEARCH" in line for line in turn.reply):
        base, kind = _next_commit(repository, commits, later, ()), "interrupted"
    elif failed:
        base, kind = _next_commit(repository, commits, later, failed), "failed in aider"
    else:
        base, kind = turn.edit_commit(), "applied by aider"
    return _judged(repository, turn, base, kind) if base in commits else None


def _next_commit(
    repository: Repository, commits: Set[str], turns: Sequence[_Turn], paths: Sequence[str]
) -> str:
    for turn in turns:
        for commit in turn.said(_COMMIT):
            if commit in commits:
                touched = {one.path for one in repository.changed_by(commit)}
                return commit if touched.issuperset(paths) else ""
    return ""


def _judged(repository: Repository, turn: _Turn, commit: str, kind: str) -> Case | None:
    changed = [one for one in repository.changed_by(commit) if not one.path.startswith('"')]
    files = {one.path: c for one in changed if (c := repository.blob(one.old)) is not None}
    after = {one.path: repository.blob(one.new) for one in changed}
    listed = [path for path in repository.paths(f"{commit}^") if path not in files]
    for path in listed[:: max(1, len(listed) // _BESIDE)]:
        content = repository.blob(f"{commit}^:{path}")
        if content is not None and b"\0" not in content:
            files[path] = content
    reply = "\n".join(turn.reply).strip("\n") + "\n"
    wanted = Wanted.REFUSE if kind == "interrupted" else _how_sure(reply, files, after)
    likeness = Likeness.SPACE if wanted is Wanted.UNKNOWN else Likeness.BYTES
    identity = f"aider:{turn.line}"
    return Case(identity, "aider", kind, "blocks", reply, files, wanted, after, likeness)


def _how_sure(reply: str, files: Mapping[str, bytes], after: Mapping[str, bytes | None]) -> Wanted:
    """APPLY if replacing each search text, found once, gives the commit; EITHER if one is found
    several times and the first was meant; else nothing is known but the commit.
    """
    texts = {path: content.decode("utf-8", "replace") for path, content in files.items()}
    several = False
    for path, old, new in _addressed(reply):
        if not old.strip() and path not in texts:
            texts[path] = new
            continue
        text = texts.get(path, "")
        found = times(text, old)
        if found == 0:
            return Wanted.UNKNOWN
        several |= found > 1
        at = ("\n" + text).find("\n" + old)
        texts[path] = text[:at] + new + text[at + len(old) :]
    if any(texts.get(path, "").encode() != (content or b"") for path, content in after.items()):
        return Wanted.UNKNOWN
    return Wanted.EITHER if several else Wanted.APPLY


def _addressed(reply: str) -> Iterator[tuple[str, str, str]]:
    """Path, search and replace of each block; the path stands above the fence."""
    position, path = 0, ""
    for old, new in _blocks(reply):
        at = reply.index(f"SEARCH\n{old}=", position) if old else reply.index("SEARCH\n", position)
        above = [
            line.strip("`*# :")
            for line in reply[position:at].split("\n")[:-1]
            if line.strip() and not line.startswith("```")
        ]
        path = above[-1] if above and " " not in above[-1] else path
        position = at
        yield path, old, new


def _blocks(reply: str) -> list[tuple[str, str]]:
    """Search and replace texts of well-formed blocks, in order; shares nothing with the readers."""
    return [(block["old"], block["new"]) for block in _BLOCK.finditer(reply)]
