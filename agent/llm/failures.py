"""Turns a model server's refusals into errors that say what to do. Pure functions.

`Failure` is the value that `agent.llm.http`, `agent.llm.server` and the models pass on; its `error`
is raised at the very end. The parts: what a reply means, the errors and their advice, and how many
tokens a refusal says the model takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from agent.errors import (
    AuthenticationFailed,
    BudgetRefused,
    ContextTooLong,
    ProviderError,
    ProviderUnreachable,
    UnknownModel,
)
from agent.llm.endpoint import Endpoint, host_of, without_credentials
from agent.llm.redaction import excerpt, is_markup, one_line, redact, wordings

# The same request may succeed later (RFC 9110; 409 and 425 as in the OpenAI clients). 501 is not
# here: a server that lacks a function will not get it.
_RETRIABLE_STATUS = frozenset({408, 409, 425, 429, *range(500, 600)} - {501, 505})

# Wordings of OpenAI, Anthropic, vLLM, llama.cpp, Ollama, Groq and TensorRT-LLM servers.
_CONTEXT = re.compile(
    r"context[_ -]?(length|window|size)|maximum context|exceed_context|too many (input )?tokens"
    r"|(prompt|input|request|message)s? (is |are )?too (long|large)|reduce the length"
    r"|maximum (input|prompt|sequence) length|input length|token limit exceeded|string_above_max"
    r"|must have (less|fewer) than [\d,_]+ tokens",
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
# something else.
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
# The status of the provider behind a proxy, as the proxy words it: "request: 413 - {".
_UPSTREAM = re.compile(r"\b([45]\d\d) - ")
# Words of a request that fails each time, for errors that come without a status.
_REQUEST_FAULT = re.compile(
    r"response_format|json_schema|json_object|max_(completion_)?tokens|temperature|invalid"
    r"|unsupported|validation",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that gave no usable reply.

    `retriable`: the same request may succeed later, after `retry_after` seconds if the server says
    so. `wrong_path`: the URL is not served at all. `wording` is the server's text, by which
    protocols adapt the request; it is redacted like `error`.
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
    wait = retry_after(reply.headers, now)
    failure = _classify(reply.status, shown, matched, endpoint, reply.headers)
    # The first generation of the miners' gateway answers 403 with a page to paths it does not know.
    wrong_path = failure.wrong_path or (reply.status == 403 and is_markup(reply.body))
    return Failure(failure.error, failure.retriable, wait, reply.status, matched, wrong_path)


def read_embedded_error(value: Any, endpoint: Endpoint) -> Failure | None:
    """The failure of an `error` inside a 200 reply or its first choice; None without one."""
    error = _embedded(value)
    if not error:
        return None
    code = str(error.get("code") if isinstance(error, dict) else None)
    status = int(code) if code.isascii() and code.isdigit() else 200
    kind = value.get("error_type") if isinstance(value, dict) else None
    return _read_error(json.dumps({"error": error, "error_type": kind}), status, endpoint)


def read_error_text(text: str, endpoint: Endpoint) -> Failure:
    """The failure of an error that came as the text of an answer: words, JSON or a web page."""
    return _read_error(text, 200, endpoint)


def _read_error(text: str, status: int, endpoint: Endpoint) -> Failure:
    """A `status` below 400 is replaced by the one that the words suggest."""
    shown, matched = wordings(text.encode("utf-8", "replace"), endpoint.api_key)
    upstream = _UPSTREAM.search(matched)
    if status < 400 and upstream:
        status = int(upstream.group(1))
    if status < 400:
        # Failures of the provider behind often come without a code; a faulty request fails again.
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
    """Seconds to wait as the server asks (RFC 9110: seconds or a date), never negative.

    A date is compared with the server's own (its Date header), since the clocks may differ. `now`
    takes its place where the server does not say it.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, (moment - _server_time(headers, now)).total_seconds())
    except (ValueError, TypeError):  # no date, or one without a time zone
        return None


