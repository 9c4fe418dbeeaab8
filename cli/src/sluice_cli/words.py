"""Jobs in words for a terminal. Pure; titles are data, so what steers a terminal is taken out."""

from __future__ import annotations

import unicodedata
from typing import Any
from urllib.parse import urlsplit

#: Characters of a name in a line.
MAX_NAME = 40
#: Marks and overrides that change the direction of what follows them.
_BIDI = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_KIB = 1024


def clean(text: str) -> str:
    """Without control characters and direction overrides."""
    return "".join(
        " " if c in _BIDI or unicodedata.category(c) in ("Cc", "Cs") else c for c in text
    ).strip()


def name_of(job: dict[str, Any]) -> str:
    """What to call a job in a line: its title, else the end of its link."""
    title = clean(job.get("title") or "")
    if not title:
        parts = urlsplit(clean(job.get("url") or ""))
        title = parts.path.rstrip("/").rpartition("/")[2] or parts.netloc or str(job.get("id"))
    return title if len(title) <= MAX_NAME else title[: MAX_NAME - 1] + "…"


def figures_of(job: dict[str, Any]) -> str:
    """Bytes, speed and time left, as far as they are known."""
    progress = job.get("progress") or {}
    done, total = progress.get("bytes"), progress.get("total_bytes")
    speed, left = progress.get("bytes_per_second"), progress.get("eta_seconds")
    said = []
    # An encoder may have nothing written yet, or not tell.
    if total:
        said.append(f"{size(done or 0)} of {size(total)}")
    elif done:
        said.append(size(done))
    if speed:
        said.append(f"{size(speed)}/s")
    if left is not None:
        said.append(f"{duration(left)} left")
    return ", ".join(said)


def failure_of(job: dict[str, Any]) -> str:
    """Why a job did not end well: code, message, help."""
    error = job.get("error")
    if not error:
        return clean(str(job.get("step") or job.get("status")))
    message = clean(str(error.get("message") or "")).rstrip(".")
    text = f"{error.get('code')}: {message}."
    hint = clean(str(error.get("help") or ""))
    return f"{text} {hint}" if hint else text


def size(count: float) -> str:
    """Bytes as people say them."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < _KIB or unit == "GiB":
            break
        value /= _KIB
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def duration(seconds: float) -> str:
    """Seconds as `1:02:03` or `2:03` or `3 s`."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    if hours:
        return f"{hours}:{minutes:02}:{secs:02}"
    return f"{minutes}:{secs:02}" if minutes else f"{secs} s"
