"""Finds what looks like a secret, so that it is masked in prompts and refused in patches.

`find_secrets` returns the places of secret values in a text, `mask_secrets` replaces them by `MASK`
without changing line numbers, and `is_secret_path` recognises files that exist to hold secrets.
`placeholder` makes what stands in the place of such a file, and `KnownSecrets` masks what it holds.
"""

from agent.shared.secrets.files import KnownSecrets, is_secret_path, placeholder
from agent.shared.secrets.finding import MASK, find_secrets, is_placeholder, mask_secrets

__all__ = [
    "MASK",
    "KnownSecrets",
    "find_secrets",
    "is_placeholder",
    "is_secret_path",
    "mask_secrets",
    "placeholder",
]
