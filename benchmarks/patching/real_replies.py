"""Public corpora of what models really wrote, and what is known of each reply.

- aider's chat history: replies whose edits were committed; the truth is the commit. Replies that
  aider could not apply are set on the parent of the next commit to the same file.
- llm-patch: diffs of small models, with the file they are about; the truth is the oracle's.
- gpt-engineer: malformed diffs of its tests, with the files; the truth is the oracle's.

Nothing of them is stored: the repositories are read where they lie.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.patching import oracle
from benchmarks.patching.cases import Case, Likeness, Wanted
from benchmarks.patching.drafting import times
from benchmarks.patching.repositories import Modified, Repository, find_repository

AIDER = "Aider-AI/aider"
LLM_PATCH = "trickl/llm-patch"
GPT_ENGINEER = "gpt-engineer-org/gpt-engineer"

_HISTORY = "tests/fixtures/chat-history.md"
_TESTS = "tests/core/improve_function_test_cases"

# Files of the commit put beside those that the reply is about, so that names can be confused.
_BESIDE = 6

_COMMIT = r"> Commit ([0-9a-f]{7,}) "

# How far ahead the base of a reply that was not committed is looked for.
_TURNS_AHEAD = 12


# ------------------------------------------------------------------------------------------- aider


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
    with Repository(place) as repository:
        history = repository.blob(f"HEAD:{_HISTORY}")
        turns = list(_turns((history or b"").decode("utf-8", "replace")))
        listed = {commit for turn in turns for commit in turn.said(_COMMIT)}
        past = _Past(repository, frozenset(c for c in listed if repository.exists(c)))
        for index, turn in enumerate(turns):
            if any("< SEARCH" in line for line in turn.reply):
                case = _aider_case(past, turns, index)
                if case is not None:
                    yield case


@dataclass(slots=True)
class _Past:
    """The repository, the commits named in the chat that it has, and versions of files."""

    repository: Repository
    known: frozenset[str]
    versions: dict[str, list[Modified]] = field(default_factory=dict)

    def of(self, path: str) -> list[Modified]:
        """All commits that modified a file."""
        if path not in self.versions:
            self.versions[path] = self.repository.history(path)
        return self.versions[path]


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


def _aider_case(past: _Past, turns: Sequence[_Turn], index: int) -> Case | None:
    turn = turns[index]
    blocks = oracle.read_blocks("\n".join(turn.reply))
    if len(blocks) != sum("< SEARCH" in line for line in turn.reply):
        base = _next_commit(past, turns[index + 1 :], ())
        return _judged(past.repository, turn, base, "interrupted") if base else None
    failed = turn.said(r"> ## SearchReplaceNoExactMatch: .* lines in (\S+)")
    if failed:
        base = _next_commit(past, turns[index + 1 :], failed)
        return _judged(past.repository, turn, base, "failed in aider") if base else None
    commit = turn.edit_commit() if turn.edit_commit() in past.known else _like(past, turn)
    return _judged(past.repository, turn, commit, "applied by aider") if commit else None


def _next_commit(past: _Past, turns: Sequence[_Turn], paths: Sequence[str]) -> str:
    for turn in turns[:_TURNS_AHEAD]:
        for commit in turn.said(_COMMIT):
            if commit in past.known:
                touched = {one.path for one in past.repository.changed_by(commit)}
                return commit if touched.issuperset(paths) else ""
    return ""


def _like(past: _Past, turn: _Turn) -> str:
    """The commit that made of one file exactly what the reply's blocks make of it, if any."""
    addressed = list(_addressed("\n".join(turn.reply)))
    if len({path for path, _, _ in addressed}) != 1:
        return ""
    for one in past.of(addressed[0][0]):
        text = (past.repository.blob(one.old) or b"").decode("utf-8", "replace")
        if times(text, addressed[0][1]) != 1:
            continue
        for _, old, new in addressed:
            at = ("\n" + text).find("\n" + old)
            text = text[:at] + new + text[at + len(old) :] if at >= 0 else ""
        if text and text.encode() == past.repository.blob(one.new):
            return one.commit
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
    for old, new in oracle.read_blocks(reply):
        at = reply.index(f"SEARCH\n{old}=", position) if old else reply.index("SEARCH\n", position)
        above = [
            line.strip("`*# :")
            for line in reply[position:at].split("\n")[:-1]
            if line.strip() and not line.startswith("```")
        ]
        path = above[-1] if above and " " not in above[-1] else path
        position = at
        yield path, old, new


# ------------------------------------------------------------------------------------ llm-patch


