"""The folder of one solve, and the user's folder of kept runs."""

from agent.results.kept.keeping import RunKeeper, changed_files, keep_run, make_origin
from agent.results.kept.store import (
    EXCHANGES,
    ISSUE,
    LOCK,
    LOG,
    PATCH,
    RESULT,
    Feedback,
    KeptRun,
    RunOrigin,
    find_run,
    is_id,
    last_log_line,
    list_runs,
    read_model,
    read_patch,
    read_result,
    read_run,
    runs_folder,
    write_patch,
    write_result,
)

__all__ = [
    "EXCHANGES", "ISSUE", "LOCK", "LOG", "PATCH", "RESULT", "Feedback", "KeptRun", "RunKeeper",
    "RunOrigin", "changed_files", "find_run", "is_id", "keep_run", "last_log_line", "list_runs",
    "make_origin", "read_model", "read_patch", "read_result", "read_run", "runs_folder",
    "write_patch", "write_result",
]  # fmt: skip
