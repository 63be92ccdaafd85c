"""Files that exist to hold secrets: never shown to a model, and not edited without leave."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePosixPath

_SECRET_NAMES = frozenset(
    {
        *(".netrc", "_netrc", ".pgpass", ".pypirc", ".npmrc", ".git-credentials", ".htpasswd"),
        *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".dockercfg", ".s3cfg", ".boto"),
        *(".vault-token", ".vault_pass", ".terraformrc", "terraform.tfstate"),
    }
)
_SECRET_SUFFIXES = frozenset({".pem", ".key", ".p12", ".pfx", ".ppk", ".jks", ".keystore", ".kdbx"})
_SECRET_PATHS = re.compile(r"(?:^|/)(?:\.aws/credentials|\.docker/config\.json|\.kube/config)$")
# `.env.example` and its kin are made to be read.
_ENV_FILE = re.compile(r"^\.env(?:rc)?(?:\.(?!example|sample|template|dist|defaults?$)[\w.-]+)?$")


_PATHS_KNOWN = 1 << 12  # packing asks for the same few files again with every line it may show


@lru_cache(maxsize=_PATHS_KNOWN)
def is_secret_path(path: str) -> bool:
    """Whether a file exists to hold secrets (`.env`, private keys, credential stores)."""
    pure = PurePosixPath(path)
    name = pure.name.lower()
    return (
        name in _SECRET_NAMES
        or pure.suffix.lower() in _SECRET_SUFFIXES
        or _ENV_FILE.match(name) is not None
        or _SECRET_PATHS.search(path.lower()) is not None
    )