def _server_time(headers: Mapping[str, str], now: datetime) -> datetime:
    try:
        stated = parsedate_to_datetime(headers.get("date", ""))
    except (ValueError, TypeError):
        return now
    return now if stated.tzinfo is None else stated


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
        return Failure(_too_long_error(said, read_context_limit(matched), endpoint))
    if _is_over_budget(status, matched):
        return Failure(_budget_error(said, endpoint))
    if _is_out_of_credit(status, matched, headers):
        return Failure(_credit_error(said, endpoint))
    if status in (400, 404) and endpoint.run_id and _RUN.search(matched):
        return Failure(_unknown_run_error(said, endpoint))
    if status in (401, 403) or (status == 400 and _KEY.search(matched)):
        return Failure(_refused_key_error(status, said, endpoint))
    if _is_unknown_model(status, matched, endpoint.model):
        return Failure(unknown_model_error(endpoint, said))
    if status in (404, 405):
        return Failure(_wrong_path_error(said, endpoint), wrong_path=True)
    if status in _RETRIABLE_STATUS:
        return Failure(_unavailable_error(status, said, endpoint), retriable=True)
    return Failure(_refused_error(status, said, endpoint, headers))


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


# -------------------------------------------------------------------------- errors and their advice


def _too_long_error(said: str, told: ContextLimit, endpoint: Endpoint) -> ContextTooLong:
    """The prompt has more tokens than the model takes."""
    return ContextTooLong(
        f"the prompt is too long for model {endpoint.model or 'of its own choice'} ({said}): lower "
        "PATCHSHOT_CONTEXT_TOKENS or PATCHSHOT_MAX_OUTPUT_TOKENS, or choose a model with a larger "
        "context",
        limit=told.limit,
        counted=told.counted,
    )


def _budget_error(said: str, endpoint: Endpoint) -> BudgetRefused:
    """The budget that the server keeps for this run is spent."""
    return BudgetRefused(
        f"{host_of(endpoint)} refuses further calls, the run's budget there is spent ({said}): "
        "raise it there, or make fewer or smaller calls"
    )


def _credit_error(said: str, endpoint: Endpoint) -> ProviderError:
    """The account behind the key has no money left."""
    return ProviderError(
        f"{host_of(endpoint)} has no credit left for {endpoint.key_setting} ({said}): add credit "
        "or use another key"
    )


def unknown_model_error(
    endpoint: Endpoint, said: str, nearest: tuple[str, ...] = ()
) -> UnknownModel:
    """The error for a model the server does not have; `nearest` are names that it has."""
    has = f"it has {', '.join(nearest)}" if nearest else "see the server's list of models"
    return UnknownModel(
        f"{host_of(endpoint)} has no model {endpoint.model!r} ({said}): set "
        f"{endpoint.model_setting} to one that it has; {has}"
    )


def _unknown_run_error(said: str, endpoint: Endpoint) -> ProviderError:
    """The miners' proxy does not know the run, or it is over."""
    return ProviderError(
        f"{host_of(endpoint)} does not take run {endpoint.run_id!r} ({said}): set "
        "EVALUATION_RUN_ID to a run that is under way there"
    )


def _refused_key_error(status: int, said: str, endpoint: Endpoint) -> AuthenticationFailed:
    """The key is missing, wrong, or may not do this."""
    host = host_of(endpoint)
    if endpoint.api_key is None and "@" in urlsplit(endpoint.base_url).netloc:
        return AuthenticationFailed(
            f"{host} refuses the user and password of {endpoint.url_setting} ({said}): correct "
            f"them, or set {endpoint.key_setting}"
        )
    if endpoint.api_key is None:
        return AuthenticationFailed(f"{host} wants a key ({said}): set {endpoint.key_setting}")
    if status == 403:
        return AuthenticationFailed(
            f"{host} does not allow this ({said}): check that {endpoint.key_setting} may use model "
            f"{endpoint.model}"
        )
    return AuthenticationFailed(f"{host} refuses the key ({said}): check {endpoint.key_setting}")


