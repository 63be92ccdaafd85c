"""The errors of Patchshot. They mean a broken environment; expected failures are values.

Each message is one line: what is wrong and what to do. Errors of libraries (httpx, git, the OS) are
translated once, where they are raised.
"""

from __future__ import annotations

import enum


class Status(enum.StrEnum):
    """How a run ended: the `status` of `--json`. `exit_code` is the exit code that goes with it."""

    ACCEPTED = "accepted"
    CRASHED = "crashed"
    USAGE = "usage"
    NO_EDIT = "no-edit"
    ALREADY_FIXED = "already-fixed"
    UNPARSEABLE = "unparseable"
    NOT_APPLIED = "not-applied"
    BROKEN = "broken"
    SUSPECT = "suspect"
    TIME_LIMIT = "time-limit"
    BUDGET = "budget"
    PROVIDER = "provider"
    SANDBOX = "sandbox"
    UNVERIFIED = "unverified"
    INTERRUPTED = "interrupted"

    @property
    def exit_code(self) -> int:
        return _EXIT_CODES[self]


_EXIT_CODES = {
    Status.ACCEPTED: 0,
    Status.CRASHED: 1,  # a bug of ours; Python's own code for an uncaught exception
    Status.USAGE: 2,
    Status.NO_EDIT: 3,
    Status.ALREADY_FIXED: 3,  # the code holds what the model would write: nothing to edit
    Status.UNPARSEABLE: 4,
    Status.NOT_APPLIED: 5,
    Status.BROKEN: 6,
    Status.SUSPECT: 6,  # the tests cannot be trusted: the same as broken for a caller
    Status.TIME_LIMIT: 7,
    Status.BUDGET: 8,
    Status.PROVIDER: 9,
    Status.SANDBOX: 10,
    # The patch applies and parses, but no test could run: neither accepted nor broken.
    Status.UNVERIFIED: 11,
    Status.INTERRUPTED: 130,  # 128 + SIGINT, as shells report it
}


class PatchshotError(Exception):
    """Base of all errors that the command line reports in one line."""

    status = Status.USAGE


class UsageError(PatchshotError):
    """The command cannot be carried out as asked."""


class ProblemError(UsageError):
    """The problem text is missing, empty, binary, too large or unreadable."""


class RepositoryError(UsageError):
    """The repository is missing, bare, empty, unreadable, or git is not installed."""


class ConfigurationError(UsageError):
    """A setting is missing, malformed or contradicts another."""


class ReplayMismatch(UsageError):
    """A recorded exchange does not belong to the prompt that is about to be sent."""


class BrokenBase(PatchshotError):
    """A module of the base does not parse: no test that imports it can judge a patch."""

    status = Status.UNVERIFIED


class BudgetExceeded(PatchshotError):
    """A call was not made because its worst case would cost more than is left."""

    status = Status.BUDGET


class TimeLimitExceeded(PatchshotError):
    """The time limit of the whole run is over."""

    status = Status.TIME_LIMIT


class ProviderError(PatchshotError):
    """The model's server cannot be reached, refuses, or answers nonsense."""

    status = Status.PROVIDER


class AuthenticationFailed(ProviderError):
    """The key is missing, wrong or not allowed to use the model."""


class UnknownModel(ProviderError):
    """The server does not have the model."""


class ContextTooLong(ProviderError):
    """The server counts more input tokens than the model takes.

    `limit` is the model's window and `counted` the size of the prompt, in tokens as the server
    counts; None for what the server does not say.
    """

    def __init__(
        self, message: str, *, limit: int | None = None, counted: int | None = None
    ) -> None:
        super().__init__(message)
        self.limit = limit
        self.counted = counted


class BudgetRefused(BudgetExceeded, ProviderError):
    """The provider says that the run's budget there is spent."""


class InputTooLong(ProviderError):
    """The model rejected a text of the batch as too long (400 or 413 with the provider's wording).

    `ParallelEmbedder` then sends the texts of the batch one by one, and halves the rejected text.
    """


class EmbeddingsUnsupported(ProviderError):
    """The server does not offer embeddings (404, 422, 501): no later call can succeed."""


class ProviderUnreachable(ProviderError):
    """No usable answer after all tries."""


class StoreError(PatchshotError):
    """The vector store cannot carry out a request."""


class StoreUnreachable(StoreError):
    """The server of the store cannot be reached, or its files cannot be opened."""


class StoreMismatch(StoreError):
    """The store holds vectors of another model, dimension or program."""


class SemanticRetrievalError(PatchshotError):
    """Precomputed vectors cannot be searched."""


class SemanticIndexError(SemanticRetrievalError):
    """The folder of vectors is missing, holds nothing usable, or lacks a text it refers to."""


class SemanticQueryError(SemanticRetrievalError):
    """A query cannot be compared with the vectors."""


class SemanticConfigError(SemanticRetrievalError):
    """An agent's settings are missing, malformed or out of range."""


class ForgeError(PatchshotError):
    """GitHub cannot be used for a push or a pull request."""


class SandboxUnavailable(PatchshotError):
    """Untrusted code cannot be run in isolation on this machine."""

    status = Status.SANDBOX
