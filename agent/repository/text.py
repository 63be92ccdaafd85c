"""Decodes bytes of sources and problem files. Decoding never fails: bytes that fit no encoding are
replaced. Lines are those of `text.split("\\n")`, as in git and editors.
"""

from __future__ import annotations

import codecs
import io
import re
import tokenize
from dataclasses import dataclass

# As in git (buffer_is_binary), a NUL byte in this many first bytes means a binary file.
BINARY_PROBE_BYTES = 8192

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_BOMS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

# Character encodings only. A repository may name other codecs of Python: punycode is quadratic in
# its input, and unicode_escape and rot13 rewrite the text.
_CHARACTER_ENCODING = re.compile(
    r"(?:ascii|utf-8(?:-sig)?|iso8859-\d+|latin-1|cp\d+|mac-[a-z]+|koi8-[rtu]|kz1048|tis-620|ptcp154"
    r"|big5(?:hkscs)?|gb2312|gbk|gb18030|hz|euc_\w+|euc-\w+|shift_jis\w*|iso2022_\w+|johab)"
)
_COOKIE_SEARCH_BYTES = 1024


@dataclass(frozen=True, slots=True)
class DecodedText:
    """Text with `\\n` line ends. `encoding`: Python's codec; `replaced`: bytes that fit no
    encoding.
    """

    text: str
    encoding: str
    bom: bool
    replaced: bool = False


def is_binary(data: bytes) -> bool:
    """Whether the first 8 KiB have a NUL byte and no byte-order mark of UTF-16 or UTF-32."""
    if b"\0" not in data[:BINARY_PROBE_BYTES]:
        return False
    mark = _byte_order_mark(data)
    return mark is None or mark[1] == "utf-8"


def decode(data: bytes, *, cookie: bool = False) -> DecodedText:
    """Decode by byte-order mark, coding cookie (Python sources only), UTF-8, cp1252 or latin-1."""
    mark = _byte_order_mark(data)
    if mark is not None:
        raw, encoding = data[len(mark[0]) :].decode(mark[1], errors="replace"), mark[1]
        replaced = "\ufffd" in raw and raw.encode(encoding, "surrogatepass") != data[len(mark[0]) :]
    else:
        raw, encoding, replaced = _decode_unmarked(data, cookie)
    return DecodedText(_with_line_feeds(raw), encoding, mark is not None, replaced)


def _byte_order_mark(data: bytes) -> tuple[bytes, str] | None:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return mark, encoding
    return None


def _decode_unmarked(data: bytes, cookie: bool) -> tuple[str, str, bool]:
    for encoding in (declared_encoding(data) if cookie else None, "utf-8"):
        if encoding is None:
            continue
        try:
            return data.decode(encoding), encoding, False
        except UnicodeDecodeError:
            continue
    return _decode_damaged(data)


def _decode_damaged(data: bytes) -> tuple[str, str, bool]:
    lenient = data.decode("utf-8", errors="replace")
    bad = lenient.count("\ufffd")
    good = sum(1 for character in lenient if character > "\x7f") - bad
    if good > bad:
        return lenient, "utf-8", True
    try:
        return data.decode("cp1252"), "cp1252", False
    except UnicodeDecodeError:
        return data.decode("latin-1"), "latin-1", False


def declared_encoding(data: bytes) -> str | None:
    """Return the encoding in a PEP 263 cookie, None for other codecs than character encodings."""
    try:
        name, _ = tokenize.detect_encoding(io.BytesIO(data[:_COOKIE_SEARCH_BYTES]).readline)
    except SyntaxError:
        return None
    canonical = codecs.lookup(name).name
    return canonical if _CHARACTER_ENCODING.fullmatch(canonical) else None


def _with_line_feeds(text: str) -> str:
    """Return the text with `\\n` ends. A lone `\\r` rarely ends a line."""
    if "\n" not in text:
        return text.replace("\r", "\n")
    # `\r\r\n` comes from converting twice; one plain replacement would leave a `\r\n` behind.
    return re.sub(r"\r+\n", "\n", text) if "\r" in text else text
