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
    ProviderError,
    ProviderUnreachable,
)
from agent.llm import refusals
from agent.llm.context_limits import read_context_limit
from agent.llm.endpoint import Endpoint, host_of, without_credentials
from agent.llm.wording import excerpt, is_markup, wordings

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
    r" quota|billing|payment required",
    re.IGNORECASE,
)
# The budget of one run, as the miners' proxies and LiteLLM keep it. Anthropic's `budget_tokens` is
# no such thing.
_BUDGET = re.compile(
    r"\bbudget\b|budget[_ ]exceeded|cost limit|maximum cost|already made too many requests", re.I
)
_BUDGET_SPENT = re.compile(
    r"(budget|cost limit)\b.{0,60}(exceeded|exhausted|reached|spent)|exceed\w* .{0,30}budget", re.I
)
# A run that the miners' proxy does not know, or that is over.
_RUN = re.compile(
    r"evaluation run\b.{0,80}(not found|not in the \w+ state)|no evaluation run exists", re.I
)
_WRONG_PATH = re.compile(r"unexpected endpoint|unknown (request )?(url|endpoint|route)", re.I)
_KEY = re.compile(r"invalid (api|x-api)[_ -]?key|incorrect api key|unauthori[sz]ed", re.IGNORECASE)
# The status of the provider behind a proxy, where the proxy tells it in words: "request: 413 - {".
_UPSTREAM = re.compile(r"\b([45]\d\d) - ")
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
    # The first generation of the miners' gateway answers 403 with a page to paths it does not know.
    wrong_path = failure.wrong_path or (reply.status == 403 and is_markup(reply.body))
    return Failure(failure.error, failure.retriable, wait, reply.status, matched, wrong_path)


def read_embedded_error(value: Any, endpoint: Endpoint) -> Failure | None:
    """What an `error` inside a 200 reply, or its first choice, means; None without one."""
    error = _embedded(value)
    if not error:
        return None
    code = str(error.get("code") if isinstance(error, dict) else None)
    status = int(code) if code.isascii() and code.isdigit() else 200
    return _read_error(json.dumps({"error": error}), status, endpoint)


def read_error_text(text: str, endpoint: Endpoint) -> Failure:
    """What an error means that came as the text of an answer: words, JSON or a web page."""
    return _read_error(text, 200, endpoint)


def _read_error(text: str, status: int, endpoint: Endpoint) -> Failure:
    """`status` below 400: it is told from the words."""
    shown, matched = wordings(text.encode("utf-8", "replace"), endpoint.api_key)
    upstream = _UPSTREAM.search(matched)
    if status < 400 and upstream:
        status = int(upstream.group(1))
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
        return Failure(refusals.too_long(said, read_context_limit(matched), endpoint))
    if _is_over_budget(status, matched):
        return Failure(refusals.over_budget(said, endpoint))
    if _is_out_of_credit(status, matched, headers):
        return Failure(refusals.out_of_credit(said, endpoint))
    if status in (400, 404) and endpoint.run_id and _RUN.search(matched):
        return Failure(refusals.unknown_run(said, endpoint))
    if status in (401, 403) or (status == 400 and _KEY.search(matched)):
        return Failure(refusals.refused_key(status, said, endpoint))
    if _is_unknown_model(status, matched, endpoint.model):
        return Failure(refusals.unknown_model(endpoint, said))
    if status in (404, 405):
        return Failure(refusals.wrong_path(said, endpoint), wrong_path=True)
    if status in _RETRIABLE_STATUS:
        return Failure(refusals.unavailable(status, said, endpoint), retriable=True)
    return Failure(refusals.refused(status, said, endpoint, headers))


def _is_too_long(status: int, matched: str) -> bool:
    if status == 429:  # more tokens in one request than in a minute's share: waiting cannot help
        return "request too large" in matched.lower()
    return status == 413 or (status in (400, 422, 500) and bool(_CONTEXT.search(matched)))


def _is_over_budget(status: int, matched: str) -> bool:
    if status == 429:
        return bool(_BUDGET.search(matched))
    return status in (400, 402, 403) and bool(_BUDGET_SPENT.search(matched))


def _is_out_of_credit(status: int, matched: str, headers: Mapping[str, str]) -> bool:
    if status == 429 and "retry-after" in headers:  # a quota that refills
        return False
    return status == 402 or (status in (400, 403, 429) and bool(_CREDIT.search(matched)))


def _is_unknown_model(status: int, matched: str, model: str) -> bool:
    if status not in (400, 404, 422):
        return False
    return bool(_MODEL.search(matched)) or (status == 404 and bool(model) and model in matched)
