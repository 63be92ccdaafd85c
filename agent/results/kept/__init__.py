"""The folder of one solve, and the user's folder of kept runs."""

from agent.results.kept.keeping import RunKeeper as RunKeeper
from agent.results.kept.keeping import changed_files as changed_files
from agent.results.kept.keeping import keep_run as keep_run
from agent.results.kept.keeping import make_origin as make_origin
from agent.results.kept.store import EXCHANGES as EXCHANGES
from agent.results.kept.store import ISSUE as ISSUE
from agent.results.kept.store import LOCK as LOCK
from agent.results.kept.store import LOG as LOG
from agent.results.kept.store import PATCH as PATCH
from agent.results.kept.store import RESULT as RESULT
from agent.results.kept.store import Feedback as Feedback
from agent.results.kept.store import KeptRun as KeptRun
from agent.results.kept.store import RunOrigin as RunOrigin
from agent.results.kept.store import find_run as find_run
from agent.results.kept.store import is_id as is_id
from agent.results.kept.store import last_log_line as last_log_line
from agent.results.kept.store import list_runs as list_runs
from agent.results.kept.store import read_model as read_model
from agent.results.kept.store import read_patch as read_patch
from agent.results.kept.store import read_result as read_result
from agent.results.kept.store import read_run as read_run
from agent.results.kept.store import runs_folder as runs_folder
from agent.results.kept.store import write_patch as write_patch
from agent.results.kept.store import write_result as write_result
