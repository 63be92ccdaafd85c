"""What models get wrong, done to drafts of which the truth is known. Each has a fixed seed.

A draft is a reply before it has a shape: pieces of marked lines, each unique in the file, and the
truth. A perturbation gives a new draft, with the truth that a careful person would hold to, or
None where it does not fit the draft. `rendering` gives a draft its shape.
"""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.patching.cases import Likeness, Wanted

Marked = tuple[str, str]  # sign (" ", "-", "+") and text

# Context lines that models give around a change, and the most that a piece grows to be unique.
_CONTEXT = 3
_MOST_CONTEXT = 24


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines of one place, as a diff marks them. `line`: where they begin in the old file."""

    marked: tuple[Marked, ...]
    line: int

    @property
    def old(self) -> list[str]:
        """The lines to be replaced."""
        return [text for sign, text in self.marked if sign != "+"]

    @property
    def new(self) -> list[str]:
        """The lines to put there."""
        return [text for sign, text in self.marked if sign != "-"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A reply without a shape. `given` is the path as the reply spells it.

    `search`: search lines per piece where they differ from the pieces' own (line numbers).
    `numbers`: of a diff's hunk headers: right, wrong, counts (those are wrong), none.
    `hints`: the reply gives the right line of each piece, in shapes that can.
    `slip`: how the rendered reply is damaged or wrapped, see `rendering`.
    """

    path: str
    given: str
    pieces: tuple[Piece, ...]
    files: Mapping[str, bytes]
    after: Mapping[str, bytes]
    wanted: Wanted = Wanted.APPLY
    search: tuple[tuple[str, ...], ...] = ()
    numbers: str = "right"
    hints: bool = False
    slip: str = ""
    finish_reason: str = "stop"
    likeness: Likeness = Likeness.BYTES
    whole: str = ""  # the content that a whole-file reply gives

    def with_file(self, before: bytes, after: bytes) -> Draft:
        """The same with other contents of the edited file."""
        return replace(self, files={**self.files, self.path: before}, after={self.path: after})


@dataclass(frozen=True, slots=True)
class Change:
    """One modified file of a real commit, and unchanged files beside it."""

    id: str
    path: str
    old: str
    new: str
    beside: Mapping[str, bytes] = field(default_factory=dict)


def draft(change: Change, *, context: int = _CONTEXT) -> Draft | None:
    """The change as pieces that are unique when applied in order, or None."""
    pieces = tuple(_pieces(change.old, change.new, context))
    if not pieces or not _rebuilds(change, pieces):
        return None
    files = {**change.beside, change.path: change.old.encode()}
    after = {change.path: change.new.encode()}
    return Draft(change.path, change.path, pieces, files, after, whole=change.new)


def _pieces(old: str, new: str, context: int) -> Iterator[Piece]:
    a, b = old.split("\n")[:-1], new.split("\n")[:-1]
    codes = difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    done = 0
    for group in _groups([code for code in codes if code[0] != "equal"], 2 * context):
        start, end = group[0][1], group[-1][2]
        for extent in range(context, _MOST_CONTEXT):
            low, high = max(done, start - extent), min(len(a), end + extent)
            if _unique(old, a[low:high]):
                break
        yield Piece(tuple(_marked(a, b, group, low, high)), low + 1)
        done = end


def _groups(
    codes: Sequence[tuple[str, int, int, int, int]], apart: int
) -> list[list[tuple[str, int, int, int, int]]]:
    groups: list[list[tuple[str, int, int, int, int]]] = []
    for code in codes:
        if groups and code[1] - groups[-1][-1][2] <= apart:
            groups[-1].append(code)
        else:
            groups.append([code])
    return groups


def _marked(
    a: Sequence[str],
    b: Sequence[str],
    group: Sequence[tuple[str, int, int, int, int]],
    low: int,
    high: int,
) -> Iterator[Marked]:
    position = low
    for _, i, j, k, m in group:
        yield from ((" ", line) for line in a[position:i])
        yield from (("-", line) for line in a[i:j])
        yield from (("+", line) for line in b[k:m])
        position = j
    yield from ((" ", line) for line in a[position:high])


def text_of(lines: Sequence[str]) -> str:
    """Lines as the text that a search or replace field holds."""
    return "".join(f"{line}\n" for line in lines)


def times(text: str, part: str) -> int:
    """How often a part occurs as whole lines, overlapping places too."""
    padded, wanted = "\n" + text, "\n" + part
    count, at = 0, padded.find(wanted)
    while at >= 0:
        count, at = count + 1, padded.find(wanted, at + 1)
    return count


def _unique(text: str, lines: Sequence[str]) -> bool:
    return any(line.strip() for line in lines) and text.count(text_of(lines)) == 1


