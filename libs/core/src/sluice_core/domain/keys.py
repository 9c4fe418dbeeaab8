"""Every Redis key outside the broker's own namespace, built here and nowhere else."""

from __future__ import annotations

PREFIX = "sluice:"

#: Stream of job events; capped, see `EVENTS_MAXLEN`.
EVENTS = f"{PREFIX}events"

#: Left in each logical database; its absence tells that Redis was emptied.
MARK = f"{PREFIX}mark"

#: Entries kept in `EVENTS`; about 10 MB at 1 kB each.
EVENTS_MAXLEN = 10_000

#: What the rate limits of API keys count; each key expires by itself.
LIMITS = f"{PREFIX}limits"


def lock(job_id: str, stage: str) -> str:
    """The idempotency lock of one stage of one job; value is the epoch, expires by itself."""
    return f"{PREFIX}lock:{job_id}:{stage}"


def worker(worker_id: str) -> str:
    """What one worker says of itself, as a hash; expires when the worker stops saying it."""
    return f"{PREFIX}worker:{worker_id}"


def standby(pod: str) -> str:
    """The mark of a pod whose worker is to take nothing new; expires by itself."""
    return f"{PREFIX}standby:{pod}"


def standby_answer(pod: str) -> str:
    """Name of the mark that the pod's worker obeys: nothing runs in it, nothing begins."""
    return f"{PREFIX}standby:{pod}:answer"


def host_slots(host: str) -> str:
    """Who holds a connection slot to one remote host, as a sorted set by expiry."""
    return f"{PREFIX}host:{host}"


def host_pause(host: str) -> str:
    """There while one remote host wants no visitors; expires by itself."""
    return f"{PREFIX}host:{host}:pause"


def host_crowd(host: str) -> str:
    """Who waits for a slot to one remote host, as a sorted set by expiry."""
    return f"{PREFIX}host:{host}:crowd"
