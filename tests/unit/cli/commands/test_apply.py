"""What `agent apply --json` says about the way that edits were placed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.agent_process import call_agent

MakeRepository = Callable[[Mapping[str, str | bytes]], Path]

SOURCE = "import os\n\n\ndef area(r):\n    return 3 * r\n"
REPLY = {
    "thought": "Use math.pi; that needs `import math`.",
    "edits": [
        {"path": "/testbed/lib/shape.py", "search": "def area(r):\n  return 3 * r\n",
         "replace": "def area(r):\n  return math.pi * r\n"},
    ],
}  # fmt: skip


def test_tier_path_and_repairs_are_reported(
    make_repository: MakeRepository, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reply = tmp_path / "reply.json"
    reply.write_text(json.dumps(REPLY))
    repository = make_repository({"lib/shape.py": SOURCE})
    assert call_agent("apply", "--json", "--quiet", reply=reply, repo=repository) == 0
    result = json.loads(capfd.readouterr().out)
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
    ]