def _wrong_path_error(said: str, endpoint: Endpoint) -> ProviderError:
    """The URL is not served."""
    hint = "" if endpoint.run_id else ", it usually ends with /v1"
    return ProviderError(
        f"{without_credentials(endpoint.base_url)} does not serve this call ({said}): check "
        f"{endpoint.url_setting}{hint}"
    )


def _unavailable_error(status: int, said: str, endpoint: Endpoint) -> ProviderUnreachable:
    """The same request may succeed later."""
    if status == 429:
        return ProviderUnreachable(
            f"{host_of(endpoint)} limits the rate of calls ({said}): wait, or make fewer at once"
        )
    return ProviderUnreachable(f"{host_of(endpoint)} fails ({said}): try again later")


def _refused_error(
    status: int, said: str, endpoint: Endpoint, headers: Mapping[str, str]
) -> ProviderError:
    """Any other refusal."""
    host = host_of(endpoint)
    if 300 <= status < 400:
        target = one_line(redact(without_credentials(headers.get("location", "elsewhere"))))
        return ProviderError(
            f"{host} redirects to {target} ({status}): set {endpoint.url_setting} to the address "
            "that answers, redirects are not followed with a key"
        )
    if status == 422 and not endpoint.model:
        return ProviderError(
            f"{host} wants a model, and lists none to choose from ({said}): set "
            f"{endpoint.model_setting}"
        )
    if status == 407:
        return ProviderError(f"the HTTP proxy wants a password ({said}): check HTTPS_PROXY")
    return ProviderError(
        f"{host} refuses the request ({said}): check {endpoint.model_setting} and the settings of "
        "the call"
    )


# --------------------------------------------------------- token limits in the wording of a refusal

_NUMBER = r"(\d[\d,_]{0,12})"

# Wordings as seen from OpenAI, OpenRouter, vLLM, Anthropic, llama.cpp, Mistral, Gemini, Cohere and
# text-generation-inference, in this order.
_LIMITS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"maximum context length (?:is|of)\D{{0,12}}{_NUMBER}",
        rf"(?:too long|context limit)\D{{0,4}}{_NUMBER}[^>]{{0,60}}> {_NUMBER}",
        rf"context (?:size|window|length|limit) (?:is |of |\()?(?:only )?{_NUMBER}",
        rf"{_NUMBER} maximum context length",
        rf"maximum number of tokens allowed \(?{_NUMBER}",
        rf"cannot exceed {_NUMBER}",
        rf"tokens`? (?:\+ `?max_new_tokens`? )?must be <= {_NUMBER}",
        rf"must have less than {_NUMBER} tokens",
    )
)
_COUNTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_NUMBER} (?:in the messages|of text input|input tokens|`inputs` tokens)",
        rf"(?:resulted in|request has|prompt contains|received|request \(|count \() ?{_NUMBER}",
        rf"(?:too long|context limit)\D{{0,4}}{_NUMBER}",
        rf"given: {_NUMBER}",
        rf"requested (?:about )?{_NUMBER} tokens",
    )
)
_LARGEST = 100_000_000  # no model has a larger window


@dataclass(frozen=True, slots=True)
class ContextLimit:
    """The model's window and the server's count of the prompt, in tokens; None if not stated."""

    limit: int | None = None
    counted: int | None = None


def read_context_limit(wording: str) -> ContextLimit:
    """The sizes in the wording of a refusal."""
    return ContextLimit(_first(_LIMITS, wording), _first(_COUNTS, wording))


def _first(patterns: tuple[re.Pattern[str], ...], wording: str) -> int | None:
    for pattern in patterns:
        found = pattern.search(wording)
        if found:
            number = int(re.sub(r"\D", "", found.groups()[-1]))
            if 0 < number < _LARGEST:
                return number
    return None
