"""Reads replies of HTTP servers: the body with a limit of its size, and errors of TLS in words.

httpx undoes any number of encodings without a limit, so that kilobytes become gigabytes. So bodies
are read as they were sent and decoded here.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import httpx

_ENCODINGS = ("gzip", "deflate")
ACCEPTED = ", ".join(_ENCODINGS)
"""The value of Accept-Encoding: what `read_body` can undo."""

_SHOWN = 60  # characters of a server's header that an error quotes


@dataclass(frozen=True, slots=True)
class BadBody:
    """Why a body cannot be used. A body that is "damaged" may be whole at the next try."""

    kind: Literal["too-large", "encoding", "damaged"]
    reason: str


async def read_body(reply: httpx.Response, most: int) -> bytes | BadBody:
    """Return the decoded body of a streamed reply, of at most `most` bytes.

    One layer of gzip or deflate is undone. Memory and time stay in proportion to `most`.
    """
    from httpx import AsyncByteStream

    layers = _layers(reply.headers.get("content-encoding", ""))
    if len(layers) > 1 or not {*layers} <= {*_ENCODINGS}:
        return BadBody("encoding", f"an unusable Content-Encoding ({', '.join(layers)[:_SHOWN]!r})")
    # Both formats, RFC 1950 and 1952; zlib tells them apart by their header.
    inflater = zlib.decompressobj(32 + zlib.MAX_WBITS) if layers else None
    body, received = bytearray(), 0
    assert isinstance(reply.stream, AsyncByteStream)
    async for piece in reply.stream:  # as it was sent
        received += len(piece)
        try:
            body += inflater.decompress(piece, most + 1 - len(body)) if inflater else piece
        except zlib.error as error:
            return BadBody("damaged", f"a compressed body that is damaged ({error})")
        if max(received, len(body)) > most:
            return BadBody("too-large", f"a body of more than {most:,} bytes")
    if inflater is not None and received and (inflater.unused_data or not inflater.eof):
        fault = "with more data after its end" if inflater.eof else "without its end"
        return BadBody("damaged", f"a compressed body {fault}")
    return bytes(body)


def _layers(header: str) -> list[str]:
    names = (name.strip().lower().removeprefix("x-") for name in header.split(","))
    return [name for name in names if name not in ("", "identity")]


def tls_advice(said: str, host: str, address: str) -> str:
    """Return what is wrong with the TLS of `host` and what to do, "" for other errors.

    `said` is the text of the error; `address` is what the user would check.
    """
    if "CERTIFICATE_VERIFY_FAILED" in said:
        for words, wrong in (
            ("has expired", f"has expired ({said}): check the clock of this machine, and the host"),
            ("not yet valid", f"is not yet valid ({said}): check the clock of this machine"),
            ("mismatch", f"is for another host ({said}): check {address}"),
        ):
            if words in said:
                return f"the certificate of {host} {wrong}"
        advice = "set SSL_CERT_FILE to the certificates of your network"
        return f"the certificate of {host} is not trusted ({said}): {advice}"
    if "[SSL" in said and "EOF" not in said:  # `[SSL: REASON]`, or `[SSL]` for a new reason
        return f"no TLS connection to {host} can be made ({said}): check {address}"
    return ""
