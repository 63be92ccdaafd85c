"""`agent report`: show a run folder, or the record of one solve, as one static HTML file.

`reading.load` reads a small `ReportRow` for each instance and `summarise` counts them; `rendering`
writes the page and reads the files of each instance again. All files of a run are untrusted:
`evaluations.RunFiles` follows no links, and `text` masks secrets and shows hidden characters.
"""

from agent.report.evaluations import Evaluated as Evaluated
from agent.report.evaluations import RunFiles as RunFiles
from agent.report.evaluations import load_evaluation as load_evaluation
from agent.report.reading import ReportRun as ReportRun
from agent.report.reading import ReportSummary as ReportSummary
from agent.report.reading import load as load
from agent.report.reading import summarise as summarise
from agent.report.rendering import render as render
from agent.report.text import Cleaner as Cleaner
from agent.report.text import dollars as dollars
from agent.report.text import seconds as seconds
