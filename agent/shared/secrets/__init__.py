"""Finds what looks like a secret, so that it is masked in prompts and refused in patches.

`placeholder` makes what stands in the place of a file of secrets, and `KnownSecrets` masks what it
holds.
"""

from agent.shared.secrets.files import KnownSecrets as KnownSecrets
from agent.shared.secrets.files import is_secret_path as is_secret_path
from agent.shared.secrets.files import placeholder as placeholder
from agent.shared.secrets.finding import MASK as MASK
from agent.shared.secrets.finding import find_secrets as find_secrets
from agent.shared.secrets.finding import is_placeholder as is_placeholder
from agent.shared.secrets.finding import mask_secrets as mask_secrets