def _rebuilds(change: Change, pieces: Sequence[Piece]) -> bool:
    """Whether plain replacement, one piece after the other, gives the new text."""
    text = change.old
    for piece in pieces:
        search = text_of(piece.old)
        if not search.strip() or text.count(search) != 1:
            return False
        text = text.replace(search, text_of(piece.new))
    return text == change.new


# ----------------------------------------------------------------------------------- perturbations

LINES = frozenset({"json", "blocks", "diff", "envelope"})  # shapes that quote lines
SEARCHES = frozenset({"json", "blocks"})
ALL = LINES | {"whole"}
JSON = frozenset({"json"})

_TYPOGRAPHIC = str.maketrans({"'": "\u2019", '"': "\u201d", "-": "\u2013", " ": " "})
_NUMBERED = ("{n:>5} | ", "{n}: ", "{n:>4}\t", "{n} ")
_ELLIPSES = ("...", "# ...", "// ...", "    ...", "# ... existing code ...", "…")
_WORD = re.compile(r"[A-Za-z_]{5,}")

# Fewest equal lines in a row of which the middle can be left out.
_RUN = 6

Perturb = Callable[[Draft, random.Random], Draft | None]


@dataclass(frozen=True, slots=True)
class Perturbation:
    """A way to go wrong. `context`: how many lines around a change its draft needs."""

    name: str
    shapes: frozenset[str]
    change: Perturb
    context: int = 3


def _each_line(draft: Draft, change: Callable[[Marked], str]) -> Draft | None:
    """Pieces whose search text stays as it is stay wholly: nothing would tell of the slip."""
    pieces = []
    for piece in draft.pieces:
        changed = replace(piece, marked=tuple((one[0], change(one)) for one in piece.marked))
        pieces.append(changed if changed.old != piece.old else piece)
    done = tuple(pieces)
    return replace(draft, pieces=done) if done != draft.pieces else None


# ----------------------------------------------------------------------------------- white space


def _plain(draft: Draft, rng: random.Random) -> Draft:
    del rng
    return draft


def _trailing(draft: Draft, rng: random.Random) -> Draft | None:
    return _each_line(
        draft, lambda one: one[1] if one[0] == "+" else one[1] + rng.choice(("", " ", "  ", "\t"))
    )


def _dedented(draft: Draft, rng: random.Random) -> Draft | None:
    del rng
    lines = [text for piece in draft.pieces for _, text in piece.marked if text]
    shared = min((len(line) - len(line.lstrip(" ")) for line in lines), default=0)
    return _each_line(draft, lambda one: one[1][shared:])


def _indented(draft: Draft, rng: random.Random) -> Draft | None:
    more = " " * rng.choice((2, 4, 8))
    return _each_line(draft, lambda one: more + one[1] if one[1] else "")


