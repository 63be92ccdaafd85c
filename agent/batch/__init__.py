"""Solve many instances: `agent batch`.

`run_batch` checks the request, opens the run folder and starts a `Driver`, which gives jobs to an
engine: worker processes of this machine or tasks of a Ray cluster. The journal records every
decision, and each worker its paid replies, so that a killed run can go on.
"""

from agent.batch.driver import BatchPlan as BatchPlan
from agent.batch.driver import Driver as Driver
from agent.batch.progress import Progress as Progress
from agent.batch.progress import RunCounts as RunCounts
from agent.batch.progress import Summary as Summary
from agent.batch.progress import Unsolved as Unsolved
from agent.batch.run import run_batch as run_batch
from agent.batch.run import summary_of as summary_of
from agent.batch.run_folder import INSTANCES as INSTANCES
from agent.batch.run_folder import JOURNAL as JOURNAL
from agent.batch.run_folder import RUN as RUN
from agent.batch.run_folder import RUN_LOCK as RUN_LOCK
from agent.batch.run_folder import TASKS as TASKS
from agent.batch.run_folder import Entry as Entry
from agent.batch.run_folder import Failed as Failed
from agent.batch.run_folder import Fingerprint as Fingerprint
from agent.batch.run_folder import Finished as Finished
from agent.batch.run_folder import History as History
from agent.batch.run_folder import Journal as Journal
from agent.batch.run_folder import RunStarted as RunStarted
from agent.batch.run_folder import SetAside as SetAside
from agent.batch.run_folder import Started as Started
from agent.batch.run_folder import claim_run_folder as claim_run_folder
from agent.batch.run_folder import parse_entry as parse_entry
from agent.batch.run_folder import read_entries as read_entries
from agent.batch.worker import AttemptEnded as AttemptEnded
from agent.batch.worker import BatchEngine as BatchEngine
from agent.batch.worker import Blame as Blame
from agent.batch.worker import SolveJob as SolveJob
