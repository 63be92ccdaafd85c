"""What `agent apply --json` says about the way that edits were placed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.cli.commands.apply import ApplyRequest, run

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]

SOURCE = "import os\n\n\ndef area(r):\n    return 3 * r\n"
REPLY = {
    "thought": "Use math.pi; that needs `import math`.",
    "edits": [
        {"path": "/testbed/lib/shape.py", "search": "def area(r):\n  return 3 * r\n",
         "replace": "def area(r):\n  return math.pi * r\n"},
    ],
}  # fmt: skip


def apply(
    make_repository: MakeRepository, tmp_path: Path, **flags: object
) -> tuple[int, ApplyRequest]:
    reply = tmp_path / "reply.json"
    reply.write_text(json.dumps(REPLY))
    repository = make_repository({"lib/shape.py": SOURCE})
    request = ApplyRequest(str(reply), repository, None, "include", None, False, True, True)
    return run(request, flags), request


def test_tier_path_and_repairs_are_reported(
    make_repository: MakeRepository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = apply(make_repository, tmp_path)
    result = json.loads(capsys.readouterr().out)
    assert code == 0
    [attempt] = result["attempts"]
    assert attempt["edits"] == [
        {
            "path": "lib/shape.py",
            "tier": "white-space",
            "line": 5,
            "path_as_written": "/testbed/lib/shape.py",
        }
    ]
    assert attempt["repairs"] == [
        {"name": "path", "note": "taken for lib/shape.py", "saved": "refused-path", "edit": 1},
        {
            "name": "missing-import",
            "note": "lib/shape.py: import math",
            "saved": "undefined-name",
            "edit": None,
        },
    ]
    assert "+import math\n" in result["diff"]
