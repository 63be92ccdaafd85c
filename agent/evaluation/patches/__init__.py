"""`agent eval patches`: run the tests that decide whether predictions resolve their issues.

`run.evaluate` reads predictions and rows, judges each instance in a thread (`instance`: apply the
patches, prepare the environment; `given_tests`: run and judge the given tests), keeps results in
`report.ResultFolder` and writes the `report`, which has the shape of the SWE-bench harness.
"""

from agent.evaluation.patches.instance import Means as Means
from agent.evaluation.patches.instance import Sandboxes as Sandboxes
from agent.evaluation.patches.report import RunReport as RunReport
from agent.evaluation.patches.report import render as render
from agent.evaluation.patches.run import GOLD as GOLD
from agent.evaluation.patches.run import ScoringPlan as ScoringPlan
from agent.evaluation.patches.run import evaluate as evaluate
