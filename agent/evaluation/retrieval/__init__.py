"""`agent eval retrieval`: compare the ranking of each instance with the code that was changed.

`run.evaluate` measures instances in worker processes (`measuring`), finds the gold functions
(`gold`), and computes the `metrics` that `run.render` prints.
"""

from agent.evaluation.retrieval.gold import FileOutline as FileOutline
from agent.evaluation.retrieval.gold import Gold as Gold
from agent.evaluation.retrieval.gold import GoldLines as GoldLines
from agent.evaluation.retrieval.gold import counted_name as counted_name
from agent.evaluation.retrieval.gold import find_gold as find_gold
from agent.evaluation.retrieval.gold import gold_paths as gold_paths
from agent.evaluation.retrieval.measuring import MeasureJob as MeasureJob
from agent.evaluation.retrieval.measuring import Measurement as Measurement
from agent.evaluation.retrieval.measuring import function_names as function_names
from agent.evaluation.retrieval.measuring import measure as measure
from agent.evaluation.retrieval.measuring import measure_all as measure_all
from agent.evaluation.retrieval.metrics import BudgetContext as BudgetContext
from agent.evaluation.retrieval.metrics import ContextRange as ContextRange
from agent.evaluation.retrieval.metrics import Interval as Interval
from agent.evaluation.retrieval.metrics import RetrievalRow as RetrievalRow
from agent.evaluation.retrieval.metrics import bootstrap_mean as bootstrap_mean
from agent.evaluation.retrieval.metrics import score as score
from agent.evaluation.retrieval.metrics import summarise as summarise
from agent.evaluation.retrieval.run import RetrievalPlan as RetrievalPlan
from agent.evaluation.retrieval.run import evaluate as evaluate
from agent.evaluation.retrieval.run import render as render
