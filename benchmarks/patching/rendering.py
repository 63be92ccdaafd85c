"""Gives a draft one of the shapes in which models reply, with the slips that go with it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence

from benchmarks.patching.perturbing import Draft, Piece, text_of

_FENCES: Mapping[str, str] = {"py": "python", "ts": "typescript", "js": "javascript", "rs": "rust"}

Render = Callable[[Draft, random.Random], str]


def as_json(draft: Draft, rng: random.Random) -> str:
    """The reply that the prompt asks for."""
    edits = []
    for piece, search in _searches(draft):
        edit: dict[str, object] = {
            "path": draft.given, "search": text_of(search), "replace": text_of(piece.new)
        }  # fmt: skip
        if draft.hints:
            edit["line"] = piece.line
        edits.append(edit)
    reply = {"thought": "The condition is wrong.", "edits": edits}
    return _slipped(reply, draft.slip, rng)


def as_blocks(draft: Draft, rng: random.Random) -> str:
    """Fenced SEARCH/REPLACE blocks under the path."""
    size = rng.choice((7, 7, 7, 5, 9))
    parts = ["I change the following.\n"]
    for piece, search in _searches(draft):
        parts.append(
            f"{draft.given}\n```{_language(draft)}\n{'<' * size} SEARCH\n{text_of(search)}"
            f"{'=' * size}\n{text_of(piece.new)}{'>' * size} REPLACE\n```\n"
        )
    return "\n".join(parts)


def as_diff(draft: Draft, rng: random.Random) -> str:
    """A fenced unified diff; its hunk headers as `draft.numbers` says."""
    lines = [f"--- a/{draft.given}", f"+++ b/{draft.given}"]
    shift = 0
    for piece in draft.pieces:
        lines.append(_header(piece, shift, draft.numbers, rng))
        shift += len(piece.new) - len(piece.old)
        bare = draft.slip == "bare-blank"
        lines.extend(
            "" if bare and (sign, text) == (" ", "") else sign + text for sign, text in piece.marked
        )
    return "Here is the patch.\n\n```diff\n" + "\n".join(lines) + "\n```\n"


def as_envelope(draft: Draft, rng: random.Random) -> str:
    """An apply_patch envelope."""
    del rng
    lines = ["*** Begin Patch", f"*** Update File: {draft.given}"]
    for piece in draft.pieces:
        lines.append("@@")
        lines.extend(sign + text for sign, text in piece.marked)
    return "\n".join([*lines, "*** End Patch"]) + "\n"


def as_whole(draft: Draft, rng: random.Random) -> str:
    """The path and the whole new file in a fence."""
    del rng
    return f"The file after the change:\n\n{draft.given}\n```{_language(draft)}\n{draft.whole}```\n"


SHAPES: Mapping[str, Render] = {
    "json": as_json,
    "blocks": as_blocks,
    "diff": as_diff,
    "envelope": as_envelope,
    "whole": as_whole,
}


def _searches(draft: Draft) -> list[tuple[Piece, Sequence[str]]]:
    searches = draft.search or tuple(tuple(piece.old) for piece in draft.pieces)
    return list(zip(draft.pieces, searches, strict=True))


def _language(draft: Draft) -> str:
    suffix = draft.path.rsplit(".", 1)[-1]
    return _FENCES.get(suffix, suffix)


def _header(piece: Piece, shift: int, numbers: str, rng: random.Random) -> str:
    old, new = len(piece.old), len(piece.new)
    first = piece.line
    match numbers:
        case "none":
            return rng.choice(("@@ ... @@", "@@ @@", "@@"))
        case "counts":
            old, new = (max(1, n + rng.choice((-2, -1, 1, 2))) for n in (old, new))
        case "wrong":
            first = max(1, first + rng.choice((-40, -7, -2, 1, 3, 25, 300)))
    return f"@@ -{first},{old} +{first + shift},{new} @@"


# ------------------------------------------------------------------------------------------- slips


def _slipped(value: Mapping[str, object], slip: str, rng: random.Random) -> str:
    """JSON as models write it. Each slip leaves what is meant beyond doubt."""
    plain = json.dumps(value, indent=2, ensure_ascii=rng.random() < 0.5)
    match slip:
        case "fence":
            return f"```json\n{plain}\n```"
        case "prose":
            return f"The cause is a wrong condition.\n\n{plain}\n\nThis keeps the {{tests}} green."
        case "trailing-commas":
            return re.sub(r'(["\d\]}])\n(\s*[\]}])', r"\1,\n\2", plain)
        case "comments":
            return plain.replace("\n", "\n  // the change\n", 1)
        case "raw-newlines":
            return re.sub(r"(?<!\\)((?:\\\\)*)\\n", r"\1\n", plain)
        case "single-quotes":
            return repr(value)
    return plain
