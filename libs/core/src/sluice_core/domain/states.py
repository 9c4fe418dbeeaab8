"""The one table of job states and allowed moves. Every other move is refused."""

from __future__ import annotations

from enum import StrEnum

from sluice_core.domain.lanes import Actor


class Status(StrEnum):
    """Where a job stands, in the words of the contract."""

    #: Accepted; nothing has looked at the link yet.
    PENDING = "PENDING"
    #: The parser finds out what is behind the link.
    PARSING = "PARSING"
    #: The downloader fetches the chosen tracks; of a collection: its children run.
    DOWNLOADING = "DOWNLOADING"
    #: The transcoder makes the finished file.
    MERGING = "MERGING"
    #: The finished file is in storage.
    SUCCESS = "SUCCESS"
    #: A collection with some children done and some not, or media kept with named gaps.
    PARTIAL = "PARTIAL"
    #: Ended by an error with a code.
    FAILED = "FAILED"
    #: Ended by a person.
    CANCELED = "CANCELED"


class WaitingFor(StrEnum):
    """What a job that is not running waits for."""

    WORKER = "worker"
    RETRY = "retry"
    TIME = "time"
    CHILDREN = "children"


TERMINAL = frozenset({Status.SUCCESS, Status.PARTIAL, Status.FAILED, Status.CANCELED})
ACTIVE = frozenset(Status) - TERMINAL
#: What a person may start again.
RETRYABLE = frozenset({Status.FAILED, Status.PARTIAL, Status.CANCELED})

_END = {Status.FAILED, Status.CANCELED}

#: state -> states that may follow. A retry by hand leads to the first stage not yet done.
MOVES: dict[Status, frozenset[Status]] = {
    Status.PENDING: frozenset({Status.PARSING, *_END}),
    Status.PARSING: frozenset({Status.DOWNLOADING, *_END}),
    # A collection goes from DOWNLOADING straight to its end.
    Status.DOWNLOADING: frozenset({Status.MERGING, Status.SUCCESS, Status.PARTIAL, *_END}),
    Status.MERGING: frozenset({Status.SUCCESS, Status.PARTIAL, *_END}),
    Status.SUCCESS: frozenset(),
    Status.PARTIAL: frozenset({Status.PENDING, Status.DOWNLOADING, Status.MERGING}),
    Status.FAILED: frozenset({Status.PENDING, Status.DOWNLOADING, Status.MERGING}),
    Status.CANCELED: frozenset({Status.PENDING, Status.DOWNLOADING, Status.MERGING}),
}

#: The state that a job has while the actor runs, and while it waits for that actor.
RUNNING_STATE: dict[Actor, Status] = {
    Actor.PARSE: Status.PARSING,
    Actor.DOWNLOAD: Status.DOWNLOADING,
    Actor.TRANSCODE: Status.MERGING,
}


def may_move(old: Status, new: Status) -> bool:
    """Whether the table allows the move; staying in a state is no move."""
    return new in MOVES[old]
