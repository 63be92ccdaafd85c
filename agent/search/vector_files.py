"""The files of vectors that other programs computed. Their content is untrusted.

    <id> or <id>.json    a JSON array of numbers: the vector
    <id>.meta.json       optional: an object with `tags` (list of strings), `text` or `text_file`
                         (a path below the folder), and any other metadata

Folders and names that begin with a dot are ignored. Links and paths that lead out of the folder are
rejected. Each file is replaced atomically, and metadata is written before its vector.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from agent.errors import SemanticIndexError
from agent.shared.files import replace_file
from agent.shared.secrets import mask_secrets

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

META = ".meta.json"
VECTOR = ".json"
MAX_DIMENSION = 65_536

MAX_BYTES = 4_000_000
"""Maximum bytes of a file. A vector of 65,536 numbers at full length takes two thirds of it."""

LARGEST = 1e15
"""Maximum size of a component: squares of larger numbers overflow float32."""

_MAX_ID_BYTES = 200  # file systems allow names of 255 bytes, including the suffix


@dataclass(frozen=True, slots=True)
class Invalid:
    """The reason why data is not used, as a clause."""

    reason: str


class VectorMeta(BaseModel):
    """The metadata of a vector. `metadata` has everything but `tags`, `text` and `text_file`."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    tags: tuple[str, ...] = ()
    text: str | None = None
    text_file: str | None = None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Return the keys without a meaning."""
        return self.model_extra or {}


NO_META = VectorMeta()


def write_vector(
    folder: Path,
    identifier: str,
    vector: ArrayLike,
    *,
    tags: Iterable[str] = (),
    text: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Write `<id>.json` and, if there is metadata, `<id>.meta.json`. Return the vector's path.

    `vector` (d,) is stored as float32, each number in its shortest form. Raises SemanticIndexError
    for values that could not be loaded again, and if the folder is not writable.
    """
    if reason := why_no_id(identifier):
        raise SemanticIndexError(f"id {identifier!r}: {reason}; choose another one")
    try:
        values = np.asarray(vector, dtype=np.float32)
        numbers = ("[" + ", ".join(values.astype(str).tolist()) + "]\n").encode()
        about = {**(metadata or {}), **({"tags": tags} if (tags := list(tags)) else {})}
        about |= {} if text is None else {"text": text}
        beside = json.dumps(about, ensure_ascii=False, allow_nan=False, indent=1).encode() + b"\n"
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise SemanticIndexError(f"{identifier}: cannot be written as JSON ({error})") from None
    for checked in (parse_vector(numbers), parse_meta(beside)):
        if isinstance(checked, Invalid):
            raise SemanticIndexError(f"{identifier} could not be loaded again: {checked.reason}")
    path, meta_path = folder / f"{identifier}{VECTOR}", folder / f"{identifier}{META}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if about:
            replace_file(meta_path, (beside,))
        replace_file(path, (numbers,))
        if not about:
            meta_path.unlink(missing_ok=True)
    except OSError as error:
        raise SemanticIndexError(
            f"{path}: cannot be written ({error.strerror}); check the folder and the disk"
        ) from None
    return path


def parse_vector(data: bytes) -> NDArray[np.float32] | Invalid:
    """Return a vector (d,), or the reason why the data is invalid."""
    value = _json(data)
    if isinstance(value, Invalid):
        return value
    if not isinstance(value, list) or not set(map(type, value)) <= {int, float}:
        return Invalid("not a JSON array of numbers")
    if not 1 <= len(value) <= MAX_DIMENSION:
        return Invalid(f"{len(value)} numbers; 1 to {MAX_DIMENSION:,} are possible")
    try:
        numbers = np.array(value, dtype=np.float64)
    except OverflowError:  # an integer of four hundred digits
        return Invalid("a number that is too large")
    if not (np.abs(numbers) <= LARGEST).all():
        return Invalid("a number that is too large")
    return numbers.astype(np.float32)


