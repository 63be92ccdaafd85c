"""The miner contract: `agent_main(input)`, which another program calls in its own container.

`front` runs in the caller's process. `worker` solves the task in a process of its own, so that the
best patch so far is returned in time. `agent.miner.bundle` writes both as one file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent import errors
from agent.miner import front


def agent_main(input: Mapping[str, Any] | None) -> str | dict[str, str]:
    """A patch for the problem in `input`, in the form of the contract (docs/guide/miner.md).

    Raises an error of `agent.errors`: ProviderError if the model could not be reached.
    """
    place = str(Path(__file__).resolve().parents[2])
    outcome = front.solve(input, front.Program(path=place), os.environ)
    if outcome.patch:
        return front.as_answer(outcome.patch, os.environ)
    kind: type[Exception] = getattr(errors, outcome.error, errors.PatchshotError)
    raise kind(outcome.message)
