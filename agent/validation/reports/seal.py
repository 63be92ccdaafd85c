"""Seals on the lines of a report, so that lines which our plugin did not write are seen. Pure.

A key is put where the plugin finds it before any code of the target runs, and is removed by it.
Each line then ends with a tab and a code made of the key, the code of the line before, and the
line: HMAC-SHA256 (RFC 2104), its first 16 hexadecimal digits. Code under test shares the plugin's
process: it could look for the key in memory. It can no longer just write to the pipe it inherits.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

# Of the file, in the tree, in which the key waits for the plugin.
KEY_NAME = ".patchshot-seal"

# Names that file, inside the sandbox; the plugin takes it out of the environment.
KEY_VARIABLE = "PATCHSHOT_SEAL"

_KEY_BYTES = 32
_DIGITS = 16

# What stands for a line without a good seal: the reader counts it as one that cannot be read.
FOREIGN = b"foreign"


def new_key() -> bytes:
    """A key for one run."""
    return secrets.token_bytes(_KEY_BYTES)


def sealed(lines: list[bytes], key: bytes) -> bytes:
    """The lines as the plugin writes them."""
    written, last = [], b""
    for line in lines:
        last = _seal(key, last, line)
        written.append(line + b"\t" + last + b"\n")
    return b"".join(written)


def opened(data: bytes, key: bytes) -> bytes:
    """The lines without their seals; FOREIGN for each that has none, or a wrong one."""
    lines, last = [], b""
    for raw in data.splitlines():
        line, _, seal = raw.rpartition(b"\t")
        expected = _seal(key, last, line)
        if hmac.compare_digest(seal, expected):
            lines.append(line)
            last = expected
        else:
            lines.append(FOREIGN)
    return b"\n".join(lines)


def _seal(key: bytes, last: bytes, line: bytes) -> bytes:
    return hmac.new(key, last + line, hashlib.sha256).hexdigest()[:_DIGITS].encode("ascii")
