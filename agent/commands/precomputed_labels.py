"""What importing and searching precomputed vectors share."""

from __future__ import annotations

from collections.abc import Sequence

from agent.errors import ConfigurationError

LABEL = "precomputed"
"""How results are labelled; also project and corpus of the entries, apart from what we embedded."""

UNKNOWN_MODEL = "precomputed"
"""The model of a collection for which --made-by was not given."""


def refuse_together(others: Sequence[str]) -> None:
    """Raise ConfigurationError for options that do not go with --precomputed."""
    if others:
        raise ConfigurationError(
            f"--precomputed and {' and '.join(others)} do not go together; give one of them"
        )
