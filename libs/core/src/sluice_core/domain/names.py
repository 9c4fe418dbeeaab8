"""Titles of strangers, and file names made of them: data, never paths."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container

#: Bytes of a name in UTF-8, extension included: filesystems allow 255, and a browser or a copy
#: adds " (2)" or ".part".
MAX_BYTES = 200
#: Characters of a title: more than any site shows.
MAX_TITLE = 1_000

#: Control characters but for white space, and halves of characters, which no UTF-8 can hold.
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
#: What some filesystem refuses, shells trip over, or a terminal obeys.
_BAD = re.compile(r'[<>:"/\\|?*]+')
_SPACES = re.compile(r"\s+")
#: Names that are devices on Windows, with any extension.
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.IGNORECASE)
#: Control and format characters: newlines, escape sequences, bidirectional overrides.
#: Joiners stay: emoji and several scripts are spelled with them.
_JOINERS = "\u200c\u200d"


def plain_title(title: object) -> str | None:
    """A title as the site has it, but for what a terminal would obey.

    Args:
        title: what a site gave, of any type; cut to `MAX_TITLE` characters; None if empty.

    """
    if title is None:
        return None
    return _CONTROLS.sub(" ", str(title)[:MAX_TITLE]) or None


def safe_stem(title: str | None, fallback: str) -> str:
    """A name without extension that no filesystem, shell or browser misreads.

    Args:
        title: any text, or None.
        fallback: a plain name when nothing of the title can be kept.

    """
    text = unicodedata.normalize("NFC", title or "")
    text = "".join(c for c in _SPACES.sub(" ", text) if not _is_hidden(c))
    text = _BAD.sub("_", text).strip(" .").lstrip("-").strip(" .")
    if not text or not text.strip("_"):
        return fallback
    return f"_{text}" if _RESERVED.fullmatch(text) else text


def file_name(title: str | None, ext: str, *, fallback: str, taken: Container[str] = ()) -> str:
    """`title.ext`, cut to `MAX_BYTES` and unlike every name in `taken` (in lower case).

    Args:
        ext: our own, without a dot; never one that a site chose.

    """
    stem = safe_stem(title, fallback)
    number = 1
    while True:
        tail = f".{ext}" if number == 1 else f" ({number}).{ext}"
        name = _cut(stem, MAX_BYTES - len(tail.encode())) + tail
        if name.lower() not in taken:
            return name
        number += 1


def _is_hidden(char: str) -> bool:
    category = unicodedata.category(char)
    return category in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} and char not in _JOINERS


def _cut(text: str, limit: int) -> str:
    """The longest start of at most `limit` bytes that ends at a whole character."""
    cut = text.encode()[:limit].decode("utf-8", "ignore")
    return cut.rstrip(" .\u200d") or "_"
