"""`agent mcp` through the client of the official SDK, over a real process."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_process import agent_environment
from tests.support.sandboxes import require_bwrap
from tests.support.scripted_provider import ScriptedProvider

mcp = pytest.importorskip("mcp", reason="extra `mcp` missing")

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(150)]

BROKEN = "def double(number):\n    return number * 3\n"
TEST = "from shop import double\n\n\ndef test_double():\n    assert double(4) == 8\n"
DIFF = """--- a/shop.py
+++ b/shop.py
@@ -1,2 +1,2 @@
 def double(number):
-    return number * 3
+    return number * 2
--- /dev/null
+++ b/tests/test_double.py
@@ -0,0 +1,5 @@
+from shop import double
+
+
+def test_double():
+    assert double(4) == 8
"""


@pytest.fixture
def repository(make_repository: Callable[[Mapping[str, str]], Path]) -> Path:
    require_bwrap()
    return make_repository(
        {"shop.py": BROKEN, "tests/test_old.py": "def test_nothing():\n    pass\n"}
    )


def call(
    repository: Path, home: Path, tool: str, arguments: dict[str, Any], **settings: str
) -> tuple[Any, list[str]]:
    """Start a server, call one tool, and return its result and the progress messages."""
    messages: list[str] = []

    async def progress(_: float, __: float | None, message: str | None) -> None:
        messages.append(message or "")

    async def talk() -> Any:
        environment = {
            **agent_environment(home),
            **{f"PATCHSHOT_{name.upper()}": value for name, value in settings.items()},
        }
        server = mcp.StdioServerParameters(
            command=sys.executable,
            args=["-m", "agent", "mcp", "--repo", str(repository)],
            env=environment,
        )
        async with mcp.Client(mcp.stdio_client(server)) as client:
            tools = {one.name for one in (await client.list_tools()).tools}
            assert tools == {"search", "context", "solve", "verify", "apply"}
            return await client.call_tool(tool, arguments, progress_callback=progress)

    return asyncio.run(talk()), messages


def test_verify_judges_a_diff_and_reports_progress(repository: Path, tmp_path: Path) -> None:
    result, messages = call(repository, tmp_path, "verify", {"diff": DIFF})
    assert not result.is_error, result
    assert result.structured_content["verdict"] == "verified"
    assert any("test" in message for message in messages)
    assert (repository / "shop.py").read_text("utf-8") == BROKEN


def test_solve_calls_the_model(repository: Path, tmp_path: Path) -> None:
    reply = {
        "edits": [{"path": "shop.py", "search": "number * 3", "replace": "number * 2"}],
        "reproduction_test": {"path": "tests/test_double.py", "content": TEST},
    }
    with ScriptedProvider([json.dumps(reply)]) as provider:
        result, _ = call(
            repository,
            tmp_path,
            "solve",
            {"problem": "double(4) returns 12\n\nIt must return 8."},
            base_url=provider.base_url,
            model=provider.model,
            api_key="test",
            embed="off",
        )
    assert result.structured_content["verdict"] == "verified", result
    assert len(provider.chats) == 1


def test_apply_writes_and_search_finds(repository: Path, tmp_path: Path) -> None:
    found, _ = call(repository, tmp_path, "search", {"query": "double a number"})
    first = found.structured_content["result"][0]
    assert (first["path"], first["symbol"]) == ("shop.py", "double")
    assert "return number * 3" in first["code"]
    applied, _ = call(repository, tmp_path, "apply", {"diff": DIFF})
    assert applied.structured_content["result"] == ["shop.py", "tests/test_double.py"]
    assert "* 2" in (repository / "shop.py").read_text("utf-8")


def test_a_refused_diff_is_an_error_with_its_reason(repository: Path, tmp_path: Path) -> None:
    diff = DIFF.replace("shop.py", ".git/config")
    result, _ = call(repository, tmp_path, "apply", {"diff": diff})
    assert result.is_error
    assert ".git" in result.content[0].text
