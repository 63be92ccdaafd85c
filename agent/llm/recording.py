"""Record model exchanges to a file, to be answered from later by `agent.llm.replay`."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from agent.errors import UsageError
from agent.events import Notice
from agent.llm.exchange import (
    EmbedExchange,
    EmbedKind,
    EmbedRequest,
    Exchange,
    embed_sha256,
    encode_vectors,
    exchange_of,
    format_exchange,
)
from agent.llm.shapes import without_surrogates
from agent.protocols import ChatModel, Embedder, Reporter
from agent.types import Completion, Prompt

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Recorder:
    """Appends exchanges to a file.

    The first exchange replaces an older file at once (a run that fails before it leaves the older
    one alone); each exchange is on disk when `append` returns. Close it, or use it with `with`.
    Texts are passed through `hide`, which masks keys; that it did is reported once. The hash of a
    request stays that of what was sent, so that it is found again.
    """

    def __init__(
        self,
        path: Path,
        hide: Callable[[str], str] = str,
        report: Reporter = lambda _: None,
    ) -> None:
        self.path = path
        self._hide = hide
        self._report = report
        self._has_hidden = False
        self._file: BinaryIO | None = None

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a further exchange would start a new one."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def append(self, exchange: Exchange) -> None:
        """Write one exchange. Raises UsageError when the file cannot be written."""
        try:
            self._write(format_exchange(self._masked(exchange)))
        except OSError as error:
            raise UsageError(
                f"{self.path}: cannot be recorded to ({error.strerror or error}): choose another "
                "place"
            ) from None

    def _masked(self, exchange: Exchange) -> Exchange:
        masked = _with_texts(exchange, self._hide)
        if masked != exchange and not self._has_hidden:
            self._has_hidden = True
            note = "a key is masked in the recording; where a reply held it, a replay differs there"
            self._report(Notice(f"{self.path}: {note}", "warning"))
        return masked

    def _write(self, line: bytes) -> None:
        if self._file is not None:
            self._file.write(line)
            self._file.flush()
            return
        target = self.path.resolve()  # a link stays one
        if target.exists() and not target.is_file():
            raise FileExistsError(errno.EEXIST, "not a regular file")
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".recording-", dir=target.parent)
        file = os.fdopen(descriptor, "wb")
        try:
            file.write(line)
            file.flush()
            Path(temporary).replace(target)
        except OSError:
            file.close()
            Path(temporary).unlink(missing_ok=True)
            raise
        self._file = file  # the open file follows the rename


def _with_texts(exchange: Exchange, change: Callable[[str], str]) -> Exchange:
    """The exchange with `change` applied to its prompt or texts, and to its reply's text."""
    if isinstance(exchange, EmbedExchange):
        asked = exchange.request
        asked = asked.model_copy(update={"texts": tuple(map(change, asked.texts))})
        return exchange.model_copy(update={"request": asked})
    messages = tuple(
        message.model_copy(update={"content": change(message.content)})
        for message in exchange.request.messages
    )
    request = exchange.request.model_copy(update={"messages": messages})
    reply = exchange.reply.model_copy(update={"text": change(exchange.reply.text)})
    return exchange.model_copy(update={"request": request, "reply": reply})


class RecordingChatModel:
    """A `ChatModel` that records every completed exchange of another one."""

    def __init__(self, inner: ChatModel, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder

    @property
    def model(self) -> str:
        """The model's name."""
        return self._inner.model

    async def complete(
        self, prompt: Prompt, *, max_output_tokens: int, schema: Mapping[str, Any] | None = None
    ) -> Completion:
        """Ask the inner model and record. Raises what it raises, and UsageError."""
        done = await self._inner.complete(
            prompt, max_output_tokens=max_output_tokens, schema=schema
        )
        self._recorder.append(exchange_of(prompt, self.model, max_output_tokens, done))
        return done


class RecordingEmbedder:
    """An `Embedder` that records every completed exchange of another one."""

    def __init__(self, inner: Embedder, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder

    @property
    def name(self) -> str:
        """The inner embedder's name."""
        return self._inner.name

    async def embed(self, texts: Sequence[str], *, kind: EmbedKind) -> NDArray[np.float32]:
        """Embed and record; float32 of shape (len(texts), d), as the inner embedder gives it."""
        clock = asyncio.get_running_loop().time
        started = clock()
        vectors = await self._inner.embed(texts, kind=kind)
        self._recorder.append(
            EmbedExchange(
                sha256=embed_sha256(texts, kind),
                request=EmbedRequest(
                    name=self.name, kind=kind, texts=tuple(map(without_surrogates, texts))
                ),
                reply=encode_vectors(vectors),
                seconds=clock() - started,
            )
        )
        return vectors
