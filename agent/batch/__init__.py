"""Solve many instances: `agent batch`.

`run.run_batch` checks the request, opens the run folder and starts a `driver`, which gives jobs to
an engine: worker processes of this machine (`worker`) or tasks of a Ray cluster (`ray_tasks`). The
`journal` records every decision, and each worker its paid replies, so that a killed run can go on.
"""

from agent.batch.driver import BatchPlan, Driver, EngineName
from agent.batch.progress import (
    Progress,
    Summary,
    Unsolved,
    cost_in_words,
    progress_for,
    replies_in_words,
    unsolved_in_words,
)
from agent.batch.run import run_batch, summary_of
from agent.batch.run_folder import (
    INSTANCES,
    JOURNAL,
    RUN,
    RUN_LOCK,
    TASKS,
    Entry,
    Failed,
    Fingerprint,
    Finished,
    History,
    Journal,
    RunEnded,
    RunStarted,
    SetAside,
    Started,
    TaskFile,
    claim_run_folder,
    parse_entry,
    read_entries,
)
from agent.batch.worker import AttemptEnded, BatchEngine, Blame, LocalEngine, SolveJob

__all__ = [
    "INSTANCES",
    "JOURNAL",
    "RUN",
    "RUN_LOCK",
    "TASKS",
    "AttemptEnded",
    "BatchEngine",
    "BatchPlan",
    "Blame",
    "Driver",
    "EngineName",
    "Entry",
    "Failed",
    "Fingerprint",
    "Finished",
    "History",
    "Journal",
    "LocalEngine",
    "Progress",
    "RunEnded",
    "RunStarted",
    "SetAside",
    "SolveJob",
    "Started",
    "Summary",
    "TaskFile",
    "Unsolved",
    "claim_run_folder",
    "cost_in_words",
    "parse_entry",
    "progress_for",
    "read_entries",
    "replies_in_words",
    "run_batch",
    "summary_of",
    "unsolved_in_words",
]
