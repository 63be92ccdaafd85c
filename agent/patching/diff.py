"""Writes unified diffs in the format of git, with the same bytes for every version of git. Lines
are matched as in patience diff: lines that are unique on both sides are anchors, and between
anchors the longest common subsequence decides. Formats: git's `diff-format` and `quote.c`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Indel

from agent.repository import blob_id
from agent.types import FileChange

_CONTEXT = 3

# Product of line counts up to which a gap is compared exactly; a larger one is replaced as a whole.
_MAX_GAP = 4_000_000

# Hexadecimal digits of a blob id, enough to be unique in any repository.
_ID_DIGITS = 12

# As in git, a hunk is headed by the last line before it that begins with a letter, _ or $.
_HEADING = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_$")
_HEADING_BYTES = 80

_ESCAPES = {0x07: "a", 0x08: "b", 0x09: "t", 0x0A: "n", 0x0B: "v", 0x0C: "f", 0x0D: "r"}

Lines = Sequence[bytes]
_Elements = Sequence[bytes] | Sequence[str]


def unified_diff(changes: Sequence[FileChange]) -> bytes:
    """Return one diff of all changes in order of path, without unchanged files."""
    changed = (change for change in changes if change.before != change.after)
    return b"".join(_file_diff(c) for c in sorted(changed, key=lambda change: change.path))


def _file_diff(change: FileChange) -> bytes:
    old, new = _name("a/", change.path), _name("b/", change.path)
    parts = [b"diff --git %s %s\n" % (old, new), *_mode_lines(change)]
    before, after = _lines(change.before), _lines(change.after)
    if before or after:
        tab = b"\t" if b" " in old else b""  # ends a name that has spaces, as git does
        parts.append(b"--- " + (b"/dev/null" if change.before is None else old + tab) + b"\n")
        parts.append(b"+++ " + (b"/dev/null" if change.after is None else new + tab) + b"\n")
        parts.extend(_hunks(before, after))
    return b"".join(parts)


def _mode_lines(change: FileChange) -> Iterator[bytes]:
    mode = b"100755" if change.executable else b"100644"
    contents = (change.before, change.after)
    blobs = ("0" * 40 if content is None else blob_id(content) for content in contents)
    ids = "..".join(blob[:_ID_DIGITS] for blob in blobs).encode()
    if change.before is None:
        yield b"new file mode %s\n" % mode
    if change.after is None:
        yield b"deleted file mode %s\n" % mode
    both = change.before is not None and change.after is not None
    yield b"index %s%s\n" % (ids, b" " + mode if both else b"")


def _name(prefix: str, path: str) -> bytes:
    raw = (prefix + path).encode("utf-8", "surrogateescape")
    if not any(byte < 0x20 or byte in b'"\\\x7f' for byte in raw):
        return raw
    return b'"' + b"".join(map(_quoted, raw)) + b'"'


def _quoted(byte: int) -> bytes:
    if byte in _ESCAPES:
        return f"\\{_ESCAPES[byte]}".encode()
    if byte in b'"\\':
        return b"\\" + bytes([byte])
    return b"\\%03o" % byte if byte < 0x20 or byte == 0x7F else bytes([byte])


def _lines(content: bytes | None) -> Lines:
    """Split into lines with their line feeds; the last may lack one."""
    if not content:
        return ()
    lines = [line + b"\n" for line in content.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _hunks(a: Lines, b: Lines) -> Iterator[bytes]:
    heading, looked = b"", 0
    for group in _groups([step for step in steps(a, b, exact=0) if not step.equal]):
        start = max(0, group[0].a_start - _CONTEXT)
        heading = _heading(a, looked, start) or heading
        looked = start
        yield _hunk(a, b, group, heading)


def _groups(changes: Sequence[Step]) -> Iterator[list[Step]]:
    group: list[Step] = []
    for change in changes:
        if group and change.a_start - group[-1].a_end > 2 * _CONTEXT:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _hunk(a: Lines, b: Lines, group: Sequence[Step], heading: bytes) -> bytes:
    first, last = group[0], group[-1]
    lead = min(_CONTEXT, first.a_start)
    trail = min(_CONTEXT, len(a) - last.a_end)
    a_span = _span(first.a_start - lead, last.a_end + trail)
    b_span = _span(first.b_start - lead, last.b_end + trail)
    parts = [b"@@ -%s +%s @@%s\n" % (a_span, b_span, b" " + heading if heading else b"")]
    position = first.a_start - lead
    for change in group:
        parts.extend(_marked(b" ", a[position : change.a_start]))
        parts.extend(_marked(b"-", a[change.a_start : change.a_end]))
        parts.extend(_marked(b"+", b[change.b_start : change.b_end]))
        position = change.a_end
    parts.extend(_marked(b" ", a[position : position + trail]))
    return b"".join(parts)


def _span(start: int, end: int) -> bytes:
    count = end - start
    first = start + 1 if count else start
    return b"%d" % first if count == 1 else b"%d,%d" % (first, count)


def _marked(sign: bytes, lines: Lines) -> Iterator[bytes]:
    for line in lines:
        yield sign + line
        if not line.endswith(b"\n"):
            yield b"\n\\ No newline at end of file\n"


def _heading(a: Lines, floor: int, start: int) -> bytes:
    for index in range(start - 1, floor - 1, -1):
        if a[index][0] in _HEADING:
            # Readers ignore this text, so a character that is cut in half can be dropped.
            return a[index][:_HEADING_BYTES].decode("utf-8", "ignore").rstrip().encode()
    return b""


@dataclass(frozen=True, slots=True)
class Step:
    """Elements `a_start:a_end` of one sequence become `b_start:b_end` of the other."""

    equal: bool
    a_start: int
    a_end: int
    b_start: int
    b_end: int


def steps(a: _Elements, b: _Elements, *, exact: int = _MAX_GAP) -> list[Step]:
    """Return a short edit from one sequence to the other, as equal and changed runs. `exact`:
    product of lengths up to which anchors are not used, so that it is the shortest.
    """
    result: list[Step] = []
    a_done = b_done = 0
    for a_start, b_start, size in [*_common_runs(a, b, exact), (len(a), len(b), 0)]:
        if (a_done, b_done) != (a_start, b_start):
            result.append(Step(False, a_done, a_start, b_done, b_start))
        if size:
            result.append(Step(True, a_start, a_start + size, b_start, b_start + size))
        a_done, b_done = a_start + size, b_start + size
    return result


def _common_runs(a: _Elements, b: _Elements, exact: int) -> list[tuple[int, int, int]]:
    """Return runs (a, b, size) of equal lines, increasing on both sides."""
    runs: list[tuple[int, int, int]] = []
    pending = [(0, len(a), 0, len(b))]
    while pending:
        a_low, a_high, b_low, b_high = pending.pop()
        head = shared_start(a[a_low:a_high], b[b_low:b_high])
        a_low, b_low = a_low + head, b_low + head
        tail = shared_start(a[a_low:a_high][::-1], b[b_low:b_high][::-1])
        a_high, b_high = a_high - tail, b_high - tail
        runs.extend(((a_low - head, b_low - head, head), (a_high, b_high, tail)))
        if a_low == a_high or b_low == b_high:
            continue
        is_small = (a_high - a_low) * (b_high - b_low) <= exact
        anchors = [] if is_small else _anchors(a[a_low:a_high], b[b_low:b_high])
        if anchors:
            pending.extend(_between(anchors, a_low, a_high, b_low, b_high))
        else:
            runs.extend(_exact_runs(a, b, a_low, a_high, b_low, b_high))
    return sorted(run for run in runs if run[2])


def shared_start(a: Sequence[object], b: Sequence[object]) -> int:
    """Return the length of the common start."""
    size = min(len(a), len(b))
    return next((k for k in range(size) if a[k] != b[k]), size)


def _between(
    anchors: Sequence[tuple[int, int]], a_low: int, a_high: int, b_low: int, b_high: int
) -> Iterator[tuple[int, int, int, int]]:
    """Return the regions between anchors; all but the first begin with their anchor."""
    a_start, b_start = a_low, b_low
    for a_anchor, b_anchor in anchors:
        yield a_start, a_low + a_anchor, b_start, b_low + b_anchor
        a_start, b_start = a_low + a_anchor, b_low + b_anchor
    yield a_start, a_high, b_start, b_high


def _anchors(a: _Elements, b: _Elements) -> list[tuple[int, int]]:
    """Return lines unique on both sides, as the longest increasing sequence of index pairs."""
    in_a, in_b = Counter(a), Counter(b)
    place = {line: index for index, line in enumerate(b) if in_b[line] == 1}
    pairs = [
        (index, place[line]) for index, line in enumerate(a) if in_a[line] == 1 and line in place
    ]
    tops: list[int] = []  # smallest last b-index of an increasing sequence of each length
    ends: list[int] = []  # the pair that has it
    previous = [-1] * len(pairs)
    for number, (_, b_index) in enumerate(pairs):
        length = bisect_left(tops, b_index)
        previous[number] = ends[length - 1] if length else -1
        tops[length : length + 1] = [b_index]
        ends[length : length + 1] = [number]
    chain: list[tuple[int, int]] = []
    number = ends[-1] if ends else -1
    while number >= 0:
        chain.append(pairs[number])
        number = previous[number]
    return chain[::-1]


def _exact_runs(
    a: _Elements, b: _Elements, a_low: int, a_high: int, b_low: int, b_high: int
) -> Iterator[tuple[int, int, int]]:
    if (a_high - a_low) * (b_high - b_low) > _MAX_GAP:
        return
    for step in Indel.opcodes(list(a[a_low:a_high]), list(b[b_low:b_high])):
        if step.tag == "equal":
            size = step.src_end - step.src_start
            yield a_low + step.src_start, b_low + step.dest_start, size
