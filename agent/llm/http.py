"""Calls to model servers by httpx. It turns httpx's errors into `Failure` values."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import re
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from agent.errors import ConfigurationError, ProviderError, ProviderUnreachable
from agent.llm.endpoint import Endpoint, host_of, without_credentials
from agent.llm.failures import (
    Failure,
    RawReply,
    one_line,
    read_embedded_error,
    read_failure,
    unreadable,
)
from agent.llm.protocols.base import Assembler
from agent.llm.redaction import redact
from agent.shared.downloads import ACCEPTED, BadBody, read_body, tls_advice

CONNECT_SECONDS = 10.0  # a server that has not accepted a connection by then will not
_MAX_BODY = 64 * 1024 * 1024  # bytes; a batch of 4096-d vectors as JSON stays well below
_MAX_LINE = 4 * 1024 * 1024  # bytes of one event of a stream
_LINE_END = re.compile(rb"\r\n|\n|\r")
_MAX_CONNECTIONS = 64
_KEEP_ALIVE_SECONDS = 30.0  # shorter than the idle limit of common gateways (60 s)
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_PROXIES = "HTTPS_PROXY, HTTP_PROXY and ALL_PROXY"

OnText = Callable[[int], None]
"""Is told how many characters a streamed reply has so far."""


@dataclass(frozen=True, slots=True)
class JsonReply:
    """A 2xx reply that is JSON without an error inside."""

    value: Any


Outcome = JsonReply | Failure


def create_client(
    *,
    transport: httpx.AsyncBaseTransport | None = None,
    ca_bundle: str | None = None,
) -> httpx.AsyncClient:
    """The client that all calls share; the caller closes it.

    Proxies and certificates are those of the environment; `ca_bundle` replaces the certificates.
    A redirected POST would turn into a GET, so none is followed. Raises ConfigurationError.
    """
    try:
        return httpx.AsyncClient(
            transport=transport,
            verify=usual_trust() if ca_bundle is None else _trusting(ca_bundle),
            follow_redirects=False,
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
            limits=httpx.Limits(
                max_connections=_MAX_CONNECTIONS,
                max_keepalive_connections=_MAX_CONNECTIONS,
                keepalive_expiry=_KEEP_ALIVE_SECONDS,
            ),
            headers={
                "user-agent": "patchshot",
                "accept": "application/json",
                "accept-encoding": ACCEPTED,
            },
        )
    except (httpx.InvalidURL, ValueError, ImportError) as error:
        reason = one_line(without_credentials(str(error)))
        raise ConfigurationError(
            f"the HTTP proxy of the environment cannot be used ({reason}): check {_PROXIES}"
        ) from None
    except (OSError, ssl.SSLError) as error:
        files = [f"{name} ({os.environ[name]})" for name in _CERTIFICATES if os.environ.get(name)]
        files += [f"REQUESTS_CA_BUNDLE ({ca_bundle})"] if ca_bundle else []
        raise ConfigurationError(
            f"the TLS certificates cannot be read ({one_line(str(error))}): check "
            f"{', '.join(files)}"
        ) from None


def usual_trust() -> ssl.SSLContext:
    """The certificates that are trusted by default, read once a process, which takes 20 ms.

    Raises OSError and ssl.SSLError.
    """
    return _trusting(next(filter(None, map(os.environ.get, _CERTIFICATES)), ""))


@functools.lru_cache(maxsize=4)
def _trusting(certificates: str) -> ssl.SSLContext:
    """The certificates of a file or a folder; for "" the ones that httpx brings."""
    if not certificates:
        return httpx.create_ssl_context(trust_env=False)
    is_folder = Path(certificates).is_dir()
    return ssl.create_default_context(
        cafile=None if is_folder else certificates, capath=certificates if is_folder else None
    )


class ReplyStream:
    """One streamed reply (server-sent events) as the JSON that the server would have sent whole.

    Source of the format: https://html.spec.whatwg.org/multipage/server-sent-events.html
    """

    def __init__(self, make_assembler: Callable[[], Assembler], on_text: OnText) -> None:
        self._assembler = make_assembler()
        self._on_text = on_text
        self._characters = 0

    async def read(self, pieces: AsyncIterable[bytes], most: int) -> Any:
        """The JSON of the reply; None where it is longer than `most` bytes or has no end."""
        rest, received = b"", 0
        async for piece in pieces:
            received += len(piece)
            if received > most or len(rest) > _MAX_LINE:
                return None
            *lines, rest = _LINE_END.split(rest + piece)
            for line in lines:
                if self._take(line):
                    return self._assembler.value()
        self._take(rest)
        return self._assembler.value() if self._assembler.finished else None

    def _take(self, line: bytes) -> bool:
        """Take one line; return whether the reply is whole."""
        name, _, data = line.partition(b":")
        if name != b"data":
            return False
        if data.strip() == b"[DONE]":
            return self._assembler.finished
        try:
            event = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError):
            return False
        text = self._assembler.feed(event) if isinstance(event, dict) else ""
        if text:
            self._characters += len(text)
            self._on_text(self._characters)
        return False


async def exchange(
    client: httpx.AsyncClient,
    endpoint: Endpoint,
    url: str,
    payload: Mapping[str, Any] | None,
    *,
    seconds: float,
    headers: Mapping[str, str],
    stream: ReplyStream | None = None,
) -> Outcome:
    """One request and its whole reply within `seconds`; POST with `payload` as JSON, GET without.

    With `stream`, the time counts from the last piece. `headers` carry the key.
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            reply = await _send(client, url, payload, seconds, headers, stream, limit)
    except (httpx.TransportError, httpx.DecodingError, httpx.InvalidURL, TimeoutError) as error:
        return _translate(error, endpoint, seconds)
    if isinstance(reply, BadBody):
        return _unfit(reply, endpoint)
    if isinstance(reply, JsonReply):
        return read_embedded_error(reply.value, endpoint) or reply
    if not 200 <= reply.status < 300:
        return read_failure(reply, endpoint, datetime.now(UTC))
    try:
        value = json.loads(reply.body.decode("utf-8"))
    except (ValueError, RecursionError):
        return unreadable(reply, endpoint)
    return read_embedded_error(value, endpoint) or JsonReply(value)


