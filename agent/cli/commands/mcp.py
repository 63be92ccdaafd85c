"""`agent mcp`: a server of the Model Context Protocol on stdin and stdout, for one repository."""

# No `from __future__ import annotations`: the SDK evaluates the annotations of the tools, whose
# types are imported inside `make_server`.
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agent import __version__
from agent.cli import options
from agent.cli.commands import common
from agent.errors import ConfigurationError, PatchshotError
from agent.shared.secrets import mask_secrets
from agent.shared.terminal import install_command
from agent.types import Chunk
from agent.types.events import Event, Notice, StageStarted

if TYPE_CHECKING:
    from mcp.server import MCPServer

T = TypeVar("T")

_INSTRUCTIONS = (
    "Patchshot works on one git repository. `verify` judges a diff: it runs the project's tests "
    "before and after it in a sandbox. `solve` asks a model for a patch and judges it. `search` "
    "and `context` show the code that matters for an issue. Only `apply` writes to the work tree."
)

_LINES = 24  # of a result of `search`

# What a caller needs of a result; the rest would fill its context.
_RESULT = {"status", "verdict", "message", "diff", "reproduction_test", "usage", "notes"}


@options.command(
    "mcp",
    settings=options.SOLVE_SETTINGS,
    ending="""
    Example, as the command that an MCP client starts:
      agent mcp --repo /home/me/project

    The tools are search, context, solve, verify and apply.
    """,
)
@options.repo
def mcp_command(flags: Mapping[str, Any], repo: Path) -> int:
    """Serve other agents over the Model Context Protocol (stdio), for one repository."""
    from agent.repository import locate_repository

    common.load_settings(flags, repository=repo)  # report mistakes before a client connects
    locate_repository(repo)
    try:
        server = make_server(repo, flags)
    except ModuleNotFoundError:
        raise ConfigurationError(
            f"the MCP server needs a package that is not installed: {install_command('mcp')}"
        ) from None
    server.run("stdio")
    return 0


def make_server(repo: Path, flags: Mapping[str, Any]) -> "MCPServer":
    """Make the server. Raises ModuleNotFoundError without the extra `mcp`."""
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context
    from mcp_types import ToolAnnotations

    from agent import api
    from agent.search import score_name

    server = MCPServer("patchshot", instructions=_INSTRUCTIONS, version=__version__)
    reads = ToolAnnotations(read_only_hint=True)

    @server.tool(annotations=reads)
    async def search(query: str, limit: int = 10) -> list[dict[str, Any]]:
        """Find the code for a query (words, identifiers, a traceback): places with their code."""
        hits = await _told(api.search_async(query, repo, limit=limit, **flags))
        return [_place(hit.chunk, hit.score, score_name(hits)) for hit in hits]

    @server.tool(annotations=reads)
    async def context(problem: str) -> str:
        """Return the code that has to be seen to solve an issue, within the token budget."""
        return (await _told(api.context_async(problem, repo, **flags))).text

    @server.tool(annotations=reads)
    async def solve(problem: str, ctx: Context[Any, Any]) -> dict[str, Any]:
        """Ask the configured model for a patch that solves an issue, and judge it by tests.

        The work tree is not changed. `verdict` is "verified" if a test failed before the patch,
        passes after it, and no other test broke.
        """
        async with _progress(ctx.report_progress) as on_event:
            result = await _told(api.solve_async(problem, repo, on_event=on_event, **flags))
        return result.model_dump(mode="json", include=_RESULT)

    @server.tool(annotations=reads)
    async def verify(
        diff: str, ctx: Context[Any, Any], problem: str = "", test: str | None = None
    ) -> dict[str, Any]:
        """Judge a diff: run the project's tests before and after it in a sandbox.

        The diff may add the test that shows the fault; `test` names that file if there are several.
        The work tree is not changed, and no model is called.
        """
        async with _progress(ctx.report_progress) as on_event:
            result = await _told(
                api.verify_async(diff, repo, problem=problem, test=test, on_event=on_event, **flags)
            )
        return result.model_dump(mode="json", include=_RESULT)

    @server.tool(annotations=ToolAnnotations(destructive_hint=True))
    async def apply(diff: str) -> list[str]:
        """Write a diff into the work tree, all files or none, and return the changed paths."""
        return await asyncio.to_thread(_apply, diff, repo, flags)

    return server


def _place(chunk: Chunk, score: float, score_name: str) -> dict[str, Any]:
    """Return a result of `search`: short enough that ten of them fit into a model's context."""
    lines = chunk.text.split("\n")
    more = [f"... {len(lines) - _LINES} more lines"] if len(lines) > _LINES else []
    return {
        "path": chunk.path,
        "lines": f"{chunk.start}-{chunk.end}",
        "symbol": chunk.symbol,
        "score": round(score, 2),
        "score_name": score_name,
        "code": mask_secrets("\n".join([*lines[:_LINES], *more])).text,
    }


async def _told(work: Awaitable[T]) -> T:
    """Await a call. An expected failure becomes an error whose text the client is shown."""
    from mcp.server.mcpserver.exceptions import ToolError

    try:
        return await work
    except PatchshotError as error:
        raise ToolError(common.make_redactor()(str(error))) from None


@asynccontextmanager
async def _progress(send: Callable[..., Any]) -> AsyncIterator[Callable[[Event], None]]:
    """Yield a function that takes events from any thread and sends their stages and notices."""
    loop, redact = asyncio.get_running_loop(), common.make_redactor()
    sent: list[Future[Any]] = []

    def take(event: Event) -> None:
        text = f"{event.stage}: {event.detail}" if isinstance(event, StageStarted) else ""
        text = event.message if isinstance(event, Notice) else text
        if text:
            sending = send(len(sent) + 1, None, redact(text))
            sent.append(asyncio.run_coroutine_threadsafe(sending, loop))

    yield take
    await asyncio.gather(*map(asyncio.wrap_future, sent))


def _apply(diff: str, repo: Path, flags: Mapping[str, Any]) -> list[str]:
    from mcp.server.mcpserver.exceptions import ToolError

    from agent.cli.commands.output import write_into_work_tree
    from agent.repository import take_snapshot
    from agent.settings import load
    from agent.wiring import apply_reply

    settings = load(flags, repository=repo)
    snapshot = take_snapshot(repo, max_file_bytes=round(settings.max_file_mb * 1e6))
    attempt = apply_reply(diff, snapshot, settings)
    if attempt.patch is None:
        raise ToolError(attempt.reason)
    delivery = write_into_work_tree(attempt.patch, snapshot.root)
    if delivery.failed:
        raise ToolError(delivery.message)
    return list(delivery.written)
