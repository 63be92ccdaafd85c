"""`agent.llm.http` against a real server: faults of the transport, proxies, certificates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from agent.errors import ConfigurationError, ProviderError, ProviderUnreachable
from agent.llm import create_client
from agent.llm.failures import Failure
from agent.llm.http import JsonReply, Outcome, exchange
from agent.llm.protocols.openai import bearer
from tests.support.llm import KEY, endpoint, run
from tests.support.loopback import LoopbackServer, Scripted, loopback


def call(url: str, *, seconds: float = 5.0, key: str | None = KEY) -> Outcome:
    async def go() -> Outcome:
        async with create_client() as client:
            place = endpoint(url, key=key)
            body = {"a": "é\udc80"}
            return await exchange(
                client, place, f"{url}/x", body, seconds=seconds, headers=bearer(place)
            )

    return run(go())


def failed(outcome: Outcome) -> Failure:
    assert isinstance(outcome, Failure)
    return outcome


def test_json_goes_and_comes() -> None:
    with loopback(Scripted({"ok": [1, "é"]})) as server:
        assert call(server.url) == JsonReply({"ok": [1, "é"]})

        request = server.requests[0]
        assert (request.method, request.target) == ("POST", "/x")
        assert request.headers["authorization"] == f"Bearer {KEY}"
        assert request.headers["content-type"] == "application/json"
        assert request.json == {"a": "é?"}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Scripted(fault="drop"), "dropped the connection"),
        (Scripted(fault="reset"), "dropped the connection"),
        (Scripted({"text": "x" * 4000}, fault="half-body"), "dropped the connection"),
        (Scripted(b"\x1f\x8bno", headers={"content-encoding": "gzip"}), "dropped the connection"),
        (Scripted(b""), "empty body"),
        (Scripted(b'{"cut'), "no JSON"),
        (Scripted(b"\xff\xfe"), "no JSON"),
        (Scripted(b"[" * 200_000), "no JSON"),
        (Scripted("<html><title>Bad Gateway</title>", status=502), "Bad Gateway"),
    ],
)
def test_transport_faults_may_be_tried_again(answer: Scripted, words: str) -> None:
    with loopback(answer) as server:
        seen = failed(call(server.url))

    assert (type(seen.error), seen.retriable) == (ProviderUnreachable, True)
    assert words in str(seen.error)
    assert server.url in str(seen.error)


def test_a_server_that_never_answers_may_charge_the_call_and_is_not_asked_again() -> None:
    with loopback(Scripted(fault="hang")) as server:
        seen = failed(call(server.url, seconds=0.2))

    assert not seen.retriable
    assert "may charge the call" in str(seen.error)


def test_cancellation_is_immediate() -> None:
    async def go(server: LoopbackServer) -> None:
        async with create_client() as client:
            place = endpoint(server.url)
            task = asyncio.create_task(
                exchange(client, place, server.url, {}, seconds=60, headers={})
            )
            while not server.requests:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, 2)

    with loopback(Scripted(fault="hang")) as server:
        run(go(server))


def test_redirects_are_not_followed() -> None:
    moved = Scripted(status=301, headers={"location": "https://new.example/v1"})
    with loopback(moved) as server:
        seen = failed(call(server.url))

        assert len(server.requests) == 1
    assert "redirects to https://new.example/v1" in str(seen.error)


def test_the_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with loopback(Scripted({"via": "proxy"})) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)

        assert call("http://llm.invalid") == JsonReply({"via": "proxy"})
        assert proxy.requests[0].target == "http://llm.invalid/x"


@pytest.mark.parametrize("proxy", ["ftp://proxy:1", "http://me:secret@proxy:port"])
def test_an_unusable_proxy_is_a_configuration_error(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)

    with pytest.raises(ConfigurationError, match="check HTTPS_PROXY") as caught:
        create_client()
    assert "secret" not in str(caught.value)


def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://me:secret@127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)

    seen = failed(call("http://llm.invalid"))
    assert "check PATCHSHOT_BASE_URL, HTTPS_PROXY, HTTP_PROXY" in str(seen.error)
    assert "secret" not in str(seen.error)


def test_missing_certificates_are_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "certificates.pem"
    broken.write_text("no certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(broken))

    for place in (broken, tmp_path / "missing.pem"):
        monkeypatch.setenv("SSL_CERT_FILE", str(place))
        with pytest.raises(ConfigurationError, match="SSL_CERT_FILE") as caught:
            create_client()
        assert str(place) in str(caught.value)


def with_error(error: Exception) -> Callable[[httpx.Request], httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        raise error

    return answer


@pytest.mark.parametrize(
    ("error", "words", "retriable"),
    [
        (
            httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate"),
            "SSL_CERT_FILE",
            False,
        ),
        (httpx.ConnectError("Name or service not known"), "PATCHSHOT_BASE_URL", True),
        (httpx.ConnectTimeout(""), "cannot connect", True),
        (httpx.ProxyError("407 Proxy Authentication Required"), "HTTPS_PROXY", False),
        (httpx.ProxyError("502 Bad Gateway"), "HTTPS_PROXY", True),
        (httpx.UnsupportedProtocol("x"), "PATCHSHOT_BASE_URL", False),
        (httpx.RemoteProtocolError(f"key {KEY}"), "dropped", True),
        (httpx.LocalProtocolError("Illegal header value b'x'"), "PATCHSHOT_BASE_URL", False),
        (httpx.LocalProtocolError("SEND_HEADERS in state CLOSED"), "dropped", True),
    ],
)
def test_errors_of_the_client_are_translated(error: Exception, words: str, retriable: bool) -> None:
    async def go() -> Outcome:
        async with create_client(transport=httpx.MockTransport(with_error(error))) as client:
            return await exchange(
                client, endpoint(), "https://llm.example/v1", {}, seconds=1, headers={}
            )

    seen = failed(run(go()))

    assert isinstance(seen.error, ProviderError)
    assert words in str(seen.error)
    assert KEY not in str(seen.error)
    assert seen.retriable is retriable


def test_an_endless_body_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.llm.http._MAX_BODY", 1 << 20)
    with loopback(Scripted(b" " * (1 << 21))) as server:
        seen = failed(call(server.url))

    assert not seen.retriable
    assert "more than 1 MiB" in str(seen.error)


def test_a_missing_bundle_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="REQUESTS_CA_BUNDLE"):
        create_client(ca_bundle=str(tmp_path / "none.pem"))


def test_no_proxy_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    with loopback(Scripted({"via": "direct"})) as server:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")

        assert call(server.url) == JsonReply({"via": "direct"})
