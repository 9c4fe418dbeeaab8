"""Server-sent events, read line by line (WHATWG HTML, 9.2.6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `id` is what a later connection resumes from."""

    kind: str
    data: str
    id: str | None


def parse(lines: Iterable[str]) -> Iterator[Event]:
    """Events of a stream; comments and unknown fields are skipped, a cut last event is dropped."""
    kind, data, last_id = "message", [], None  # type: str, list[str], str | None
    for line in lines:
        if line == "":
            if data:
                yield Event(kind, "\n".join(data), last_id)
            kind, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            kind = value
        elif field == "data":
            data.append(value)
        elif field == "id" and "\0" not in value:
            last_id = value
