"""`agent eval retrieval`: compare the ranking of each instance with the code that was changed.

`run.evaluate` measures instances in worker processes (`measuring`), finds the gold functions
(`gold`), and computes the `metrics` that `run.render` prints.
"""

from agent.evaluation.retrieval.gold import counted_name as counted_name
from agent.evaluation.retrieval.gold import find_gold as find_gold
from agent.evaluation.retrieval.gold import gold_paths as gold_paths
from agent.evaluation.retrieval.gold import split_by_change as split_by_change
from agent.evaluation.retrieval.run import RetrievalPlan as RetrievalPlan
from agent.evaluation.retrieval.run import evaluate as evaluate
from agent.evaluation.retrieval.run import render as render
