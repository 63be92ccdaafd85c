"""A run folder whose every text, name and file attacks who reads a report of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from agent.batch import Started
from agent.datasets import folder_name
from tests.support.run_folders import RunFolder, validation

ATTACK = (
    "</script></noscript></style></pre></title>--><script>window.pwned=1</script>"
    '<img src=x onerror="window.pwned=2"><svg onload="window.pwned=3">'
    "\"'><iframe srcdoc='<script>parent.pwned=4</script>'></iframe>"
    '<style>*{display:none}</style>{{ 7*7 }}{% raw %}<a href="javascript:window.pwned=5">x</a>'
)
HIDDEN = "a\u202eb\u2066c\u200bd\x1b[31me\x00f\x9bg\U000e0041h\ufeffi"
SHOWN = "a⟨U+202E⟩b⟨U+2066⟩c⟨U+200B⟩d␛[31me␀f⟨U+009B⟩g⟨U+E0041⟩h⟨U+FEFF⟩i"
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
OUTSIDE = "this lies outside of the run"
ID = 'x"><script>window.pwned=6</script>'

# In every string of a result; alone they would end the work before anything is drawn.
_MARKED = f"{ATTACK} {HIDDEN} {SECRET} "


def make_hostile_run(root: Path) -> None:
    """Write the run."""
    made = RunFolder(root)
    for number in range(3):
        task = made.task(number, problem_statement=f"{_MARKED}\n\n```\n{_MARKED}\n```\n# {_MARKED}")
        made.end(task, "accepted", "verified", "fine")
        _spoil(root / "instances" / folder_name(task.instance_id), task.instance_id)
    named = made.task(3, instance_id=ID)
    made.end(named, "not-applied", None, _MARKED)
    for name in ("linked__folder-1", "linked__files-1"):
        linked = made.task(4, instance_id=name)
        made.add(Started(id=linked.instance_id, attempt=1))
    made.write()
    _links(root)
    with (root / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"event": "stage", broken\n\xff\xfe\x00\n' + b'{"event":"started"')


def _spoil(folder: Path, name: str) -> None:
    """Every text of an instance's files."""
    result = json.loads((folder / "result.json").read_text())
    result["attempts"][0]["validation"] = validation("verified", "fine")
    result = _with_attacks(result)
    for field in ("timings", "usage"):
        assert result[field]
    result["status"], result["verdict"] = "accepted", "verified"
    result["diff"] = ""
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "patch.diff").write_bytes(
        f"diff --git a/{ATTACK} b/x{ATTACK}.py\n@@ -1,2 +1,2 @@ {_MARKED}\n-{_MARKED}\n"
        f"+{_MARKED}\n+# {'x' * 5000}\n".encode()
        + b"+\xff\xfe\x00 not text\n"
    )
    (folder / "log.txt").write_bytes(b"\xff\x00" + _MARKED.encode() * 400)
    exchange = json.loads((folder / "exchanges.jsonl").read_text())
    usage = exchange["reply"].pop("usage")
    exchange = {**_with_attacks(exchange), "kind": exchange["kind"]}
    for message in exchange["request"]["messages"]:
        message["role"] = "user"  # a call with another role is left out
    exchange["reply"]["usage"] = usage
    exchange["reply"]["text"] = _MARKED * 3000
    (folder / "exchanges.jsonl").write_text(f"{json.dumps(exchange)}\n{{torn\n")


def _with_attacks(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_attacks(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_attacks(inner) for inner in value]
    return f"{_MARKED}{value}" if isinstance(value, str) else value


def _links(root: Path) -> None:
    """Links that lead out of the run, a pipe that nobody writes, and a file without an end."""
    outside = root.parent / "outside"
    outside.mkdir()
    for name in ("result.json", "log.txt", "patch.diff"):
        (outside / name).write_text(json.dumps({"status": OUTSIDE, "message": OUTSIDE}))
    (root / "instances" / "linked__folder-1").symlink_to(outside)
    holder = root / "instances" / "linked__files-1"
    holder.mkdir()
    (holder / "result.json").symlink_to(outside / "result.json")
    (holder / "patch.diff").symlink_to(outside / "patch.diff")
    os.mkfifo(holder / "log.txt")
