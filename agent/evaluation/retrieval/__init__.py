"""`agent eval retrieval`: compare the ranking of each instance with the code that was changed.

`run.evaluate` measures instances in worker processes (`measuring`), finds the gold functions
(`gold`), and computes the `metrics` that `run.render` prints.
"""

from agent.evaluation.retrieval.gold import counted_name, find_gold, gold_paths, split_by_change
from agent.evaluation.retrieval.run import RetrievalPlan, evaluate, render

__all__ = [
    "RetrievalPlan",
    "counted_name",
    "evaluate",
    "find_gold",
    "gold_paths",
    "render",
    "split_by_change",
]
