"""SWE-bench data sets and predictions.

`read_entries` gives each reader only the fields that it may know: `SolverTask` for a solver,
`GoldInstance` for evaluations of retrieval, `ScoringInstance` for the scoring of patches.
"""

from agent.datasets.changed_lines import Insertion as Insertion
from agent.datasets.changed_lines import PatchedFile as PatchedFile
from agent.datasets.changed_lines import parse_patch as parse_patch
from agent.datasets.instances import GoldInstance as GoldInstance
from agent.datasets.instances import ScoringInstance as ScoringInstance
from agent.datasets.instances import SolverTask as SolverTask
from agent.datasets.instances import Split as Split
from agent.datasets.instances import folder_name as folder_name
from agent.datasets.instances import is_for_tuning as is_for_tuning
from agent.datasets.instances import load_dataset as load_dataset
from agent.datasets.instances import part_of as part_of
from agent.datasets.predictions import Prediction as Prediction
from agent.datasets.predictions import PredictionsWriter as PredictionsWriter
from agent.datasets.predictions import check_output as check_output
from agent.datasets.repositories import check_folder as check_folder
from agent.datasets.repositories import find_repository as find_repository
from agent.datasets.repositories import read_files as read_files
from agent.datasets.rows import InputProblem as InputProblem
from agent.datasets.rows import RowSelection as RowSelection
from agent.datasets.rows import make_selection as make_selection
from agent.datasets.rows import read_entries as read_entries
