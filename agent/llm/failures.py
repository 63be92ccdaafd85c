"""Turns a model server's refusals into errors that say what to do. Pure functions.

`Failure` is passed on as a value; its `error` is raised at the very end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from pydantic import SecretStr

from agent.errors import (
    AuthenticationFailed,
    BudgetRefused,
    ContextTooLong,
    ProviderError,
    ProviderUnreachable,
    UnknownModel,
)
from agent.llm.endpoint import Endpoint, host_of, without_credentials
from agent.llm.redaction import redact
from agent.shared.terminal import inert

# ---------------------------------------------------------- the text of a server, fit to print

_WORDING_LIMIT = 300  # characters of a server's own message that an error quotes

_MARKUP = re.compile(rb"^\s*(<!doctype|<html|<head|<\?xml)", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
# Fields of an error body: the message proper comes first, codes and parameters follow.
_TEXT_FIELDS = (
    "error", "message", "detail", "msg", "metadata", "raw", "code", "type", "error_type", "param",
    "loc", "errors", "error_description", "reason",
)  # fmt: skip


def one_line(text: str, limit: int = _WORDING_LIMIT) -> str:
    """`text` without control characters or line breaks, at most `limit` characters."""
    flat = " ".join(inert(text, " ", kept="").split())
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"


def is_markup(body: bytes) -> bool:
    """Whether a body is a web page: a proxy's, a login form's, a gateway's."""
    return bool(_MARKUP.match(body))


def wordings(body: bytes, key: SecretStr | None) -> tuple[str, str]:
    """The text to show and the text to match (with error codes), both redacted."""
    text = body.decode("utf-8", "replace")
    if is_markup(body):
        title = _TITLE.search(text)
        shown = matched = title.group(1) if title else "a web page"
    else:
        try:
            parts = list(_texts(json.loads(text)))
        except (ValueError, RecursionError):
            parts = [text]
        shown = parts[0] if parts else ""
        matched = " | ".join(parts)
    return one_line(redact(shown, key)), one_line(redact(matched, key), 2000)


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth < 4:
        for item in value:
            yield from _texts(item, depth + 1)
    elif isinstance(value, dict) and depth < 4:
        for name in _TEXT_FIELDS:
            yield from _texts(value.get(name), depth + 1)


# ------------------------------------------------------------------------------- what refusals mean

# The same request may succeed later (RFC 9110; 409 and 425 as in the OpenAI clients). 501 is not
# here: a server that lacks a function will not get it.
_RETRIABLE_STATUS = frozenset({408, 409, 425, 429, *range(500, 600)} - {501, 505})


def worded(pattern: str) -> re.Pattern[str]:
    """A pattern of words in any case, across line breaks."""
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


# Wordings of OpenAI, Anthropic, vLLM, llama.cpp, Ollama, Groq and TensorRT-LLM servers.
_CONTEXT = worded(
    r"context[_ -]?(length|window|size)|maximum context|exceed_context|too many (input )?tokens"
    r"|(prompt|input|request|message)s? (is |are )?too (long|large)|reduce the length"
    r"|maximum (input|prompt|sequence) length|input length|token limit exceeded|string_above_max"
    r"|must have (less|fewer) than [\d,_]+ tokens"
)
_MODEL = worded(
    r"not a valid model|(invalid|unknown|unsupported) model\b|no such model"
    r"|models?\b.{0,120}(not[_ ](be )?(found|exist|available|supported|loaded|served)"
    r"|does ?n.t exist|unavailable)|model[_ ]not[_ ]found|no (endpoints|allowed providers)"
)
_CREDIT = worded(
    r"insufficient[_ ](quota|credit|balance|funds)|credit balance is too low|exceeded your current"
    r" quota|billing|payment required"
)
# The budget of one run, as the miners' proxies and LiteLLM keep it. Anthropic's `budget_tokens` is
# something else.
_BUDGET = worded(
    r"\bbudget\b|budget[_ ]exceeded|cost limit|maximum cost|already made too many requests"
)
_BUDGET_SPENT = worded(
    r"(budget|cost limit)\b.{0,60}(exceeded|exhausted|reached|spent)|exceed\w* .{0,30}budget"
)
# A run that the miners' proxy does not know, or that is over.
_RUN = worded(
    r"evaluation run\b.{0,80}(not found|not in the \w+ state)|no evaluation run exists"
    r"|run_id.*valid uuid|valid uuid.*run_id"
)
_WRONG_PATH = worded(r"unexpected endpoint|unknown (request )?(url|endpoint|route)")
_KEY = worded(r"invalid (api|x-api)[_ -]?key|incorrect api key|unauthori[sz]ed")
# The status of the provider behind a proxy, as the proxy words it: "request: 413 - {".
_UPSTREAM = re.compile(r"\b([45]\d\d) - ")
# Words of a request that fails each time, for errors that come without a status.
_REQUEST_FAULT = worded(
    r"response_format|json_schema|json_object|max_(completion_)?tokens|temperature|invalid"
    r"|unsupported|validation"
)

