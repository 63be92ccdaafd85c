"""A tiny applier of git's diffs that believes every number: an oracle for diffs that we write.

It accepts only what `agent.patching.diff` promises: right numbers, right counts, context that is
there byte for byte. Anything else raises `BadDiff`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_FILE = re.compile(rb"^diff --git ", re.MULTILINE)
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@.*\n")
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")
_LETTERS = {b"t": b"\t", b"n": b"\n", b'"': b'"', b"\\": b"\\", b"a": b"\a", b"b": b"\b",
            b"v": b"\v", b"f": b"\f", b"r": b"\r"}  # fmt: skip


class BadDiff(Exception):
    """The diff does not describe a change of these files."""


def strict_patch(diff: bytes, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """All files after the diff."""
    result = dict(files)
    starts = [match.start() for match in _FILE.finditer(diff)]
    if diff and starts[:1] != [0]:
        raise BadDiff("does not begin with a file")
    for start, end in zip(starts, [*starts[1:], len(diff)], strict=True):
        _patch_file(diff[start:end], result)
    return result


def _patch_file(part: bytes, files: dict[str, bytes]) -> None:
    lines = _lines(part)
    first = next((i for i, line in enumerate(lines) if line.startswith(b"@@ ")), len(lines))
    head = lines[:first]
    old, new = (_named(head, mark) for mark in (b"--- ", b"+++ "))
    if old is None and new is None:  # an empty file came or went, or a rename
        _patch_empty(head, files)
        return
    before = b"" if old is None else files[old]
    after = _patched(_lines(before), lines[first:])
    if old is not None and old != new:
        del files[old]
    if new is not None:
        files[new] = after
    elif after:
        raise BadDiff("a deleted file has lines left")


def _patch_empty(head: Sequence[bytes], files: dict[str, bytes]) -> None:
    names = re.fullmatch(rb'diff --git "?a/(.*?)"? "?b/(.*?)"?\n', head[0])
    renamed = [line[12:-1] for line in head if line.startswith(b"rename from ")]
    target = [line[10:-1] for line in head if line.startswith(b"rename to ")]
    if renamed and target:
        files[_unquoted(target[0])] = files.pop(_unquoted(renamed[0]))
    elif names and any(line.startswith(b"new file") for line in head):
        files[_unquoted(names[2])] = b""
    elif names and any(line.startswith(b"deleted file") for line in head):
        if files.pop(_unquoted(names[1])) != b"":
            raise BadDiff("a file with content is deleted without hunks")
    elif not any(line.startswith((b"old mode", b"new mode")) for line in head):
        raise BadDiff("a file without hunks")


def _named(head: Sequence[bytes], mark: bytes) -> str | None:
    for line in head:
        if line.startswith(mark):
            raw = line[4:].rstrip(b"\n").removesuffix(b"\t")
            return None if raw == b"/dev/null" else _unquoted(raw)[2:]
    return None


def _unquoted(raw: bytes) -> str:
    if raw.startswith(b'"'):
        raw = _ESCAPE.sub(
            lambda m: bytes([int(m[1], 8)]) if len(m[1]) == 3 else _LETTERS[m[1]], raw[1:-1]
        )
    return raw.decode("utf-8", "surrogateescape")


def _lines(data: bytes) -> list[bytes]:
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _patched(old: Sequence[bytes], body: Sequence[bytes]) -> bytes:
    result: list[bytes] = []
    at = index = 0
    while index < len(body):
        match = _HUNK.fullmatch(body[index])
        if match is None:
            raise BadDiff(f"no hunk header: {body[index][:60]!r}")
        start, count, new_start, new_count = (int(n) if n else 1 for n in match.groups())
        first = start - 1 if count else start
        result.extend(old[at:first])
        if len(result) != (new_start - 1 if new_count else new_start):
            raise BadDiff("the new side's number is wrong")
        hunk, index = _hunk(body, index + 1, count, new_count)
        gone = [line for sign, line in hunk if sign != b"+"]
        if list(old[first : first + count]) != gone:
            raise BadDiff(f"line {start} is not as the hunk shows it")
        result.extend(line for sign, line in hunk if sign != b"-")
        at = first + count
    return b"".join([*result, *old[at:]])


def _hunk(
    body: Sequence[bytes], index: int, old: int, new: int
) -> tuple[list[tuple[bytes, bytes]], int]:
    lines: list[tuple[bytes, bytes]] = []
    while index < len(body) and (old or new or body[index].startswith(b"\\")):
        line = body[index]
        sign = line[:1]
        if sign == b"\\":
            lines[-1] = (lines[-1][0], lines[-1][1].removesuffix(b"\n"))
        elif sign in (b" ", b"-", b"+"):
            lines.append((sign, line[1:]))
            old -= sign != b"+"
            new -= sign != b"-"
        else:
            raise BadDiff(f"odd line in a hunk: {line[:60]!r}")
        index += 1
    if old or new:
        raise BadDiff("the counts of a hunk are wrong")
    return lines, index
