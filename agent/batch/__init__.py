"""Solve many instances: `agent batch`.

`run.run_batch` checks the request, opens the run folder and starts a `driver`, which gives jobs to
an engine (`local` for this machine, `ray` for a cluster). Workers (`worker`) solve one instance
each. The `journal` records every decision and payment, so that a killed run can go on, and
`shared_budget` keeps the sum of all calls within the limit.
"""

from agent.batch.journal import (
    ENTRIES,
    Entry,
    Failed,
    Finished,
    Granted,
    RunEnded,
    RunStarted,
    SetAside,
    Settled,
    StageEntry,
    Started,
)
from agent.batch.progress import (
    Summary,
    cost_in_words,
    progress_for,
    replies_in_words,
    unsolved_in_words,
)
from agent.batch.run import BatchPlan, EngineName, run_batch
from agent.batch.shared_budget import Bounds

__all__ = [
    "ENTRIES",
    "BatchPlan",
    "Bounds",
    "EngineName",
    "Entry",
    "Failed",
    "Finished",
    "Granted",
    "RunEnded",
    "RunStarted",
    "SetAside",
    "Settled",
    "StageEntry",
    "Started",
    "Summary",
    "cost_in_words",
    "progress_for",
    "replies_in_words",
    "run_batch",
    "unsolved_in_words",
]
