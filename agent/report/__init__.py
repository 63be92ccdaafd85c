"""`agent report`: show a run folder, or the record of one solve, as one static HTML file.

`reading.load` reads a small `ReportRow` for each instance and `summarise` counts them; `rendering`
writes the page and reads the files of each instance again. All files of a run are untrusted:
`evaluations.RunFiles` follows no links, and `text` masks secrets and shows hidden characters.
"""

from agent.report.evaluations import Evaluated, RunFiles, load_evaluation
from agent.report.reading import ReportRow, ReportRun, ReportSummary, load, summarise
from agent.report.rendering import policy, render
from agent.report.text import Cleaner, dollars, seconds

__all__ = [
    "Cleaner",
    "Evaluated",
    "ReportRow",
    "ReportRun",
    "ReportSummary",
    "RunFiles",
    "dollars",
    "load",
    "load_evaluation",
    "policy",
    "render",
    "seconds",
    "summarise",
]
