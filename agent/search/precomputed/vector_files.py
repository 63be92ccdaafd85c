"""Reads and writes the files of precomputed vectors. Their content is untrusted.

    <id> or <id>.json    a JSON array of numbers: the vector
    <id>.meta.json       optional: an object with `tags` (list of strings), `text` or `text_file`
                         (a path below the folder), and any other metadata

Folders and names that begin with a dot are ignored. Links and paths that lead out of the folder are
rejected. Each file is replaced atomically, and metadata is written before its vector.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from agent.errors import SemanticIndexError
from agent.shared.files import replace_file
from agent.shared.secrets import mask_secrets

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


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

    `vector` (d,) is stored as float32, each number in its shortest form. Metadata is written before
    the vector, and outdated metadata is removed after it, so a reader of a new vector also finds
    its metadata. Raises SemanticIndexError for values that could not be loaded again, and if the
    folder is not writable.
    """
    reason = why_no_id(identifier)
    if reason is not None:
        raise SemanticIndexError(f"id {identifier!r}: {reason}; choose another one")
    numbers = _numbers(vector)
    about = _about(tags, text, metadata)
    path, beside = folder / f"{identifier}{VECTOR}", folder / f"{identifier}{META}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if about is not None:
            replace_file(beside, (about,))
        replace_file(path, (numbers,))
        if about is None:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise SemanticIndexError(
            f"{path}: cannot be written ({error.strerror}); check the folder and the disk"
        ) from None
    return path