def parse_meta(data: bytes) -> VectorMeta | Invalid:
    """Return metadata, or the reason why the data is invalid."""
    value = _json(data)
    if isinstance(value, Invalid):
        return value
    if not isinstance(value, dict):
        return Invalid("not a JSON object")
    try:
        meta = VectorMeta.model_validate_json(json.dumps(value, allow_nan=False))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return Invalid(f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}")
    except ValueError:  # `1e999` is read as infinity, which could not be written again
        return Invalid("a number that is too large")
    if meta.text is not None and meta.text_file is not None:
        return Invalid("both text and text_file; one of them is the text")
    return meta.model_copy(update={"tags": tuple(dict.fromkeys(meta.tags))})


def masked(value: Any, name: str = "") -> Any:
    """Return a JSON value with the secrets in its texts masked.

    `name` is the key of the value: under `api_key` even a random word is a secret.
    """
    if isinstance(value, dict):
        return {key: masked(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [masked(inner, name) for inner in value]
    if not isinstance(value, str):
        return value
    before, after = f'"{name}": "', '"'
    assigned = mask_secrets(f"{before}{value}{after}").text  # the form of an assignment in a file
    if name and assigned.startswith(before) and assigned.endswith(after):
        value = assigned[len(before) : -len(after)]
    return mask_secrets(value).text


def _json(data: bytes) -> Any:
    """Parse JSON or return Invalid, also for NaN and Infinity, which Python's parser accepts."""
    if len(data) > MAX_BYTES:
        return Invalid(f"more than {MAX_BYTES:,} bytes")
    try:
        return from_json(data.removeprefix(b"\xef\xbb\xbf"), allow_inf_nan=False)
    except ValueError as error:
        return Invalid(f"not JSON ({error})"[:200])


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A listed file. `size` (bytes) and `changed` (ns) are those of a link's target."""

    name: str
    size: int
    changed: int

    @property
    def identifier(self) -> str:
        """Return the id of the vector in the file."""
        return self.name.removesuffix(VECTOR)


def list_files(folder: Path) -> list[ListedFile]:
    """Return the files by name, including broken links, so that they are reported.

    Raises SemanticIndexError if the folder cannot be read.
    """
    files = []
    try:
        with os.scandir(folder) as entries:
            for entry in (one for one in entries if not one.name.startswith(".")):
                try:
                    status = entry.stat()
                except PermissionError:
                    raise
                except OSError:
                    status = entry.stat(follow_symlinks=False)  # a broken or circular link
                if not stat.S_ISDIR(status.st_mode):
                    files.append(ListedFile(entry.name, status.st_size, status.st_mtime_ns))
    except OSError as error:
        raise SemanticIndexError(
            f"{in_one_line(str(folder))}: cannot be read ({error.strerror}); give a folder of"
            " vectors that you may read and enter"
        ) from None
    return sorted(files, key=lambda file: file.name)


def in_one_line(name: str, limit: int = 300) -> str:
    """Return a name for messages, with unprintable characters escaped, and cut to `limit`."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def read_below(root: Path, relative: str) -> bytes | Invalid:
    """Read a file below the resolved `root` by an untrusted path, at most MAX_BYTES + 1."""
    if not relative or "\0" in relative or Path(relative).is_absolute():
        return Invalid("not a path below the folder")
    try:
        target = (root / relative).resolve()
    except (OSError, RuntimeError):
        return Invalid("a link that leads to itself")
    if not target.is_relative_to(root):
        return Invalid("a path out of the folder")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not block
    try:
        with os.fdopen(os.open(target, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return Invalid("not a regular file")
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        return Invalid(f"cannot be read ({error.strerror})")
    return Invalid(f"more than {MAX_BYTES:,} bytes") if len(data) > MAX_BYTES else data


def why_no_id(identifier: str) -> str | None:
    """Return why a text cannot be the id of a written vector; None if it can."""
    try:
        size = len(identifier.encode("utf-8"))
    except UnicodeEncodeError:
        return "it is not text"
    if not 1 <= size <= _MAX_ID_BYTES:
        return f"it has {size} bytes; 1 to {_MAX_ID_BYTES} are possible"
    if "/" in identifier or identifier.startswith(".") or not identifier.isprintable():
        return "a slash, a dot at the beginning and control characters cannot be in a file's name"
    if identifier.endswith(META.removesuffix(VECTOR)):
        return "its file would be the metadata of another one"
    return None
