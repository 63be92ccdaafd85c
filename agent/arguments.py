"""The arguments that several commands share: choices, and options with their help."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer


class Dirty(enum.StrEnum):
    """What to do with uncommitted changes of the target."""

    INCLUDE = "include"
    IGNORE = "ignore"
    REFUSE = "refuse"


class Embed(enum.StrEnum):
    """Where embeddings come from."""

    AUTO = "auto"
    OFF = "off"
    LOCAL = "local"
    REMOTE = "remote"


class Backend(enum.StrEnum):
    """What isolates the target's code."""

    AUTO = "auto"
    BWRAP = "bwrap"
    CONTAINER = "container"
    LANDLOCK = "landlock"


class Split(enum.StrEnum):
    """Which projects of a data set."""

    TUNE = "tune"
    HELD_OUT = "held-out"
    ALL = "all"


class PredictionsForm(enum.StrEnum):
    """How predictions are written."""

    DICT = "dict"
    LIST = "list"
    JSONL = "jsonl"


class EngineName(enum.StrEnum):
    """Where the instances of a batch are solved."""

    LOCAL = "local"
    RAY = "ray"


class Opened(enum.StrEnum):
    """Whether a browser is started: "auto" only for a person at a desktop."""

    AUTO = "auto"
    YES = "yes"
    NO = "no"


MODEL, CONTEXT, LIMITS, CHECK = "Model", "Retrieval and context", "Limits", "Validation"

RepoOption = Annotated[Path, typer.Option("--repo", help="The target git repository.")]
ProblemOption = Annotated[
    str, typer.Option("--problem", help="The issue: a file, `-` for stdin, or a URL.")
]
CommitOption = Annotated[
    str | None, typer.Option("--commit", help="Work on this commit instead of the work tree.")
]
DirtyOption = Annotated[
    Dirty, typer.Option("--dirty", help="Uncommitted changes: part of the base, ignored, refused.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
VerboseOption = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Also each model call, and the receipt: why each chunk is in."
    ),
]
ExplainOption = Annotated[
    bool,
    typer.Option(
        "--explain",
        "--verbose",
        "-v",
        help="Below each chunk what its score consists of: signed parts that add up to it.",
    ),
]
PresetOption = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="Named settings: default, lexical or original.",
        rich_help_panel=CONTEXT,
    ),
]
WithoutOption = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        metavar="GROUP",
        help="Leave out a group of features, or `ranker`: then the plain sum decides "
        "(repeatable) [PATCHSHOT_WITHOUT, with commas].",
        rich_help_panel=CONTEXT,
    ),
]
EmbedOption = Annotated[
    Embed | None,
    typer.Option(
        "--embed", help="`local` needs the extra patchshot[local].", rich_help_panel=CONTEXT
    ),
]
ContextTokensOption = Annotated[
    int | None,
    typer.Option("--context-tokens", help="Token budget (6000).", rich_help_panel=CONTEXT),
]
MaxChunksOption = Annotated[
    int | None,
    typer.Option(
        "--max-chunks",
        help="At most so many chunks (30 for each 6,000 tokens).",
        rich_help_panel=CONTEXT,
    ),
]
AllowOption = Annotated[
    list[str] | None,
    typer.Option("--allow", help="Protected path that edits may touch (repeatable)."),
]
NoRepairOption = Annotated[
    list[str] | None,
    typer.Option(
        "--no-repair",
        help="Leave a repair or lenient match tier out: its name, or `all` (repeatable).",
    ),
]
WithTestOption = Annotated[
    bool | None,
    typer.Option("--with-test", help="Keep the reply's reproduction test in the diff."),
]
IncludeTestOption = Annotated[bool | None, typer.Option("--include-test", hidden=True)]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Also write the diff here, as soon as there is one."),
]
ApplyOption = Annotated[
    bool, typer.Option("--apply", help="Write the accepted patch into the work tree.")
]

# Options of `solve` alone.
RecordOption = Annotated[Path | None, typer.Option(help="Save every model exchange to this file.")]
ReplayOption = Annotated[Path | None, typer.Option(help="Answer from a recorded file, offline.")]
LogFileOption = Annotated[
    Path | None,
    typer.Option(help="Append events and model calls to this file, as JSON lines; keys masked."),
]
LogBodiesOption = Annotated[
    bool | None, typer.Option("--log-bodies", help="Prompts and replies in it too.")
]
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
TestsOption = Annotated[
    bool | None,
    typer.Option("--tests/--no-tests", help="Run tests at all.", rich_help_panel=CHECK),
]
TestCmdOption = Annotated[
    str | None,
    typer.Option(help="Test command, e.g. `pytest tests/unit`.", rich_help_panel=CHECK),
]
TestTimeoutOption = Annotated[
    float | None, typer.Option(help="Seconds for one test run (300).", rich_help_panel=CHECK)
]
JudgeTimeoutOption = Annotated[
    float | None, typer.Option(help="Seconds for one test run (1800).", rich_help_panel=CHECK)
]
PythonOption = Annotated[
    Path | None, typer.Option(help="The target's interpreter.", rich_help_panel=CHECK)
]
FailToPassOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID",
        help="A test that the fix must turn; given ones decide alone (repeatable).",
        rich_help_panel=CHECK,
    ),
]
PassToPassOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID", help="A test that must go on passing (repeatable).", rich_help_panel=CHECK
    ),
]
TestsFromOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Both from a JSON row with FAIL_TO_PASS and PASS_TO_PASS.",
        rich_help_panel=CHECK,
    ),
]
RunCacheOption = Annotated[
    bool | None,
    typer.Option(
        "--run-cache/--no-run-cache",
        help="Keep test runs of the base between solves.",
        rich_help_panel=CHECK,
    ),
]
AcceptUnverifiedOption = Annotated[
    bool | None,
    typer.Option(
        "--accept-unverified",
        help="Exit 0 also when no test could be run.",
        rich_help_panel=CHECK,
    ),
]
SandboxOption = Annotated[
    Backend | None,
    typer.Option(
        "--sandbox",
        help="What isolates the target's code; auto: bwrap, or a container with --image.",
        rich_help_panel=CHECK,
    ),
]
ImageOption = Annotated[
    str | None,
    typer.Option(
        help="Run in containers (podman, docker) of this image, which must be here.",
        rich_help_panel=CHECK,
    ),
]
UnsafeNoSandboxOption = Annotated[
    bool | None,
    typer.Option(
        "--unsafe-no-sandbox",
        help="Run the target's code without isolation.",
        rich_help_panel=CHECK,
    ),
]

