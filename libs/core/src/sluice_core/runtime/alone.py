"""A job that may have brought workers down runs in a process of its own.

The worker that got its message starts that process, waits for it, and judges its death: whatever
kills it was the job's doing, since nothing else ran there.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict

import sqlalchemy as sa
import structlog

from sluice_core.adapters.db import claims, liveness
from sluice_core.adapters.db.engine import read
from sluice_core.adapters.db.outbox import OutboxRow
from sluice_core.adapters.ids import new_id
from sluice_core.domain.errors import StoreAwayError
from sluice_core.domain.job import Job
from sluice_core.domain.quarantine import max_losses
from sluice_core.domain.silence import Silence
from sluice_core.runtime.children import confine
from sluice_core.runtime.deps import StageDeps
from sluice_core.runtime.publisher import publish_now
from sluice_core.runtime.run import stored, tell

log = structlog.get_logger(__name__)

#: First argument of the process.
OPTION = "--alone"
#: Exit status: the database was away, nobody knows how the run ended.
EXIT_STORE_AWAY = 75
#: Seconds between looks whether the process has ended or is to end.
POLL = 0.2
#: Seconds between looks whether its attempt is open.
LOOK = 2.0
#: Seconds that a process may take before its attempt begins, and go on after it is over.
PATIENCE = 60.0


def arguments(message: claims.Message, attempt_id: str) -> list[str]:
    """What the process is told."""
    return [OPTION, json.dumps({**asdict(message), "attempt_id": attempt_id})]


def parse(arguments: Sequence[str]) -> tuple[claims.Message, str] | None:
    """The message and the attempt's id, or None when this is no such process."""
    if list(arguments[:1]) != [OPTION]:
        return None
    told = json.loads(arguments[1])
    attempt_id = told.pop("attempt_id")
    return claims.Message(**told), attempt_id


def run_alone(deps: StageDeps, message: claims.Message) -> None:
    """Run one message in a process of its own and wait for its end.

    Raises:
        StoreAwayError: the database went away and this process stops.
        RuntimeError: the process ended before it had claimed the job.

    """
    attempt_id = new_id()
    log.warning("runs_alone", job=message.job_id, attempt_id=attempt_id)
    code = _run_process(deps, arguments(message, attempt_id), attempt_id)
    if code == 0:
        return
    if code == EXIT_STORE_AWAY:
        raise StoreAwayError("the process of the job's own lost the database")
    log.error("lone_process_lost", job=message.job_id, attempt_id=attempt_id, status=code)
    _judge(deps, attempt_id)


def _run_process(deps: StageDeps, told: Sequence[str], attempt_id: str) -> int:
    command = [*deps.program, *told]
    if confine.has_parent_death_signal():
        command = confine.wrap(command, os.getpid(), -1, (None, None, None, None))
    # A session of its own: a signal to this process's group must not reach it.
    process = subprocess.Popen(  # noqa: S603  # our own program
        command, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        asked = killed = False
        needless = Needless(deps, attempt_id)
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(POLL)
            if deps.drain.is_set() and not asked:
                process.terminate()
                asked = True
            if needless.seconds() > PATIENCE and not killed:
                # Frozen, most likely: it would keep this worker's slot for as long.
                log.error("lone_process_stuck", attempt_id=attempt_id, pid=process.pid)
                process.kill()
                killed = True
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


class Needless:
    """For how long nobody has needed the process: its attempt has not begun, or is over."""

    def __init__(self, deps: StageDeps, attempt_id: str) -> None:
        self._deps = deps
        self._attempt_id = attempt_id
        # A database that is away does not count, nor a time in which this process was suspended.
        self._silence = Silence(max_step=2 * LOOK)
        self._due = 0.0
        self._seconds = 0.0

    def seconds(self) -> float:
        """As far as was seen; looks every `LOOK` seconds."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + LOOK
            with suppress(StoreAwayError), read(self._deps.engine) as connection:
                is_open = bool(liveness.open_among(connection, [self._attempt_id]))
                seconds = self._silence.observe(is_open, now)
                self._seconds = 0.0 if is_open else seconds
        return self._seconds


def _judge(deps: StageDeps, attempt_id: str) -> None:
    now = deps.clock()

    def lose(connection: sa.Connection) -> tuple[bool, tuple[Job, list[OutboxRow]] | None]:
        lost = liveness.declare_lost(
            connection,
            attempt_id,
            max_losses=max_losses(deps.limits.lone_losses, seen=True),
            sweep_at=now + deps.settings.jobs.retention_partial,
            now=now,
        )
        return claims.attempt_exists(connection, attempt_id), lost

    began, lost = stored(deps, lose)
    if not began:
        # Its message comes again a little later.
        time.sleep(POLL)
        raise RuntimeError("a process of a job's own ended before it began")
    if lost is not None:
        job, rows = lost
        log.error("job_lost_alone", status=job.status.value, losses=job.losses, **job.log_context())
        publish_now(deps.broker, rows, now=now)
        tell(deps, job, "job")
