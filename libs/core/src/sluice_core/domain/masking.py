"""What is never shown, and what stands in its place: secrets of settings, and of addresses."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

#: What takes the place of a secret.
MASK = "***"
#: Settings whose values are secret as a whole have one of these in their names.
_SECRET_WORDS = ("secret", "password", "token", "access_key", "bootstrap_key")

_USER = re.compile(r"(?<=://)[^/\s@\"']+@")
_QUERY = re.compile(r"(https?://[^\s\"'<>?#]*)[?#][^\s\"'<>]+", re.IGNORECASE)


def mask_text(text: str) -> str:
    """A line of words without what its addresses carry beside their place.

    Links are not ours, so that the whole query may be secret, and the user too.
    """
    if "://" not in text:
        return text
    return _QUERY.sub(rf"\1?{MASK}", _USER.sub(f"{MASK}@", text))


def mask_setting(name: str, value: object) -> str:
    """A setting's value without passwords, neither whole nor inside an address.

    Args:
        name: of the field, in small letters.
        value: as set; None becomes empty.

    """
    text = "" if value is None else str(value)
    if text and any(word in name for word in _SECRET_WORDS):
        return MASK
    if "://" not in text:
        return text
    parts = urlsplit(text)
    if "@" in parts.netloc:
        user, _, host = parts.netloc.rpartition("@")
        parts = parts._replace(netloc=f"{user.partition(':')[0]}:{MASK}@{host}")
    query = [
        f"{k}={MASK}" if any(w in k.lower() for w in (*_SECRET_WORDS, "key")) else f"{k}{eq}{v}"
        for k, eq, v in (pair.partition("=") for pair in parts.query.split("&") if pair)
    ]
    # `urlunsplit` drops the empty host of schemes that it does not know: unix:///x became unix:/x.
    tail = urlunsplit(("", "", "", "&".join(query), parts.fragment))
    return f"{parts.scheme}://{parts.netloc}{parts.path}{tail}"