# Options of `batch` alone.
DatasetOption = Annotated[
    Path, typer.Option("--dataset", help="SWE-bench rows: JSON lines or a JSON array.")
]
RepositoriesOption = Annotated[
    Path, typer.Option("--repos", help="Folder of repositories: owner__name, bare or not.")
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

# Options of `eval patches` alone.
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
EnvironmentsOption = Annotated[
    Path | None,
    typer.Option(
        "--environments",
        metavar="SPEC",
        help="TOML: Python, packages and test command of each project (docs/eval-patches.md).",
        rich_help_panel=CHECK,
    ),
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


class StoreFallback(enum.StrEnum):
    """What happens where the store cannot be reached."""

    EMBEDDED = "embedded"
    STOP = "stop"


class Expand(enum.StrEnum):
    """What is added to a query."""

    OFF = "off"
    PROJECT = "project"
    LLM = "llm"


class Intents(enum.StrEnum):
    """Who writes intents."""

    TEMPLATES = "templates"
    LLM = "llm"


# Options of `search` and `index` for corpora beside the code.
CORPORA = "Corpora"

CorpusOption = Annotated[
    list[str] | None,
    typer.Option(
        "--corpus",
        metavar="NAME",
        help="code, history, docs, intent, memory: repeatable, or with commas between.",
        rich_help_panel=CORPORA,
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Where vectors are kept: sqlite:///F, lancedb:///DIR, qdrant://HOST, postgresql://... "
        "[PATCHSHOT_STORE].",
        rich_help_panel=CORPORA,
    ),
]
StoreFallbackOption = Annotated[
    StoreFallback | None,
    typer.Option(
        "--store-fallback",
        help="Where the store cannot be reached: the one in the cache folder, or stop. --list, "
        "--drop and --fresh always stop [PATCHSHOT_STORE_FALLBACK].",
        rich_help_panel=CORPORA,
    ),
]
AtLeastOption = Annotated[
    float | None,
    typer.Option(
        "--at-least",
        min=0,
        max=1,
        help="Only what is so similar to the query, by vectors: 1 the same, 0.5 unrelated.",
        rich_help_panel=CORPORA,
    ),
]
ExpandOption = Annotated[
    Expand,
    typer.Option(
        "--expand",
        help="Add to the query: words that go with its own in this project, or a model's.",
        rich_help_panel=CORPORA,
    ),
]
RememberOption = Annotated[
    bool | None,
    typer.Option(
        "--remember",
        help="Keep the accepted patch on this machine, for `agent search --corpus memory`.",
    ),
]
IntentsOption = Annotated[
    Intents,
    typer.Option(
        "--intents",
        help="Who writes intents: templates, or the configured model, within --max-cost.",
        rich_help_panel=CORPORA,
    ),
]

# Options of `search` and `index` for vectors that other programs have computed.
PRECOMPUTED = "Precomputed vectors"

ImportOption = Annotated[
    Path | None,
    typer.Option(
        "--precomputed",
        metavar="FOLDER",
        help="Put this folder's vectors (one JSON array a file) into the store instead; no "
        "repository is read.",
        rich_help_panel=PRECOMPUTED,
    ),
]
CollectionOption = Annotated[
    str | None,
    typer.Option(
        "--collection",
        metavar="NAME",
        help="Where in the store they go (the folder's name).",
        rich_help_panel=PRECOMPUTED,
    ),
]
MadeByOption = Annotated[
    str | None,
    typer.Option(
        "--made-by",
        metavar="MODEL",
        help="What computed them; queries in words by another model are refused then.",
        rich_help_panel=PRECOMPUTED,
    ),
]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Read the folder and say what would be put there; open no store.",
        rich_help_panel=PRECOMPUTED,
    ),
]
PrecomputedOption = Annotated[
    str | None,
    typer.Option(
        "--precomputed",
        metavar="FOLDER|NAME",
        help="Search precomputed vectors instead: of a folder, or of a collection of the store.",
        rich_help_panel=PRECOMPUTED,
    ),
]
VectorOption = Annotated[
    str | None,
    typer.Option(
        "--vector",
        metavar="FILE",
        help="The query's vector, a JSON array; `-` for stdin. Without it the query in words is "
        "embedded by the model of the settings, which must be theirs.",
        rich_help_panel=PRECOMPUTED,
    ),
]
TagOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        metavar="TAG",
        help="Only vectors that have it (repeatable: all of them).",
        rich_help_panel=PRECOMPUTED,
    ),
]
