"""`agent eval patches`: run the tests that decide whether predictions resolve their issues.

`run.evaluate` reads predictions and rows, judges each instance in a thread (`instance`: apply the
patches, prepare the environment; `given_tests`: run and judge the given tests), keeps each
result in a folder, and writes the `report`, which has the shape of the SWE-bench harness.
"""

from agent.evaluation.patches.given_tests import Results as Results
from agent.evaluation.patches.instance import Means as Means
from agent.evaluation.patches.instance import Order as Order
from agent.evaluation.patches.instance import Sandboxes as Sandboxes
from agent.evaluation.patches.instance import score as score
from agent.evaluation.patches.report import GivenIds as GivenIds
from agent.evaluation.patches.report import GivenStatus as GivenStatus
from agent.evaluation.patches.report import OwnVerdict as OwnVerdict
from agent.evaluation.patches.report import RunReport as RunReport
from agent.evaluation.patches.report import Scored as Scored
from agent.evaluation.patches.report import make_report as make_report
from agent.evaluation.patches.report import read_own as read_own
from agent.evaluation.patches.report import render as render
from agent.evaluation.patches.report import share as share
from agent.evaluation.patches.run import GOLD as GOLD
from agent.evaluation.patches.run import ScoringPlan as ScoringPlan
from agent.evaluation.patches.run import evaluate as evaluate
