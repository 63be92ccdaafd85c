"""What a server can do to the program that asks it: a model server, or the page of an issue."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import threading
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from agent.errors import PatchshotError, ProblemError, ProviderError
from agent.llm import create_client
from agent.llm.failures import Failure
from agent.llm.http import Outcome, exchange
from agent.run.problem import http_get
from tests.support.llm import endpoint
from tests.support.loopback import Scripted, loopback

MIB = 1024 * 1024
ISSUE = b"add() subtracts\n\nIt should add.\n"


def ask_model(url: str, seconds: float = 10.0) -> Outcome:
    async def go() -> Outcome:
        async with create_client() as client:
            return await exchange(
                client, endpoint(url), f"{url}/x", {}, seconds=seconds, headers={}
            )

    return asyncio.run(go())


def refused_by_model(url: str, seconds: float = 10.0) -> Failure:
    outcome = ask_model(url, seconds)
    assert isinstance(outcome, Failure)
    return outcome


def zeros(mebibytes: int, encoding: int) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, encoding)
    block = bytes(MIB)
    return b"".join(packer.compress(block) for _ in range(mebibytes)) + packer.flush()


def packed(body: bytes, encoding: str) -> Scripted:
    return Scripted(body, headers={"content-encoding": encoding}, content_type="text/plain")


@contextmanager
def little_memory() -> Iterator[None]:
    """Fails where Python objects of more than 150 MiB lived at once."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 150 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.attack_case("reply that unfolds")
@pytest.mark.parametrize(
    ("body", "encoding", "words"),
    [
        (zeros(400, 31), "gzip", "more than"),
        (zeros(400, 15), "deflate", "more than"),
        (gzip.compress(zeros(400, 31)), "gzip, gzip", "Content-Encoding ('gzip, gzip')"),
        (gzip.compress(zeros(400, 15)), "deflate,gzip", "Content-Encoding ('deflate, gzip')"),
        (b"x", "br", "Content-Encoding ('br')"),
        (b"x", "gzip\x1b[2J", "Content-Encoding"),
    ],
    ids=["gzip", "deflate", "gzip in gzip", "deflate in gzip", "unknown", "escape"],
)
def test_a_few_kilobytes_do_not_unfold_to_gigabytes(body: bytes, encoding: str, words: str) -> None:
    with loopback(packed(body, encoding)) as server, little_memory():
        seen = refused_by_model(server.url)
        with pytest.raises(ProblemError) as told:
            http_get(f"{server.url}/issue", {}, MIB)
    assert type(seen.error) is ProviderError
    assert not seen.retriable
    assert words in str(seen.error)
    assert words in str(told.value)
    assert all(line.isprintable() for line in (str(seen.error), str(told.value)))


@pytest.mark.attack_case("reply that unfolds")
def test_the_body_of_a_redirection_is_not_unfolded() -> None:
    away = packed(gzip.compress(zeros(400, 31)), "gzip, gzip")
    away = Scripted(away.body, 302, {**away.headers, "location": "/there"})
    with loopback(away, Scripted(ISSUE)) as server, little_memory():
        assert http_get(f"{server.url}/issue", {}, MIB).content == ISSUE


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate", "identity", ""])
def test_one_layer_is_undone(encoding: str) -> None:
    body = {"deflate": zlib.compress(ISSUE), "identity": ISSUE, "": ISSUE}
    headers = {"content-encoding": encoding} if encoding else {}
    with loopback(Scripted(body.get(encoding, gzip.compress(ISSUE)), headers=headers)) as server:
        assert http_get(server.url, {}, MIB).content == ISSUE
        assert server.requests[0].headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.parametrize(
    "answer",
    [
        packed(gzip.compress(b"{}" * 400)[:-9], "gzip"),
        packed(gzip.compress(b"{}") + b"more", "gzip"),
        packed(b"\x1f\x8bno", "gzip"),
        Scripted(b"{}", headers={"content-length": "4000"}, fault="half-body"),
        Scripted(b"{}" * 4000, fault="half-body"),
    ],
    ids=["cut gzip", "gzip and more", "no gzip", "wrong length", "half a body"],
)
def test_a_damaged_body_is_an_error_that_may_be_tried_again(answer: Scripted) -> None:
    with loopback(answer) as server:
        seen = refused_by_model(server.url)
        with pytest.raises(ProblemError, match=r"damaged|sent|fetched"):
            http_get(server.url, {}, MIB)
    assert seen.retriable
    assert "try again later" in str(seen.error)


