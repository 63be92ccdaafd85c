"""All settings: each one is a field of `Settings`, and no other module reads a setting's variable.

The command line wins over the environment, and that over the user's own file. The repository that
Patchshot works on is untrusted: its own file may only tighten limits.
"""

from agent.settings.fields import AUTO_CONTEXT as AUTO_CONTEXT
from agent.settings.fields import CHECK as CHECK
from agent.settings.fields import CODE_ROUNDS as CODE_ROUNDS
from agent.settings.fields import CONTEXT_TOKENS as CONTEXT_TOKENS
from agent.settings.fields import HISTORY_TOKENS as HISTORY_TOKENS
from agent.settings.fields import MAX_OUTPUT_TOKENS as MAX_OUTPUT_TOKENS
from agent.settings.fields import MAX_STEPS as MAX_STEPS
from agent.settings.fields import MIN_CONTEXT_TOKENS as MIN_CONTEXT_TOKENS
from agent.settings.fields import TEAM as TEAM
from agent.settings.fields import TIMEOUT_SECONDS as TIMEOUT_SECONDS
from agent.settings.fields import WIDER_TOKENS as WIDER_TOKENS
from agent.settings.fields import Option as Option
from agent.settings.fields import OutdatedMode as OutdatedMode
from agent.settings.fields import Settings as Settings
from agent.settings.fields import option_of as option_of
from agent.settings.loading import Loaded as Loaded
from agent.settings.loading import consents_file as consents_file
from agent.settings.loading import load as load
from agent.settings.loading import load_with_origins as load_with_origins
from agent.settings.loading import team_settings as team_settings
from agent.settings.loading import trust as trust
from agent.settings.loading import work_tree_of as work_tree_of
from agent.settings.sources import data_folder as data_folder
from agent.settings.sources import environment as environment
from agent.settings.sources import secret_values as secret_values
from agent.settings.sources import state_folder as state_folder
from agent.settings.sources import user_file as user_file
from agent.settings.sources import user_folder as user_folder