async def _send(
    client: httpx.AsyncClient,
    url: str,
    payload: Mapping[str, Any] | None,
    seconds: float,
    headers: Mapping[str, str],
    stream: ReplyStream | None,
    limit: asyncio.Timeout,
) -> RawReply | BadBody | JsonReply:
    if stream is not None:  # compressed events would wait for each other
        headers = {**headers, "accept": "text/event-stream", "accept-encoding": "identity"}
    content = None
    if payload is not None:
        headers = {**headers, "content-type": "application/json"}
        # Lone surrogates (undecodable bytes of a repository) have no UTF-8 form and become "?".
        text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        content = text.encode("utf-8", "replace")
    request = client.build_request(
        "GET" if payload is None else "POST",
        url,
        headers=headers,
        content=content,
        timeout=httpx.Timeout(None, connect=min(CONNECT_SECONDS, seconds)),
    )
    response = await client.send(request, stream=True)
    try:
        if stream is not None and _is_stream(response):
            value = await stream.read(_extending(response, limit, seconds), _MAX_BODY)
            if value is None:
                raise httpx.RemoteProtocolError("the stream ended before the reply")
            return JsonReply(value)
        body = await read_body(response, _MAX_BODY)
    finally:
        await response.aclose()
    if isinstance(body, BadBody):
        return body
    names = {name.lower(): value for name, value in response.headers.items()}
    return RawReply(response.status_code, names, body)


async def _extending(
    response: httpx.Response, limit: asyncio.Timeout, seconds: float
) -> AsyncIterator[bytes]:
    async for piece in response.aiter_raw():
        limit.reschedule(asyncio.get_running_loop().time() + seconds)
        yield piece


def _is_stream(response: httpx.Response) -> bool:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    plain = response.headers.get("content-encoding", "identity").strip().lower() == "identity"
    return response.is_success and kind == "text/event-stream" and plain


def _translate(error: Exception, endpoint: Endpoint, seconds: float) -> Failure:
    host, url = host_of(endpoint), endpoint.url_setting
    reason = one_line(redact(str(error), endpoint.api_key)) or type(error).__name__
    if text := tls_advice(reason, host, url):
        return Failure(ProviderError(text))
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        text = f"cannot connect to {host} ({reason}): check {url}, {_PROXIES} and the network"
    elif isinstance(error, httpx.TimeoutException | TimeoutError):
        # Its reply may still be paid, so it is not asked for again.
        text = (
            f"{host} did not answer within {seconds:.0f} s and may charge the call: raise "
            "PATCHSHOT_REQUEST_TIMEOUT or use a faster model"
        )
        return Failure(ProviderUnreachable(text))
    elif isinstance(error, httpx.ProxyError):
        text = f"the HTTP proxy refuses the connection to {host} ({reason}): check {_PROXIES}"
        return Failure(ProviderUnreachable(text), retriable="407" not in reason)
    elif (
        isinstance(error, httpx.UnsupportedProtocol | httpx.InvalidURL)
        or "Illegal header" in reason
    ):
        return Failure(ProviderError(f"no request can be sent to {host} ({reason}): check {url}"))
    else:
        text = f"{host} dropped the connection ({reason}): try again later"
    return Failure(ProviderUnreachable(text), retriable=True)


def _unfit(body: BadBody, endpoint: Endpoint) -> Failure:
    host, url = host_of(endpoint), endpoint.url_setting
    if body.kind == "damaged":
        text = f"{host} dropped the connection or sent {body.reason}: try again later"
        return Failure(ProviderUnreachable(text), retriable=True)
    reason = f"more than {_MAX_BODY >> 20} MiB" if body.kind == "too-large" else body.reason
    return Failure(ProviderError(f"{host} answers with {reason}: check {url}"))