@contextmanager
def dripping(first: bytes, *, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve `first`, then a byte each 50 ms without end; gives the URL."""
    closing = threading.Event()

    def wrapped(plain: socket.socket) -> socket.socket:
        return tls.wrap_socket(plain, server_side=True) if tls else plain

    def serve(plain: socket.socket) -> None:
        with suppress(OSError), plain, wrapped(plain) as connection:
            connection.recv(65536)
            connection.sendall(first)
            while not closing.wait(0.05):
                connection.sendall(b"a")

    def accept() -> None:
        with suppress(OSError):
            while True:
                threads.append(threading.Thread(target=serve, args=listener.accept()[:1]))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads = [threading.Thread(target=accept)]
        threads[0].start()
        try:
            yield f"http{'s' if tls else ''}://localhost:{listener.getsockname()[1]}"
        finally:
            closing.set()
            listener.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join(10)


@pytest.mark.attack_case("reply that drips")
@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nx-long: ",
        b"HTTP/1.1 200 OK\r\ncontent-length: 900000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffff\r\n",
    ],
    ids=["status", "header", "body", "chunk"],
)
def test_a_server_that_drips_is_given_up(first: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.run.problem.FETCH_SECONDS", 0.5)
    with dripping(first) as url:
        started = time.monotonic()
        assert "did not answer within" in str(refused_by_model(url, 0.5).error)
        with pytest.raises(ProblemError, match="took longer than"):
            http_get(url, {}, MIB)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("jump", [-1e9, 1e9])
def test_a_clock_that_jumps_moves_no_limit(jump: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.run.problem.FETCH_SECONDS", 0.5)
    real, calls = time.time, iter(range(1_000_000))
    monkeypatch.setattr(time, "time", lambda: real() + jump * next(calls))
    with dripping(b"HTTP/1.1 200 OK\r\n") as url:
        started = time.monotonic()
        assert "did not answer within" in str(refused_by_model(url, 0.5).error)
        with pytest.raises(ProblemError, match="took longer than"):
            http_get(url, {}, MIB)
    assert 0.9 < time.monotonic() - started < 5
    with loopback(Scripted(b"{}")) as server:
        assert not isinstance(ask_model(server.url), Failure)
        assert http_get(server.url, {}, MIB).content == b"{}"


def server_side(kind: str, authority: trustme.CA) -> ssl.SSLContext:
    past = datetime.now(UTC) - timedelta(days=2)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issuer = trustme.CA() if kind == "unknown issuer" else authority
    name = "other.example" if kind == "other host" else "localhost"
    issuer.issue_cert(name, not_after=past if kind == "expired" else None).configure_cert(context)
    if kind == "old TLS":
        context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
    return context


@pytest.mark.attack_case("server with a wrong certificate")
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("expired", "has expired"),
        ("other host", "is for another host"),
        ("unknown issuer", "set SSL_CERT_FILE"),
        ("old TLS", "no TLS connection"),
    ],
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_a_wrong_certificate_is_told_in_one_line_and_not_tried_again(
    kind: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    monkeypatch.setenv("NO_PROXY", "localhost")
    with dripping(b"", tls=server_side(kind, authority)) as url:
        seen = refused_by_model(url)
        with pytest.raises(ProblemError) as told:
            http_get(f"{url}/issue", {}, MIB)
    assert not seen.retriable
    for error, code in ((seen.error, 9), (told.value, 2)):
        assert isinstance(error, PatchshotError)
        assert words in str(error)
        assert "\n" not in str(error)
        assert error.status.exit_code == code


def test_a_trusted_certificate_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    monkeypatch.setenv("NO_PROXY", "localhost")
    first = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
    with dripping(first, tls=server_side("right", authority)) as url:
        assert not isinstance(ask_model(url), Failure)
        assert http_get(url, {}, MIB).content == b"{}"
