"""Options of runs over many instances: `batch`, `report` and `eval`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.options.choices import EngineName, PredictionsForm
from agent.cli.options.model import LIMITS
from agent.cli.options.validation import CHECK

DatasetOption = Annotated[
    Path, typer.Option("--dataset", help="SWE-bench rows: JSON lines or a JSON array.")
]
RepositoriesOption = Annotated[
    Path, typer.Option("--repos", help="Folder of repositories: owner__name, bare or not.")
]
IdsOption = Annotated[
    list[str] | None, typer.Option("--id", metavar="ID", help="Only this one (repeatable).")
]
SliceOption = Annotated[
    str | None, typer.Option("--slice", metavar="A:B", help="Only these rows, e.g. 0:50.")
]
MatchOption = Annotated[
    str | None, typer.Option("--match", metavar="REGEX", help="Only ids in which this is found.")
]
WorkersOption = Annotated[
    int, typer.Option("--workers", min=1, max=1024, help="Instances solved at once.")
]
PredictionsOption = Annotated[
    Path, typer.Option("--output", "-o", help="Predictions, replaced after every instance.")
]
FormatOption = Annotated[
    PredictionsForm | None,
    typer.Option("--format", help="Of the predictions (dict; jsonl where the name ends so)."),
]
RunFolderOption = Annotated[
    Path | None, typer.Option("--run", help="Folder to go on from (beside the output: NAME.run).")
]
EngineOption = Annotated[
    EngineName, typer.Option("--engine", help="On this machine, or on a Ray cluster.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address", metavar="HOST:PORT", help="Of the cluster (auto: the one of this machine)."
    ),
]
RayVerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also what Ray says, and its workers.")
]
MaxTotalCostOption = Annotated[
    float | None,
    typer.Option(min=0, help="USD for all instances together.", rich_help_panel=LIMITS),
]
MaxRequestsOption = Annotated[
    float | None,
    typer.Option(
        "--max-requests-per-minute",
        min=0.001,
        help="Chat requests of all workers together.",
        rich_help_panel=LIMITS,
    ),
]
MaxTriesOption = Annotated[
    int,
    typer.Option(
        min=1, help="Crashes after which an instance is set aside.", rich_help_panel=LIMITS
    ),
]
NameOption = Annotated[
    str | None, typer.Option("--name", help="What `model_name_or_path` says (patchshot+MODEL).")
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Go on although settings or data set have changed.")
]
PredictedOption = Annotated[
    str,
    typer.Option(
        "--predictions",
        "-p",
        metavar="FILE|gold",
        help="preds.json (dictionary or list) or all_preds.jsonl; `gold`: the rows' own patches.",
    ),
]
ReportOption = Annotated[
    Path,
    typer.Option("--output", "-o", help="The report; results of instances lie in NAME.eval."),
]
ProjectOption = Annotated[
    str | None,
    typer.Option(
        metavar="OWNER/NAME",
        help="The target's name in the file of --environments (by its folder's name).",
        rich_help_panel=CHECK,
    ),
]
ImageTemplateOption = Annotated[
    str | None,
    typer.Option(
        "--image-template",
        metavar="NAME",
        help="A container image for each instance, with {instance_id}, {id_1776}, {repo}, "
        "{version}; it must be here, with the project in /testbed.",
        rich_help_panel=CHECK,
    ),
]
OwnRunOption = Annotated[
    Path | None,
    typer.Option(
        "--run", help="Folder of `agent batch` with our verdicts (beside the predictions)."
    ),
]
CheckDatasetOption = Annotated[
    bool,
    typer.Option(
        "--check-dataset",
        help="Also run each row's tests without any patch and with its own patch.",
    ),
]
RestartOption = Annotated[
    bool, typer.Option("--restart", help="Evaluate again what is there already.")
]
