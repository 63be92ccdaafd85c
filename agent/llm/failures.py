"""What a model server's refusal means: pure functions from replies to errors that say what to do.

`Failure` is the value that `agent.llm.http`, `agent.llm.retry` and the transports pass on; its
`error` is raised at the very end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from agent.errors import (
    AuthenticationFailed,
    ContextTooLong,
    ProviderError,
    ProviderUnreachable,
    UnknownModel,
)
from agent.llm.endpoint import Endpoint, without_credentials
from agent.llm.wording import excerpt, is_markup, one_line, redact, wordings

# Answered later by the same request (RFC 9110; 409 and 425 as in the OpenAI clients). 501 is not
# here: a server without the function will not grow it.
_RETRIABLE_STATUS = frozenset({408, 409, 425, 429, *range(500, 600)} - {501, 505})

# Wordings of OpenAI, Anthropic, vLLM, llama.cpp, Ollama, Groq and TensorRT-LLM servers.
_CONTEXT = re.compile(
    r"context[_ -]?(length|window|size)|maximum context|exceed_context|too many (input )?tokens"
    r"|(prompt|input|request|message)s? (is |are )?too (long|large)|reduce the length"
    r"|maximum (input|prompt|sequence) length|input length|token limit exceeded|string_above_max",
    re.IGNORECASE,
)
_MODEL = re.compile(
    r"not a valid model|(invalid|unknown|unsupported) model\b|no such model"
    r"|models?\b.{0,120}(not[_ ](be )?(found|exist|available|supported|loaded|served)"
    r"|does ?n.t exist|unavailable)|model[_ ]not[_ ]found|no (endpoints|allowed providers)",
    re.IGNORECASE | re.DOTALL,
)
_CREDIT = re.compile(
    r"insufficient[_ ](quota|credit|balance|funds)|credit balance is too low|exceeded your current"
    r" quota|billing|payment required|budget (has been )?exceeded",
    re.IGNORECASE,
)
_WRONG_PATH = re.compile(r"unexpected endpoint|unknown (request )?(url|endpoint|route)", re.I)
_KEY = re.compile(r"invalid (api|x-api)[_ -]?key|incorrect api key|unauthori[sz]ed", re.IGNORECASE)
# A request that fails the same way each time, where the error comes without a status of its own.
_REQUEST_FAULT = re.compile(
    r"response_format|json_schema|json_object|max_(completion_)?tokens|temperature|invalid"
    r"|unsupported|validation",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that gave no usable reply.

    `retriable`: the same request may succeed later, after `retry_after` seconds where the server
    says so. `wrong_path`: the URL is not served at all. `wording` is the server's own, for those
    who adapt their request; it is redacted like `error`.
    """

    error: ProviderError
    retriable: bool = False
    retry_after: float | None = None
    status: int | None = None
    wording: str = ""
    wrong_path: bool = False