# The first row whose status and wording fit names the refusal; None is any wording.
_RULES: tuple[tuple[str, frozenset[int], re.Pattern[str] | None], ...] = (
    ("too long", frozenset({413}), None),
    # More tokens in one request than in a minute's share: waiting cannot help.
    ("too long", frozenset({429}), worded("request too large")),
    ("too long", frozenset({400, 422, 500}), _CONTEXT),
    ("budget", frozenset({429}), _BUDGET),
    ("budget", frozenset({400, 402, 403}), _BUDGET_SPENT),
    ("credit", frozenset({402}), None),
    ("credit", frozenset({400, 403, 429}), _CREDIT),
    ("other", frozenset({400, 404, 422}), _RUN),
    ("key", frozenset({401, 403}), None),
    ("key", frozenset({400}), _KEY),
    ("model", frozenset({400, 404, 422}), _MODEL),
    ("path", frozenset({404, 405, *range(300, 400)}), None),
    ("rate", frozenset({429}), None),
    ("down", _RETRIABLE_STATUS, None),
)
_ADVICE: Mapping[str, tuple[type[ProviderError], str]] = {
    "too long": (
        ContextTooLong,
        "the prompt is too long for model {model} ({reason}): lower PATCHSHOT_CONTEXT_TOKENS or "
        "PATCHSHOT_MAX_OUTPUT_TOKENS, or choose a model with a larger context",
    ),
    "budget": (
        BudgetRefused,
        "{host} refuses further calls, the run's budget there is spent ({reason}): raise it there, "
        "or make fewer or smaller calls",
    ),
    "credit": (
        ProviderError,
        "{host} has no credit left for {key} ({reason}): add credit or use another key",
    ),
    "key": (
        AuthenticationFailed,
        "{host} refuses the key, or wants one ({reason}): check {key}, and that it may use {model}",
    ),
    "path": (
        ProviderError,
        "{base_url} does not serve this call ({reason}): check {url}, it usually ends with /v1",
    ),
    "rate": (
        ProviderUnreachable,
        "{host} limits the rate of calls ({reason}): wait, or make fewer at once",
    ),
    "down": (ProviderUnreachable, "{host} fails ({reason}): try again later"),
    "other": (
        ProviderError,
        "{host} refuses the request ({reason}): check {model_setting}, the settings of the call, "
        "and EVALUATION_RUN_ID if a miners' proxy is asked",
    ),
}


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that gave no usable reply. `retry_after`: seconds, as the server asks.

    `wrong_path`: the URL is not served at all. `wording`: the server's text, redacted.
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
    """The failure of a reply other than 2xx. `now` has a time zone; Retry-After may be a date."""
    shown, matched = wordings(reply.body, endpoint.api_key)
    if 300 <= reply.status < 400:
        target = without_credentials(reply.headers.get("location", "elsewhere"))
        shown = f"redirects to {one_line(redact(target))}"
    wait = retry_after(reply.headers, now)
    failure = _failure(reply.status, shown, matched, endpoint, wait)
    # The first generation of the miners' gateway answers 403 with a page to paths it does not know.
    is_page = reply.status == 403 and is_markup(reply.body)
    return replace(failure, wrong_path=failure.wrong_path or is_page)


def read_embedded_error(value: Any, endpoint: Endpoint) -> Failure | None:
    """The failure of an `error` inside a 200 reply or its first choice; None without one."""
    if not isinstance(value, dict):
        return None
    choices = value.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    error = value.get("error") or (first.get("error") if isinstance(first, dict) else None)
    if not error:
        return None
    code = str(error.get("code") if isinstance(error, dict) else None)
    status = int(code) if code.isascii() and code.isdigit() else 200
    text = json.dumps({"error": error, "error_type": value.get("error_type")})
    return read_error_text(text, endpoint, status)


def read_error_text(text: str, endpoint: Endpoint, status: int = 200) -> Failure:
    """The failure of an error that came as the text of an answer: words, JSON or a web page.

    A `status` below 400 is replaced by the one that the words suggest.
    """
    shown, matched = wordings(text.encode("utf-8", "replace"), endpoint.api_key)
    status = status if status >= 400 else _status_in(matched)
    return _failure(status, shown, matched, endpoint, None)


def _status_in(matched: str) -> int:
    """The status that an error without one suggests: 502 where the provider behind has failed."""
    upstream = _UPSTREAM.search(matched)
    if upstream:
        return int(upstream.group(1))
    if _KEY.search(matched):
        return 401
    if _MODEL.search(matched) or _WRONG_PATH.search(matched):
        return 404
    return 400 if _REQUEST_FAULT.search(matched) or _CONTEXT.search(matched) else 502


