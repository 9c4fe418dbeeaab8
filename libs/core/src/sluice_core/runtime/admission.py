"""Whether a message may start its run now: what a remote host can bear decides.

A message that may not goes back as an order for later, before anything is claimed: it takes no
thread, costs no try and leaves no attempt.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
import structlog

from sluice_core.adapters.db import claims
from sluice_core.adapters.db.engine import read
from sluice_core.adapters.db.outbox import OutboxRow
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.job import Job
from sluice_core.domain.lanes import Actor
from sluice_core.runtime.deps import StageDeps
from sluice_core.runtime.hosts import Wait, host_of
from sluice_core.runtime.run import stored

log = structlog.get_logger(__name__)

#: Stages that talk to remote hosts; the first is short, so that only a host's own wish holds it up.
REMOTE = {Actor.PARSE: False, Actor.DOWNLOAD: True}

#: What says when to come again for one media, and nothing of its host.
_OF_ONE_MEDIA = frozenset({"live_not_started"})


@contextmanager
def admission(deps: StageDeps, message: claims.Message) -> Iterator[bool]:
    """Whether the run may start; False when its message was put back, and is to be acknowledged.

    A slot that it takes is given back at the end. One that a live run of the same job holds stays
    that run's, however late or doubled this message is.
    """
    host = _host(deps, message)
    if not host:
        yield True
        return
    wait = deps.hosts.enter(host, message.job_id, counted=REMOTE[deps.stage])
    if wait is not None:
        _put_back(deps, message, wait)
        yield False
        return
    try:
        yield True
    finally:
        deps.hosts.leave(message.job_id)


def _host(deps: StageDeps, message: claims.Message) -> str:
    """The remote host that the run would talk to; empty for none, or when no run is wanted."""
    if deps.stage not in REMOTE:
        return ""
    url = stored(
        deps,
        lambda connection: claims.link_of(connection, stage=deps.stage, message=message),
        begin=read,
    )
    return host_of(url or "")


def _put_back(deps: StageDeps, message: claims.Message, wait: Wait) -> None:
    now = deps.clock()

    def put_back(connection: sa.Connection) -> OutboxRow | None:
        return claims.postpone(
            connection,
            stage=deps.stage,
            message=message,
            due_at=now + wait.seconds,
            shown=wait.paused,
            now=now,
        )

    stored(deps, put_back)
    log.info("host_is_busy", job=message.job_id, seconds=round(wait.seconds, 1), paused=wait.paused)


def pause_host(deps: StageDeps, job: Job, failure: SluiceError, delay: float) -> None:
    """Let the other jobs of a host wait as well, when it asked for that."""
    if failure.code in _OF_ONE_MEDIA:
        return
    if failure.code != "rate_limited" and failure.retry_after is None:
        return
    host = host_of(job.request.url)
    if host and deps.stage in REMOTE:
        deps.hosts.pause(host, failure.retry_after or delay)