def llm_patch_cases(corpora: Path) -> Iterator[Case]:
    """The unified diffs; what the guided loop wrote is no diff and is left out.

    A diff that names a file that is not there, or changes white space alone, may be refused.
    """
    place = find_repository(corpora, LLM_PATCH)
    if place is None:
        return
    with Repository(place) as repository:
        for path in sorted(repository.paths("HEAD", "benchmarks/generated")):
            folder, _, name = path.rpartition("/diffs/")
            if not folder or not name.endswith(".diff") or "guided-loop" in name:
                continue
            language = folder.split("/")[-2]
            suffix = {"typescript": "ts", "python": "py"}.get(language, language)
            before = repository.blob(f"HEAD:{folder}/before.{suffix}")
            diff = repository.blob(f"HEAD:{path}")
            if before is not None and diff is not None:
                where = f"{folder.rsplit('/', 1)[-1]}/{name.removesuffix('.diff')}"
                yield _diff_case(f"llm-patch:{where}", name, diff, f"before.{suffix}", before)


def _diff_case(identity: str, name: str, diff: bytes, path: str, before: bytes) -> Case:
    reply = diff.decode("utf-8", "replace")
    text = before.decode("utf-8", "replace")
    hunks = oracle.read_diff(reply)
    reading = oracle.intended(text, hunks)
    if not hunks and not re.search(r"^[-+](?![-+])", reply, re.MULTILINE):
        wanted, after = Wanted.REFUSE, None
    elif reading.text is None:
        wanted, after = Wanted.UNKNOWN, None
    elif reading.text == text:
        wanted, after = Wanted.REFUSE, None
    else:
        named = path in re.findall(r"^(?:---|\+\+\+) (?:[ab]/)?(\S+)", reply, re.MULTILINE)
        visible = "".join(reading.text.split()) != "".join(text.split())
        wanted = Wanted.APPLY if named and visible else Wanted.EITHER
        after = {path: reading.text.encode()}
    kind = name.removesuffix(".diff")
    return Case(
        identity, "llm-patch", kind, "diff", reply, {path: before}, wanted, after, Likeness.SPACE
    )


# ---------------------------------------------------------------------------------- gpt-engineer


def gpt_engineer_cases(corpora: Path) -> Iterator[Case]:
    """The chats that its tests feed to its own salvaging of hunks."""
    place = find_repository(corpora, GPT_ENGINEER)
    if place is None:
        return
    with Repository(place) as repository:
        test = repository.blob("HEAD:tests/core/test_salvage_correct_hunks.py") or b""
        pairs = re.findall(
            r'FilesDict\(\s*\{"([^"]+)": get_file_content\("(\w+)"\)\}.*?'
            r'message_builder\("(\w+)"\)',
            test.decode(), re.DOTALL,
        )  # fmt: skip
        for path, code, chat in pairs:
            content = repository.blob(f"HEAD:{_TESTS}/{code}")
            reply = repository.blob(f"HEAD:{_TESTS}/{chat}")
            if content is not None and reply is not None:
                files = {path: content} if content else {}
                yield _chat_case(chat, reply.decode("utf-8", "replace"), files)


def _chat_case(chat: str, reply: str, files: Mapping[str, bytes]) -> Case:
    now = {path: content.decode() for path, content in files.items()}
    sure = True
    for path, body in _sections(reply):
        if path in now:
            reading = oracle.intended(now[path], oracle.read_diff(body))
            sure &= reading.text is not None
            now[path] = reading.text or ""
        else:
            added = [line[1:] for line in body.split("\n") if re.match(r"\+(?!\+\+ )", line)]
            now[path] = "".join(f"{line}\n" for line in added)
    after = {path: text.encode() for path, text in now.items()}
    changed = {path: content for path, content in after.items() if files.get(path) != content}
    wanted = (Wanted.APPLY if changed else Wanted.REFUSE) if sure else Wanted.UNKNOWN
    return Case(
        f"gpt-engineer:{chat}", "gpt-engineer", "malformed diffs", "diff", reply, files, wanted,
        changed if wanted is Wanted.APPLY else None, Likeness.SPACE,
    )  # fmt: skip


def _sections(reply: str) -> Iterator[tuple[str, str]]:
    """Path and body of each file of a reply's fenced diffs."""
    for fenced in re.findall(r"^```diff\n(.*?)^```", reply, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^(?=--- )", fenced, flags=re.MULTILINE):
            names = re.match(r"--- (\S+)[^\n]*\n\+\+\+ (\S+)[^\n]*\n", part)
            if names:
                path = names[2] if names[2] != "/dev/null" else names[1]
                yield path.removeprefix("b/"), part[names.end() :]
