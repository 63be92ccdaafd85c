"""All settings: each one is a field of `Settings`, and no other module reads a setting's variable.

A field declares everything about its setting: type, default, help text, the command-line option
(`agent.cli.options` makes it; rare settings have none), and what a repository's own file may do
with it. The environment variable of the field `max_cost` is PATCHSHOT_MAX_COST, and its key in a
file is `max_cost`.

A value is taken from the first of these places that has one:

1. the command line;
2. the environment (empty variables count as unset);
3. the user's own file, `~/.config/patchshot/patchshot.toml`.

The repository that Patchshot works on is untrusted. Its `patchshot.toml`, or `[tool.patchshot]` in
its `pyproject.toml`, may only tighten limits: a lower number, or a capability switched off. A
flag of the command line wins over it. Nothing is read from the current folder.
"""

from agent.settings.fields import (
    AUTO_CONTEXT,
    CHECK,
    CODE_ROUNDS,
    CONTEXT_TOKENS,
    HISTORY_TOKENS,
    MAX_OUTPUT_TOKENS,
    MAX_STEPS,
    MIN_CONTEXT_TOKENS,
    TIMEOUT_SECONDS,
    WIDER_TOKENS,
    Option,
    OutdatedMode,
    Settings,
    option_of,
)
from agent.settings.loading import Loaded, load, load_with_origins, work_tree_of
from agent.settings.sources import (
    data_folder,
    environment,
    secret_values,
    state_folder,
    user_file,
    user_folder,
)

__all__ = [
    "AUTO_CONTEXT",
    "CHECK",
    "CODE_ROUNDS",
    "CONTEXT_TOKENS",
    "HISTORY_TOKENS",
    "MAX_OUTPUT_TOKENS",
    "MAX_STEPS",
    "MIN_CONTEXT_TOKENS",
    "TIMEOUT_SECONDS",
    "WIDER_TOKENS",
    "Loaded",
    "Option",
    "OutdatedMode",
    "Settings",
    "data_folder",
    "environment",
    "load",
    "load_with_origins",
    "option_of",
    "secret_values",
    "state_folder",
    "user_file",
    "user_folder",
    "work_tree_of",
]
