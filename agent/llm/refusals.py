"""What a server's refusal is called, and what to do about it: one function an error."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from agent.errors import (
    AuthenticationFailed,
    BudgetRefused,
    ContextTooLong,
    ProviderError,
    ProviderUnreachable,
    UnknownModel,
)
from agent.llm.context_limits import ContextLimit
from agent.llm.endpoint import Endpoint, host_of, without_credentials
from agent.llm.wording import one_line, redact


def too_long(said: str, told: ContextLimit, endpoint: Endpoint) -> ContextTooLong:
    """The prompt has more tokens than the model takes."""
    return ContextTooLong(
        f"the prompt is too long for model {endpoint.model or 'of its own choice'} ({said}): lower "
        "PATCHSHOT_CONTEXT_TOKENS or PATCHSHOT_MAX_OUTPUT_TOKENS, or choose a model with a larger "
        "context",
        limit=told.limit,
        counted=told.counted,
    )


def over_budget(said: str, endpoint: Endpoint) -> BudgetRefused:
    """The budget that the server keeps for this run is spent."""
    return BudgetRefused(
        f"{host_of(endpoint)} refuses further calls, the run's budget there is spent ({said}): "
        "raise it there, or make fewer or smaller calls"
    )


def out_of_credit(said: str, endpoint: Endpoint) -> ProviderError:
    """The account behind the key has no money left."""
    return ProviderError(
        f"{host_of(endpoint)} has no credit left for {endpoint.key_setting} ({said}): add credit "
        "or use another key"
    )


def unknown_model(endpoint: Endpoint, said: str, nearest: tuple[str, ...] = ()) -> UnknownModel:
    """The error for a model the server does not have; `nearest` are names that it has."""
    has = f"it has {', '.join(nearest)}" if nearest else "see the server's list of models"
    return UnknownModel(
        f"{host_of(endpoint)} has no model {endpoint.model!r} ({said}): set "
        f"{endpoint.model_setting} to one that it has; {has}"
    )


def unknown_run(said: str, endpoint: Endpoint) -> ProviderError:
    """The miners' proxy does not know the run, or it is over."""
    return ProviderError(
        f"{host_of(endpoint)} does not take run {endpoint.run_id!r} ({said}): set "
        "EVALUATION_RUN_ID to a run that is under way there"
    )


def refused_key(status: int, said: str, endpoint: Endpoint) -> AuthenticationFailed:
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


def wrong_path(said: str, endpoint: Endpoint) -> ProviderError:
    """The URL is not served."""
    hint = "" if endpoint.kind == "miner" else ", it usually ends with /v1"
    return ProviderError(
        f"{without_credentials(endpoint.base_url)} does not serve this call ({said}): check "
        f"{endpoint.url_setting}{hint}"
    )


def unavailable(status: int, said: str, endpoint: Endpoint) -> ProviderUnreachable:
    """The same request may succeed later."""
    if status == 429:
        return ProviderUnreachable(
            f"{host_of(endpoint)} limits the rate of calls ({said}): wait, or make fewer at once"
        )
    return ProviderUnreachable(f"{host_of(endpoint)} fails ({said}): try again later")


def refused(
    status: int, said: str, endpoint: Endpoint, headers: Mapping[str, str]
) -> ProviderError:
    """Everything else that is refused."""
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