def _numbers(vector: ArrayLike) -> bytes:
    try:
        values = np.asarray(vector, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        raise SemanticIndexError("the vector is not an array of numbers; embed it first") from None
    if values.ndim != 1:
        raise SemanticIndexError(f"a vector of shape {values.shape}; give one of one dimension")
    data = ("[" + ", ".join(values.astype(str).tolist()) + "]\n").encode()
    checked = parse_vector(data)
    if isinstance(checked, Invalid):
        raise SemanticIndexError(f"the vector holds {checked.reason}; embed it again")
    return data


def _about(
    tags: Iterable[str], text: str | None, metadata: Mapping[str, Any] | None
) -> bytes | None:
    about: dict[str, Any] = dict(metadata or {})
    if tags := list(tags):
        about["tags"] = tags
    if text is not None:
        about["text"] = text
    if not about:
        return None
    try:
        data = json.dumps(about, ensure_ascii=False, allow_nan=False, indent=1).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise SemanticIndexError(f"the metadata is no JSON ({error}); give plain values") from None
    checked = Invalid(f"more than {MAX_BYTES:,} bytes") if len(data) > MAX_BYTES else None
    checked = checked or _invalid(data)
    if checked is not None:
        raise SemanticIndexError(f"the metadata cannot be used: {checked.reason}")
    return data


def _invalid(data: bytes) -> Invalid | None:
    found = parse_meta(data)
    return found if isinstance(found, Invalid) else None


MAX_DIMENSION = 65_536

LARGEST = 1e15
"""Maximum size of a component.

Squares of larger numbers overflow float32, and no embedding comes close.
"""

_BOM = b"\xef\xbb\xbf"

Frozen = str | int | float | bool | None | tuple["Frozen", ...] | Mapping[str, "Frozen"]
"""An immutable JSON value: lists are tuples, objects are read-only mappings."""


@dataclass(frozen=True, slots=True)
class VectorMeta:
    """The metadata of a vector.

    `metadata` contains everything but `tags`, `text` and `text_file`.
    """

    tags: tuple[str, ...] = ()
    text: str | None = None
    text_file: str | None = None
    metadata: Mapping[str, Frozen] = field(default_factory=lambda: MappingProxyType({}))


NO_META = VectorMeta()


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
        known = _Known.model_validate_json(json.dumps({k: value[k] for k in _KEYS & value.keys()}))
        rest = {key: frozen(inner) for key, inner in value.items() if key not in _KEYS}
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return Invalid(f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}")
    except ValueError:
        return Invalid("a number that is too large")
    if known.text is not None and known.text_file is not None:
        return Invalid("both text and text_file; one of them is the text")
    tags = tuple(dict.fromkeys(known.tags))
    return VectorMeta(tags, known.text, known.text_file, MappingProxyType(rest))


def frozen(value: Any) -> Frozen:
    """Return an immutable JSON value. Raises ValueError for a number that is not finite."""
    if isinstance(value, dict):
        return MappingProxyType({str(key): frozen(inner) for key, inner in value.items()})
    if isinstance(value, list):
        return tuple(frozen(inner) for inner in value)
    assert value is None or isinstance(value, str | int | float)
    if isinstance(value, float) and not math.isfinite(value):  # `1e999` could not be written again
        raise ValueError
    return value


def thawed(value: Frozen) -> Any:
    """Return the value with lists and dicts, which `json.dumps` accepts."""
    if isinstance(value, Mapping):
        return {key: thawed(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return [thawed(inner) for inner in value]
    return value


def masked(value: Any, name: str = "") -> Any:
    """Return a JSON value with the secrets in its texts masked.

    `name` is the key of the value: under `api_key` even a random word is a secret.
    """
    if isinstance(value, dict):
        return {key: masked(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [masked(inner, name) for inner in value]
    return _masked_text(value, name) if isinstance(value, str) else value


def _masked_text(text: str, name: str) -> str:
    before, after = f'"{name}": "', '"'
    assigned = mask_secrets(f"{before}{text}{after}").text  # the form of an assignment in a file
    if name and assigned.startswith(before) and assigned.endswith(after):
        return mask_secrets(assigned[len(before) : -len(after)]).text
    return mask_secrets(text).text


_KEYS = frozenset({"tags", "text", "text_file"})


class _Known(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    tags: tuple[str, ...] = ()
    text: str | None = None
    text_file: str | None = None


def _json(data: bytes) -> Any:
    """Parse JSON or return Invalid, also for NaN and Infinity, which Python's parser accepts."""
    try:
        return from_json(data.removeprefix(_BOM), allow_inf_nan=False)
    except ValueError as error:
        return Invalid(f"not JSON ({error})"[:200])


META = ".meta.json"
VECTOR = ".json"

MAX_BYTES = 4_000_000
"""Maximum bytes of a file. A vector of 65,536 numbers at full length takes two thirds of it."""

MAX_ID_BYTES = 200  # file systems allow names of 255 bytes, including the suffix


@dataclass(frozen=True, slots=True)
class Invalid:
    """The reason why data is not used, as a clause."""

    reason: str


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A listed file. `size` (bytes) and `changed` (ns) are those of a link's target."""

    name: str
    size: int
    changed: int
    linked: bool

    @property
    def identifier(self) -> str:
        """Return the id of the vector in the file."""
        return self.name.removesuffix(VECTOR)


@dataclass(frozen=True, slots=True)
class Folder:
    """An open folder: its descriptor `handle` and its resolved path `root`."""

    path: Path
    root: Path
    handle: int

    def read(self, file: ListedFile) -> bytes | Invalid:
        """Return the bytes of a file, or Invalid for an outside link, a non-regular or too large
        file.
        """
        if not file.linked:
            return _read(file.name, self.handle)
        target = _resolved(self.root / file.name)
        if isinstance(target, Invalid):
            return target
        if not target.is_relative_to(self.root):
            return Invalid("a link out of the folder")
        if not target.exists():
            return Invalid("a link to nothing")
        return _read(str(target), None)


def _unreadable(path: Path, error: OSError) -> SemanticIndexError:
    advice = "give the folder of vectors"
    if isinstance(error, PermissionError):
        advice = "let yourself read and enter it: chmod u+rx"
    return SemanticIndexError(
        f"{in_one_line(str(path))}: cannot be read ({error.strerror}); {advice}"
    )


@contextmanager
def open_folder(path: Path) -> Iterator[Folder]:
    """Open the folder for the `with` block. Raises SemanticIndexError if it does not exist."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        yield Folder(path, path.resolve(), handle)
    finally:
        os.close(handle)


def in_one_line(name: str, limit: int = 300) -> str:
    """Return a name for messages, with unprintable characters escaped, and cut to `limit`."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def listed(folder: Folder) -> list[ListedFile]:
    """Return the files of a folder by name, including broken links, so that they are reported.

    Raises SemanticIndexError if the folder can be listed but its files cannot be inspected.
    """
    try:
        return _listed(folder)
    except PermissionError as error:
        raise _unreadable(folder.path, error) from None


def _listed(folder: Folder) -> list[ListedFile]:
    found = []
    with os.scandir(folder.handle) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            try:
                about = entry.stat()
            except OSError:  # a broken or circular link
                about = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(about.st_mode):
                continue
            found.append(
                ListedFile(entry.name, about.st_size, about.st_mtime_ns, entry.is_symlink())
            )
    return sorted(found, key=lambda file: file.name)


def read_below(root: Path, relative: str) -> bytes | Invalid:
    """Read a file below `root` by an untrusted path."""
    if not relative or "\0" in relative or Path(relative).is_absolute():
        return Invalid("not a path below the folder")
    target = _resolved(root / relative)
    if isinstance(target, Invalid):
        return target
    if not target.is_relative_to(root.resolve()):
        return Invalid("a path out of the folder")
    return _read(str(target), None)


def _resolved(path: Path) -> Path | Invalid:
    """Return the target of a path, which need not exist; Invalid for a loop of links."""
    loop = Invalid("a link that leads to itself")
    try:
        found = path.resolve()
    except RuntimeError:
        return loop
    except OSError as error:
        return loop if error.errno == errno.ELOOP else Invalid(f"cannot be read ({error.strerror})")
    return loop if found.is_symlink() else found  # Python 3.13 does not raise for a loop


def _read(name: str, folder: int | None) -> bytes | Invalid:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not block
    try:
        handle = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        return Invalid(f"cannot be read ({error.strerror})")
    with os.fdopen(handle, "rb") as file:
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
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
    if not 1 <= size <= MAX_ID_BYTES:
        return f"it has {size} bytes; 1 to {MAX_ID_BYTES} are possible"
    if "/" in identifier or identifier.startswith(".") or not identifier.isprintable():
        return "a slash, a dot at the beginning and control characters cannot be in a file's name"
    if identifier.endswith(META.removesuffix(VECTOR)):
        return "its file would be the metadata of another one"
    return None