def _tabs(draft: Draft, rng: random.Random) -> Draft | None:
    del rng

    def change(one: Marked) -> str:
        bare = one[1].lstrip(" \t")
        lead = one[1][: len(one[1]) - len(bare)]
        if "\t" in lead:
            return lead.replace("\t", "    ") + bare
        return "\t" * (len(lead) // 4) + bare if len(lead) % 4 == 0 else one[1]

    return _each_line(draft, change)


def _blank_lines(draft: Draft, rng: random.Random) -> Draft | None:
    del rng
    pieces = tuple(
        replace(piece, marked=tuple(one for one in piece.marked if one[0] != " " or one[1].strip()))
        for piece in draft.pieces
    )
    if pieces == draft.pieces or not all(any(x[0] == " " for x in p.marked) for p in pieces):
        return None
    return replace(draft, pieces=pieces, wanted=Wanted.EITHER, likeness=Likeness.BLANK)


# ------------------------------------------------------------------------------------------- text


def _typographic(draft: Draft, rng: random.Random) -> Draft | None:
    del rng
    return _each_line(
        draft, lambda one: one[1] if one[0] == "+" else one[1].translate(_TYPOGRAPHIC)
    )


def _numbered(draft: Draft, rng: random.Random) -> Draft | None:
    """Only the search text has line numbers."""
    form = rng.choice(_NUMBERED)
    search = tuple(
        tuple(form.format(n=piece.line + k) + line for k, line in enumerate(piece.old))
        for piece in draft.pieces
    )
    return replace(draft, search=search)


def _numbered_both(draft: Draft, rng: random.Random) -> Draft | None:
    """Both sides have them; those of the new side count on."""
    form = rng.choice(_NUMBERED)
    pieces = []
    for piece in draft.pieces:
        old, marked = piece.line, []
        for sign, text in piece.marked:
            marked.append((sign, form.format(n=old) + text))
            old += sign != "+"
        pieces.append(replace(piece, marked=tuple(marked)))
    return replace(draft, pieces=tuple(pieces))


def _word(sign: str) -> Perturb:
    """One word of one context (or removed) line is another."""

    def change(draft: Draft, rng: random.Random) -> Draft | None:
        pieces = list(draft.pieces)
        which = rng.randrange(len(pieces))
        marked = list(pieces[which].marked)
        fit = [i for i, one in enumerate(marked) if one[0] == sign and _WORD.search(one[1])]
        if not fit:
            return None
        at = rng.choice(fit)
        text = marked[at][1]
        word = rng.choice(_WORD.findall(text))
        marked[at] = (sign, text.replace(word, word + rng.choice(("s", "_new", "2")), 1))
        pieces[which] = replace(pieces[which], marked=tuple(marked))
        return replace(draft, pieces=tuple(pieces), wanted=Wanted.EITHER)

    return change


def _elided(draft: Draft, rng: random.Random) -> Draft | None:
    """The middle of a long run of context is `...` on both sides; head and tail are unique."""
    text = draft.files[draft.path].decode()
    ellipsis = rng.choice(_ELLIPSES)
    pieces = []
    for piece in draft.pieces:
        pieces.append(_shortened(piece, text, ellipsis) or piece)
    done = tuple(pieces)
    return replace(draft, pieces=done) if done != draft.pieces else None


def _shortened(piece: Piece, text: str, ellipsis: str) -> Piece | None:
    signs = "".join(sign for sign, _ in piece.marked)
    for run in re.finditer(rf" {{{_RUN},}}", signs):
        head, tail = run.start() + 2, run.end() - 2
        if run.start() == 0 or run.end() == len(signs):
            head, tail = run.start() + 2, run.end() - 2
        first = [t for sign, t in piece.marked[:head] if sign != "+"]
        last = [t for sign, t in piece.marked[tail:] if sign != "+"]
        if times(text, text_of(first)) == 1 and times(text, text_of(last)) == 1:
            kept = (*piece.marked[:head], (" ", ellipsis), *piece.marked[tail:])
            return replace(piece, marked=kept)
    return None


# ------------------------------------------------------------------------------------------ places


def _duplicated(hints: bool, numbers: str = "none") -> Perturb:
    """The place of a piece stands a second time in the file: without a hint nothing decides."""

    def change(draft: Draft, rng: random.Random) -> Draft | None:
        piece = rng.choice(draft.pieces)
        before, after = draft.files[draft.path], draft.after[draft.path]
        copy = b"\n" + text_of(piece.old).encode()
        hinted = replace(draft.with_file(before + copy, after + copy), hints=hints, numbers=numbers)
        return hinted if hints else replace(hinted, wanted=Wanted.REFUSE)

    return change


def _absent(draft: Draft, rng: random.Random) -> Draft | None:
    """One piece quotes lines of another file."""
    others = [content for path, content in sorted(draft.files.items()) if path != draft.path]
    pieces = list(draft.pieces)
    which = rng.randrange(len(pieces))
    for content in rng.sample(others, len(others)):
        lines = [line for line in content.decode("utf-8", "replace").split("\n") if line.strip()]
        old = pieces[which].old
        if len(lines) > len(old) + 4:
            start = rng.randrange(len(lines) - len(old))
            quoted = lines[start : start + len(old)]
            if text_of(quoted).encode() in draft.files[draft.path]:
                continue
            marked = tuple(("-", line) for line in quoted) + tuple(
                ("+", line) for line in pieces[which].new
            )
            pieces[which] = replace(pieces[which], marked=marked)
            return replace(draft, pieces=tuple(pieces), wanted=Wanted.REFUSE)
    return None


def _applied(draft: Draft, rng: random.Random) -> Draft | None:
    """The file is as the reply wants it already."""
    del rng
    after = draft.after[draft.path]
    bare = b"".join(after.split())
    if any("".join(text_of(p.old).split()).encode() in bare for p in draft.pieces):
        return None
    return replace(draft.with_file(after, after), wanted=Wanted.REFUSE)


# ------------------------------------------------------------------------------ files, encodings


def _crlf(draft: Draft, rng: random.Random) -> Draft | None:
    del rng
    before, after = draft.files[draft.path], draft.after[draft.path]
    if b"\r" in before + after:
        return None
    return draft.with_file(before.replace(b"\n", b"\r\n"), after.replace(b"\n", b"\r\n"))


def _marked_file(draft: Draft, rng: random.Random) -> Draft | None:
    del rng
    mark = b"\xef\xbb\xbf"
    return draft.with_file(mark + draft.files[draft.path], mark + draft.after[draft.path])


def _no_final_newline(draft: Draft, rng: random.Random) -> Draft | None:
    del rng
    before, after = draft.files[draft.path], draft.after[draft.path]
    if before[-2:-1] in (b"\n", b"\r") or after[-2:-1] in (b"\n", b"\r"):
        return None
    return replace(draft.with_file(before[:-1], after[:-1]), whole=draft.whole[:-1] + "\n")


def _path_slip(draft: Draft, rng: random.Random) -> Draft | None:
    folder, _, rest = draft.path.partition("/")
    slips = [f"./{draft.path}", f"repo/{draft.path}", f"/{draft.path}"]
    if rest and folder:
        slips.append(rest)
    if draft.path.lower() != draft.path:
        slips.append(draft.path.lower())
    given = rng.choice(slips)
    alike = [path for path in draft.files if path.casefold().endswith(given.casefold())]
    return None if len(alike) > 1 else replace(draft, given=given)


def _path_ambiguous(draft: Draft, rng: random.Random) -> Draft | None:
    """Only the file's name is given, and two folders have that name with the same content."""
    del rng
    name = draft.path.rsplit("/", 1)[-1]
    if name == draft.path or name in draft.files:
        return None
    twin = f"other_place/{name}"
    files = {**draft.files, twin: draft.files[draft.path]}
    return replace(draft, given=name, files=files, wanted=Wanted.REFUSE)


def _path_unknown(draft: Draft, rng: random.Random) -> Draft | None:
    """A made-up path: to refuse, or to find the one file that has the text."""
    del rng
    return replace(draft, given="core/zz_imagined_module.xyz", wanted=Wanted.EITHER)


# -------------------------------------------------------------------------------------- the reply


def _slip(name: str) -> Perturb:
    return lambda draft, rng: replace(draft, slip=name)


def _headers(numbers: str) -> Perturb:
    return lambda draft, rng: replace(draft, numbers=numbers)


def _cut(finish_reason: str) -> Perturb:
    return lambda draft, rng: replace(
        draft, slip="cut", finish_reason=finish_reason, wanted=Wanted.REFUSE
    )


def _whole_elided(draft: Draft, rng: random.Random) -> Draft | None:
    """A whole file that leaves most of itself out must not become the file."""
    lines = draft.whole.split("\n")
    if len(lines) < 40:
        return None
    note = rng.choice(("# ... rest of the file unchanged ...", "...", "// ... existing code ..."))
    whole = "\n".join([*lines[:10], note, *lines[-10:]])
    return replace(draft, whole=whole, wanted=Wanted.EITHER)


_DIFF = frozenset({"diff"})
_WHOLE = frozenset({"whole"})

PERTURBATIONS: Sequence[Perturbation] = (
    Perturbation("none", ALL, _plain),
    Perturbation("trailing white space", LINES, _trailing),
    Perturbation("indentation removed", LINES, _dedented),
    Perturbation("indentation added", LINES, _indented),
    Perturbation("tabs for spaces", LINES, _tabs),
    Perturbation("typographic signs", LINES, _typographic),
    Perturbation("line numbers in search", SEARCHES, _numbered),
    Perturbation("line numbers in both", LINES, _numbered_both),
    Perturbation("middle left out", LINES, _elided, context=14),
    Perturbation("blank lines dropped", LINES, _blank_lines),
    Perturbation("a context word changed", LINES, _word(" ")),
    Perturbation("a removed word changed", LINES, _word("-")),
    Perturbation("place occurs twice", LINES, _duplicated(hints=False)),
    Perturbation("occurs twice, line hint", frozenset({"json"}), _duplicated(hints=True)),
    Perturbation("occurs twice, hunk number", _DIFF, _duplicated(hints=True, numbers="right")),
    Perturbation("quoted from another file", LINES, _absent),
    Perturbation("already applied", ALL, _applied),
    Perturbation("file has CRLF", ALL, _crlf),
    Perturbation("file has a BOM", ALL, _marked_file),
    Perturbation("no final newline", ALL, _no_final_newline),
    Perturbation("path slip", ALL, _path_slip),
    Perturbation("path ambiguous", ALL, _path_ambiguous),
    Perturbation("path unknown", LINES, _path_unknown),
    Perturbation("hunk numbers wrong", _DIFF, _headers("wrong")),
    Perturbation("hunk counts wrong", _DIFF, _headers("counts")),
    Perturbation("no hunk numbers", _DIFF, _headers("none")),
    Perturbation("blank context lines bare", _DIFF, _slip("bare-blank")),
    Perturbation("JSON in a fence", JSON, _slip("fence")),
    Perturbation("JSON in prose", JSON, _slip("prose")),
    Perturbation("trailing commas", JSON, _slip("trailing-commas")),
    Perturbation("comments", JSON, _slip("comments")),
    Perturbation("raw newlines in strings", JSON, _slip("raw-newlines")),
    Perturbation("single quotes", JSON, _slip("single-quotes")),
    Perturbation("cut off, reported", ALL, _cut("length")),
    Perturbation("cut off, not reported", ALL - _DIFF, _cut("stop")),
    Perturbation("whole file abbreviated", _WHOLE, _whole_elided),
)
