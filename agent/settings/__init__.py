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

from agent.settings.fields import AUTO_CONTEXT as AUTO_CONTEXT
from agent.settings.fields import CHECK as CHECK
from agent.settings.fields import CODE_ROUNDS as CODE_ROUNDS
from agent.settings.fields import CONTEXT_TOKENS as CONTEXT_TOKENS
from agent.settings.fields import HISTORY_TOKENS as HISTORY_TOKENS
from agent.settings.fields import MAX_OUTPUT_TOKENS as MAX_OUTPUT_TOKENS
from agent.settings.fields import MAX_STEPS as MAX_STEPS
from agent.settings.fields import MIN_CONTEXT_TOKENS as MIN_CONTEXT_TOKENS
from agent.settings.fields import TIMEOUT_SECONDS as TIMEOUT_SECONDS
from agent.settings.fields import WIDER_TOKENS as WIDER_TOKENS
from agent.settings.fields import Option as Option
from agent.settings.fields import OutdatedMode as OutdatedMode
from agent.settings.fields import Settings as Settings
from agent.settings.fields import option_of as option_of
from agent.settings.loading import Loaded as Loaded
from agent.settings.loading import load as load
from agent.settings.loading import load_with_origins as load_with_origins
from agent.settings.loading import work_tree_of as work_tree_of
from agent.settings.sources import data_folder as data_folder
from agent.settings.sources import environment as environment
from agent.settings.sources import secret_values as secret_values
from agent.settings.sources import state_folder as state_folder
from agent.settings.sources import user_file as user_file
from agent.settings.sources import user_folder as user_folder