def unreadable(reply: RawReply, endpoint: Endpoint) -> Failure:
    """A 2xx reply whose body is not JSON: a web page, nothing at all, or a cut-off text."""
    host = host_of(endpoint)
    if is_markup(reply.body):
        page = ProviderError(
            f"{host} answers with a web page instead of JSON: check {endpoint.url_setting} "
            f"({without_credentials(endpoint.base_url)}) and any proxy or login in between"
        )
        return Failure(page, status=reply.status, wrong_path=True)
    excerpt = one_line(redact(reply.body[:400].decode("utf-8", "replace"), endpoint.api_key), 80)
    what = f"something that is no JSON ({excerpt!r})" if excerpt else "an empty body"
    error = ProviderUnreachable(
        f"{host} answers with {what}: try again later, or check {endpoint.url_setting}"
    )
    return Failure(error, retriable=True, status=reply.status)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds to wait as the server asks (RFC 9110: seconds or a date), never negative.

    A date is compared with the server's own (its Date header), since the clocks may differ.
    """
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        moment, server_time = _date(headers, "retry-after"), _date(headers, "date") or now
        return None if moment is None else max(0.0, (moment - server_time).total_seconds())
    return seconds if 0 <= seconds < float("inf") else None


def _date(headers: Mapping[str, str], name: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(headers.get(name, ""))
    except (ValueError, TypeError):
        return None
    return None if moment.tzinfo is None else moment


def _failure(
    status: int, shown: str, matched: str, endpoint: Endpoint, wait: float | None
) -> Failure:
    kind = _kind(status, matched, endpoint, refills=wait is not None)
    error = _error(kind, f"{status}: {shown}" if shown else str(status), matched, endpoint)
    return Failure(error, kind in ("rate", "down"), wait, status, matched, kind == "path")


def _kind(status: int, matched: str, endpoint: Endpoint, *, refills: bool) -> str:
    for kind, statuses, words in _RULES:
        if status not in statuses or (words is not None and not words.search(matched)):
            continue
        if kind == "credit" and status == 429 and refills:
            continue
        if kind == "path" and status == 404 and endpoint.model and endpoint.model in matched:
            return "model"
        return kind
    return "other"


def _error(kind: str, reason: str, matched: str, endpoint: Endpoint) -> ProviderError:
    if kind == "model":
        return unknown_model_error(endpoint, reason)
    make, text = _ADVICE[kind]
    message = text.format(
        host=host_of(endpoint),
        base_url=without_credentials(endpoint.base_url),
        reason=reason,
        key=endpoint.key_setting,
        url=endpoint.url_setting,
        model=endpoint.model or "of its own choice",
        model_setting=endpoint.model_setting,
    )
    if make is ContextTooLong:
        limit, counted = read_context_limit(matched)
        return ContextTooLong(message, limit=limit, counted=counted)
    return make(message)


def unknown_model_error(
    endpoint: Endpoint, reason: str, nearest: Sequence[str] = ()
) -> UnknownModel:
    """The error for a model the server does not have; `nearest` are names that it has."""
    has = f"it has {', '.join(nearest)}" if nearest else "see the server's list of models"
    return UnknownModel(
        f"{host_of(endpoint)} has no model {endpoint.model!r} ({reason}): set "
        f"{endpoint.model_setting} to one that it has; {has}"
    )


# --------------------------------------------------------- token limits in the wording of a refusal

_NUMBER = r"(\d[\d,_]{0,12})"

# Wordings of OpenAI, OpenRouter and vLLM, of Anthropic, and of llama.cpp. Others state no limit.
_LIMITS = (
    worded(rf"maximum context length (?:is|of)\D{{0,12}}{_NUMBER}"),
    worded(rf"(?:too long|context limit)\D{{0,4}}{_NUMBER}[^>]{{0,60}}> {_NUMBER}"),
    worded(rf"context (?:size|window|length|limit) (?:is |of |\()?(?:only )?{_NUMBER}"),
)
_COUNTS = (
    worded(rf"{_NUMBER} (?:in the messages|of text input|input tokens)"),
    worded(rf"(?:resulted in|request has|request \() ?{_NUMBER}"),
    worded(rf"(?:too long|context limit)\D{{0,4}}{_NUMBER}"),
    worded(rf"requested (?:about )?{_NUMBER} tokens"),
)
_LARGEST = 100_000_000  # no model has a larger window


def read_context_limit(wording: str) -> tuple[int | None, int | None]:
    """The model's window and the server's count of the prompt, in tokens; None if not stated."""
    return _first(_LIMITS, wording), _first(_COUNTS, wording)


def _first(patterns: tuple[re.Pattern[str], ...], wording: str) -> int | None:
    for pattern in patterns:
        match = pattern.search(wording)
        if match:
            number = int(re.sub(r"\D", "", match.groups()[-1]))
            if 0 < number < _LARGEST:
                return number
    return None
