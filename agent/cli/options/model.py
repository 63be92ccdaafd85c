"""Options of the model, its calls and what they may cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MODEL = "Model"
LIMITS = "Limits"
BaseUrlOption = Annotated[
    str | None,
    typer.Option(help="OpenAI-compatible URL [PATCHSHOT_BASE_URL].", rich_help_panel=MODEL),
]
ModelOption = Annotated[
    str | None, typer.Option(help="Its model [PATCHSHOT_MODEL].", rich_help_panel=MODEL)
]
TemperatureOption = Annotated[float | None, typer.Option(rich_help_panel=MODEL)]
MaxOutputTokensOption = Annotated[
    int | None, typer.Option(help="Cap on one reply (8192).", rich_help_panel=MODEL)
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(help="Seconds for the whole run (1500).", rich_help_panel=LIMITS),
]
MaxCostOption = Annotated[
    float | None,
    typer.Option(help="USD for all calls; refused before the call.", rich_help_panel=LIMITS),
]
MaxTokensOption = Annotated[
    int | None,
    typer.Option(help="Input and output tokens of all calls.", rich_help_panel=LIMITS),
]
MaxCallsOption = Annotated[int | None, typer.Option(rich_help_panel=LIMITS)]
RepairsOption = Annotated[
    int | None, typer.Option(help="Repair calls (1).", rich_help_panel=LIMITS)
]
IterativeOption = Annotated[
    bool | None,
    typer.Option(
        "--iterative/--no-iterative", help="Fall back to step by step.", rich_help_panel=LIMITS
    ),
]
MaxStepsOption = Annotated[
    int | None, typer.Option(help="Steps of the iterative mode (12).", rich_help_panel=LIMITS)
]
RecordOption = Annotated[Path | None, typer.Option(help="Save every model exchange to this file.")]
ReplayOption = Annotated[Path | None, typer.Option(help="Answer from a recorded file, offline.")]
LogFileOption = Annotated[
    Path | None,
    typer.Option(help="Append events and model calls to this file, as JSON lines; keys masked."),
]
LogBodiesOption = Annotated[
    bool | None, typer.Option("--log-bodies", help="Prompts and replies in it too.")
]
