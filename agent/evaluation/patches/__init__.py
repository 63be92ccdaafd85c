"""`agent eval patches`: run the tests that decide whether predictions resolve their issues.

`run.evaluate` reads predictions and rows, judges each instance in a thread (`instance`: apply the
patches, prepare the environment; `given_tests`: run and judge the given tests), keeps results in
`report.ResultFolder` and writes the `report`, which has the shape of the SWE-bench harness.
"""

from agent.evaluation.patches.instance import Means, Sandboxes
from agent.evaluation.patches.report import RunReport, render
from agent.evaluation.patches.run import GOLD, ScoringPlan, evaluate

__all__ = [
    "GOLD",
    "Means",
    "RunReport",
    "Sandboxes",
    "ScoringPlan",
    "evaluate",
    "render",
]
