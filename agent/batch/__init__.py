"""Solve many instances: `agent batch`.

`run_batch` checks the request, opens the run folder and starts a `Driver`, which gives jobs to an
engine: worker processes of this machine or tasks of a Ray cluster. The journal records every
decision, and each worker its paid replies, so that a killed run can go on.
"""

from agent.batch.driver import BatchPlan, Driver
from agent.batch.progress import Progress, RunCounts, Summary, Unsolved
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
    RunStarted,
    SetAside,
    Started,
    claim_run_folder,
    parse_entry,
    read_entries,
)
from agent.batch.worker import AttemptEnded, BatchEngine, Blame, SolveJob

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
    "Entry",
    "Failed",
    "Fingerprint",
    "Finished",
    "History",
    "Journal",
    "Progress",
    "RunCounts",
    "RunStarted",
    "SetAside",
    "SolveJob",
    "Started",
    "Summary",
    "Unsolved",
    "claim_run_folder",
    "parse_entry",
    "read_entries",
    "run_batch",
    "summary_of",
]
