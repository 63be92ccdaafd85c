"""The miner contract: `agent_main(input)`, called by somebody else's program in its container.

`front` runs in the caller's process and imports nothing but the standard library; the work is done
by `worker` in a process of its own, so that whatever hangs or dies there, the best patch so far is
handed back in time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent import errors
from agent.miner import front


def agent_main(input: Mapping[str, Any] | None) -> str | dict[str, str]:
    """A patch for the problem in `input`, as the contract's versions want it (docs/miner.md).

    `{"patch": str}` where the environment is that of the first version, else a non-empty str.
    Raises an error of `agent.errors` when there is no valid patch to hand back: ProviderError for
    a model that could not be reached, with the reason as it was.
    """
    place = str(Path(__file__).resolve().parents[2])
    outcome = front.solve(input, front.Program(path=place), os.environ)
    if outcome.patch:
        return front.as_answer(outcome.patch, os.environ)
    kind: type[Exception] = getattr(errors, outcome.error, errors.PatchshotError)
    raise kind(outcome.message)
