"""`agent report`: show a run folder, or the result of one solve, as one static HTML file.

`run_reader.load` reads a small `ReportRow` for each instance, `summary.summarise` computes the
figures, and `rendering.render` writes the page. It calls `instance`, which reads the files of each
instance again. All files of a run are untrusted: `records` reads them without following links, and
`text` masks secrets and shows hidden characters.
"""

from agent.report.evaluations import load_evaluation
from agent.report.rendering import MARK, render
from agent.report.run_reader import load
from agent.report.summary import ReportSummary, summarise
from agent.report.text import Cleaner, dollars, seconds

__all__ = [
    "MARK",
    "Cleaner",
    "ReportSummary",
    "dollars",
    "load",
    "load_evaluation",
    "render",
    "seconds",
    "summarise",
]
