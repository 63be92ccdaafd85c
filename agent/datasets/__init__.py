"""SWE-bench data sets and predictions.

`rows` reads a data set row by row. `instances` gives each reader only the fields that it may know:
`SolverTask` for a solver, `GoldInstance` for evaluations of retrieval, `ScoringInstance` for the
scoring of patches. `predictions` reads and writes files of patches, and `repositories` finds the
git repository of an instance in the folder of `--repos`.
"""

from agent.datasets.changed_lines import Insertion, PatchedFile, parse_patch
from agent.datasets.instances import (
    GoldInstance,
    ScoringInstance,
    SolverTask,
    Split,
    folder_name,
    load_dataset,
    part_of,
    read_instances,
)
from agent.datasets.predictions import (
    Prediction,
    PredictionsForm,
    PredictionsWriter,
    check_output,
    choose_form,
    read_predictions,
)
from agent.datasets.repositories import check_folder, find_repository, read_files
from agent.datasets.rows import InputProblem, RowSelection, make_selection

__all__ = [
    "GoldInstance",
    "InputProblem",
    "Insertion",
    "PatchedFile",
    "Prediction",
    "PredictionsForm",
    "PredictionsWriter",
    "RowSelection",
    "ScoringInstance",
    "SolverTask",
    "Split",
    "check_folder",
    "check_output",
    "choose_form",
    "find_repository",
    "folder_name",
    "load_dataset",
    "make_selection",
    "parse_patch",
    "part_of",
    "read_files",
    "read_instances",
    "read_predictions",
]