@dataclass(frozen=True, slots=True)
class RawReply:
    """A whole HTTP reply. `headers` has lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def read_failure(reply: RawReply, endpoint: Endpoint, now: datetime) -> Failure:
    """What a reply other than 2xx means. `now` (with a time zone) dates a Retry-After date."""
    shown, matched = wordings(reply.body, endpoint.api_key)
    wait = retry_after(reply.headers, now)
    failure = _classify(reply.status, shown, matched, endpoint, reply.headers)
    return Failure(
        failure.error, failure.retriable, wait, reply.status, matched, failure.wrong_path
    )


def read_embedded_error(value: Any, endpoint: Endpoint) -> Failure | None:
    """What an `error` inside a 200 reply, or its first choice, means; None without one."""
    error = _embedded(value)
    if not error:
        return None
    code = error.get("code") if isinstance(error, dict) else None
    digits = str(code)
    status = int(digits) if digits.isascii() and digits.isdigit() else 200
    shown, matched = wordings(json.dumps({"error": error}).encode(), endpoint.api_key)
    if status < 400:
        # Upstream troubles often come without a code; a faulty request would fail again.
        status = 400 if _REQUEST_FAULT.search(matched) or _CONTEXT.search(matched) else 502
        status = 404 if _MODEL.search(matched) or _WRONG_PATH.search(matched) else status
        status = 401 if _KEY.search(matched) else status
    failure = _classify(status, shown, matched, endpoint, {})
    return Failure(failure.error, failure.retriable, None, status, matched, failure.wrong_path)


def unreadable(reply: RawReply, endpoint: Endpoint) -> Failure:
    """A 2xx reply whose body is not JSON: a web page, nothing at all, or a cut-off text."""
    host = host_of(endpoint)
    if is_markup(reply.body):
        error: ProviderError = ProviderError(
            f"{host} answers with a web page instead of JSON: check {endpoint.url_setting} "
            f"({without_credentials(endpoint.base_url)}) and any proxy or login in between"
        )
        return Failure(error, status=reply.status, wrong_path=True)
    if not reply.body.strip():
        what = "with an empty body"
    else:
        what = f"with something that is no JSON ({excerpt(reply.body, endpoint.api_key)})"
    error = ProviderUnreachable(
        f"{host} answers {what}: try again later, or check {endpoint.url_setting}"
    )
    return Failure(error, retriable=True, status=reply.status)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds to wait as the server asks (RFC 9110: seconds or a date), never negative."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, (moment - now).total_seconds())
    except (ValueError, TypeError):  # no date, or one without a time zone
        return None


def host_of(endpoint: Endpoint) -> str:
    """`https://host:port` of the endpoint, the name that messages use."""
    scheme, _, rest = without_credentials(endpoint.base_url).partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def _embedded(value: Any) -> Any:
    if not isinstance(value, dict):
        return None
    choices = value.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return value.get("error") or (first.get("error") if isinstance(first, dict) else None)


def _classify(
    status: int, shown: str, matched: str, endpoint: Endpoint, headers: Mapping[str, str]
) -> Failure:
    said = f"{status}: {shown}" if shown else str(status)
    if _is_too_long(status, matched):
        return Failure(
            ContextTooLong(
                f"the prompt is too long for model {endpoint.model} ({said}): lower "
                "PATCHSHOT_CONTEXT_TOKENS or PATCHSHOT_MAX_OUTPUT_TOKENS, or choose a model with "
                "a larger context"
            )
        )
    if _is_out_of_credit(status, matched, headers):
        return Failure(
            ProviderError(
                f"{host_of(endpoint)} has no credit left for {endpoint.key_setting} ({said}): "
                "add credit or use another key"
            )
        )
    if status in (401, 403) or (status == 400 and _KEY.search(matched)):
        return Failure(_refused_key(status, said, endpoint))
    if _is_unknown_model(status, matched, endpoint.model):
        return Failure(unknown_model(endpoint, said))
    if status in (404, 405):
        return Failure(_wrong_path(said, endpoint), wrong_path=True)
    if status in _RETRIABLE_STATUS:
        return Failure(_unavailable(status, said, endpoint), retriable=True)
    return Failure(_refused(status, said, endpoint, headers))


def _is_too_long(status: int, matched: str) -> bool:
    if status == 429:  # more tokens in one request than in a minute's share: waiting cannot help
        return "request too large" in matched.lower()
    return status == 413 or (status in (400, 422, 500) and bool(_CONTEXT.search(matched)))


def _is_out_of_credit(status: int, matched: str, headers: Mapping[str, str]) -> bool:
    if status == 429 and "retry-after" in headers:  # a quota that refills
        return False
    return status == 402 or (status in (400, 403, 429) and bool(_CREDIT.search(matched)))


def _is_unknown_model(status: int, matched: str, model: str) -> bool:
    if status not in (400, 404, 422):
        return False
    return bool(_MODEL.search(matched)) or (status == 404 and model in matched)


def unknown_model(endpoint: Endpoint, said: str, nearest: tuple[str, ...] = ()) -> UnknownModel:
    """The error for a model the server does not have; `nearest` are names that it has."""
    has = f"it has {', '.join(nearest)}" if nearest else "see the server's list of models"
    return UnknownModel(
        f"{host_of(endpoint)} has no model {endpoint.model!r} ({said}): set "
        f"{endpoint.model_setting} to one that it has; {has}"
    )


def _refused_key(status: int, said: str, endpoint: Endpoint) -> AuthenticationFailed:
    host = host_of(endpoint)
    if endpoint.api_key is None:
        return AuthenticationFailed(f"{host} wants a key ({said}): set {endpoint.key_setting}")
    if status == 403:
        return AuthenticationFailed(
            f"{host} does not allow this ({said}): check that {endpoint.key_setting} may use model "
            f"{endpoint.model}"
        )
    return AuthenticationFailed(f"{host} refuses the key ({said}): check {endpoint.key_setting}")


def _wrong_path(said: str, endpoint: Endpoint) -> ProviderError:
    return ProviderError(
        f"{without_credentials(endpoint.base_url)} does not serve this call ({said}): check "
        f"{endpoint.url_setting}, it usually ends with /v1"
    )


def _unavailable(status: int, said: str, endpoint: Endpoint) -> ProviderUnreachable:
    if status == 429:
        return ProviderUnreachable(
            f"{host_of(endpoint)} limits the rate of calls ({said}): wait, or make fewer at once"
        )
    return ProviderUnreachable(f"{host_of(endpoint)} fails ({said}): try again later")


def _refused(
    status: int, said: str, endpoint: Endpoint, headers: Mapping[str, str]
) -> ProviderError:
    host = host_of(endpoint)
    if 300 <= status < 400:
        target = one_line(redact(without_credentials(headers.get("location", "elsewhere"))))
        return ProviderError(
            f"{host} redirects to {target} ({status}): set {endpoint.url_setting} to the address "
            "that answers, redirects are not followed with a key"
        )
    if status == 407:
        return ProviderError(f"the HTTP proxy wants a password ({said}): check HTTPS_PROXY")
    return ProviderError(
        f"{host} refuses the request ({said}): check {endpoint.model_setting} and the settings of "
        "the call"
    )
