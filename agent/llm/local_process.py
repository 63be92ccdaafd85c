"""The child process in which a local model runs, spoken to over pipes in JSON Lines.

See `agent.llm.local_worker` for the other side.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.errors import ProviderError
from agent.llm.wording import one_line
from agent.settings import environment

_LONGEST_LINE = 16 * 1024 * 1024  # bytes of one reply
_CLOSE_SECONDS = 5.0  # after them an idle process is killed

# All that the process is told of this one's environment: it needs no key.
_PASSED_ON = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "TMPDIR")


class Refusal(BaseModel):
    """The `error` of llama.cpp's reply; all None where there is none."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: str | None = None
    message: str = ""
    n_ctx: int | None = None
    n_prompt_tokens: int | None = None

    @classmethod
    def of(cls, value: Any) -> Refusal:
        """The refusal in a reply."""
        error = value.get("error") if isinstance(value, dict) else None
        try:
            return cls.model_validate(error or {})
        except ValidationError:
            return cls(type="unknown", message=str(error))


class ModelProcess:
    """The child process with its private folder, in which its errors are kept too.

    `held` gives back all of it: it kills a process that still runs.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, errors: IO[bytes], held: AsyncExitStack
    ) -> None:
        self._process = process
        self._errors = errors
        self._held = held

    @classmethod
    async def start(cls, model: Path, *, context: int, threads: int | None) -> ModelProcess:
        """Start, and load the file `model` with a window of `context` tokens.

        `threads` None: one a usable core. Raises ProviderError when that cannot be done, and then
        leaves nothing.
        """
        async with AsyncExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="patchshot-model-"))
            errors = stack.enter_context((Path(folder) / "errors").open("w+b"))
            process = await _spawn(errors)
            stack.push_async_callback(_killed, process)
            made = cls(process, errors, stack)
            await made._load(
                {
                    "path": str(model),
                    "context": context,
                    "threads": threads or len(os.sched_getaffinity(0)),
                    "socket": str(Path(folder) / "unused.sock"),
                }
            )
            made._held = stack.pop_all()
            return made

    async def ask(self, body: Mapping[str, Any]) -> Any:
        """One request, one reply. Raises ProviderError when the process ends instead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(body).encode("ascii") + b"\n")
            await self._process.stdin.drain()
            line = await self._process.stdout.readline()
            return json.loads(line)
        except (OSError, ValueError):  # a closed pipe, a line cut off or too long
            code = await self._process.wait() if self._process.stdout.at_eof() else None
            raise ProviderError(
                f"the local model ended without a reply (exit {code}{self._last_words()}): is "
                "there enough memory for it?"
            ) from None

    async def kill(self) -> None:
        """End the process at once, whatever it does."""
        await self._held.aclose()

    async def close(self) -> None:
        """Let the process go by closing its stdin, and wait for it, but not for long."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._process.wait()
        except TimeoutError:
            pass  # it is killed below
        finally:
            await self._held.aclose()

    async def _load(self, options: Mapping[str, Any]) -> None:
        told = Refusal.of(await self.ask(options))
        if told.type is not None:
            raise ProviderError(
                f"{options['path']} cannot be loaded ({one_line(told.message)}"
                f"{self._last_words()}): check that the file is whole and its architecture one "
                "that xllamacpp knows"
            )

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return f"; {one_line(lines[-1], 200)}" if lines else ""


async def _spawn(errors: IO[bytes]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # the script's folder has modules that are named like the library's
            str(Path(__file__).with_name("local_worker.py")),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=dict(environment(_PASSED_ON)),
            limit=_LONGEST_LINE,
        )
    except OSError as error:
        raise ProviderError(
            f"the local model's process cannot be started ({error.strerror}): free some memory"
        ) from None


async def _killed(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
