"""`agent eval retrieval`: compare the ranking of each instance with the code that was changed.

`runner.evaluate` measures the instances without a row in worker processes (`measure`), writes rows
(`result_files`), finds the gold functions (`gold`) and computes the `metrics` that `table.render`
prints.
"""

from agent.evaluation.retrieval.runner import RetrievalPlan, evaluate, output_paths, written_paths
from agent.evaluation.retrieval.table import render

__all__ = [
    "RetrievalPlan",
    "evaluate",
    "output_paths",
    "render",
    "written_paths",
]
