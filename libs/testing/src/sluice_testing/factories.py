"""Jobs in any state, made by the real functions alone, so that no test sees an impossible row."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db import claims, collections, jobs, moves, outbox, runs
from sluice_core.adapters.db.outbox import OutboxRow
from sluice_core.domain.job import Artifact, Job, JobError, Request
from sluice_core.domain.lanes import STAGES, Actor
from sluice_core.domain.states import Status

#: A moment for tests that bring no clock of their own; Unix seconds.
NOW = 1_800_000_000.0

ERROR = JobError("network", "transient", "the connection failed")
PLAN = {"info_key": "work/x/parse.1/info.json", "tracks": []}
SOURCES = [{"format_id": "1", "kind": "muxed", "key": "work/x/download.2/1.mp4", "bytes": 3}]

_REQUEST_FIELDS = {f.name for f in dataclasses.fields(Request)}
_numbers = itertools.count(1)


def make_job(connection: sa.Connection, *, now: float = NOW, **fields: Any) -> Job:
    """A PENDING job with its first message in the outbox.

    Args:
        connection: of the caller's transaction.
        now: when it was submitted.
        fields: of `Request` and of `NewJob`.

    """
    asked: dict[str, Any] = {"url": f"https://media.example/{next(_numbers)}"}
    asked |= {name: fields.pop(name) for name in tuple(fields) if name in _REQUEST_FIELDS}
    new = jobs.NewJob(request=Request(**asked), **fields)
    job, _order = jobs.insert_many(connection, [new], now=now)[0]
    if job is None:
        raise ValueError("a unique index already holds such a job")
    return job


def message_of(row: OutboxRow | sa.Row[Any], *, now: float = NOW) -> claims.Message:
    """The row as a worker gets it."""
    return claims.Message(
        id=row.id, queue=row.queue, job_id=row.job_id, epoch=row.epoch, delivered_at=now
    )


def next_order(connection: sa.Connection, job_id: str) -> sa.Row[Any]:
    """The newest row of the outbox that asks for a run of the job."""
    stages = {stage.value for stage in STAGES}
    return [r for r in outbox.of_job(connection, job_id) if r.actor in stages][-1]


def start_run(
    connection: sa.Connection, job_id: str, *, worker: str = "worker-1", now: float = NOW
) -> claims.Claim:
    """Claim the job by the message that waits for it."""
    row = next_order(connection, job_id)
    won = claims.claim(
        connection, stage=Actor(row.actor), message=message_of(row), worker=worker, now=now
    )
    if won is None:
        raise ValueError(f"job {job_id} can't be claimed")
    return won


def run_at(
    connection: sa.Connection, stage: Actor, *, now: float = NOW, **fields: Any
) -> claims.Claim:
    """A run of the stage, all stages before it done."""
    job = make_job(connection, now=now, **fields)
    run = start_run(connection, job.id, now=now)
    learned: dict[Actor, dict[str, Any]] = {
        Actor.DOWNLOAD: {"plan": PLAN},
        Actor.TRANSCODE: {"sources": SOURCES},
    }
    for to in STAGES[1 : STAGES.index(stage) + 1]:
        runs.advance(connection, run, to=to, fields=learned[to], now=now)
        run = start_run(connection, job.id, now=now)
    return run


def artifact(run: claims.Claim, name: str = "film.mp4") -> Artifact:
    """A finished file of the run; nothing is put into a storage."""
    key = f"files/{run.job.id}/{run.job.stage.value}.{run.job.epoch}/{name}"
    return Artifact(name, "video", key, 3, "0" * 64, "video/mp4")


def finish(connection: sa.Connection, run: claims.Claim, *, now: float = NOW) -> Job:
    """End the run's job well."""
    job, _orders = runs.succeed(
        connection, run, files=[artifact(run)], fields={}, expires_at=now + 86_400, now=now
    )
    return job


def fail(connection: sa.Connection, run: claims.Claim, *, now: float = NOW) -> Job:
    """End the run's job badly."""
    job, _orders = runs.fail(connection, run, ERROR, dead=False, sweep_at=now + 60, now=now)
    return job


def make_collection(
    connection: sa.Connection, children: int, *, now: float = NOW, **fields: Any
) -> tuple[Job, list[Job]]:
    """A collection whose list was read to its end, and its PENDING children."""
    run = run_at(connection, Actor.PARSE, now=now, **fields)
    entries = [{"url": f"https://media.example/e/{n}", "key": f"{n}"} for n in range(children)]
    orders = collections.add_children(connection, run, entries, now=now)
    parent, _orders = runs.expanded(connection, run, fields={}, now=now)
    found = jobs.get_many(connection, [order.job_id for order in orders])
    return parent, [found[order.job_id] for order in orders]


def settle(connection: sa.Connection, parent_id: str, *, now: float = NOW) -> Job | None:
    """Look at a collection as the settle message does."""
    return collections.settle(
        connection, parent_id, expires_at=now + 86_400, sweep_at=now + 60, now=now
    )


def make_job_in(connection: sa.Connection, status: Status, *, now: float = NOW) -> Job:
    """A job in the state; while active, a run holds it (but for PENDING)."""
    if status is Status.PENDING:
        return make_job(connection, now=now)
    if status is Status.PARTIAL:
        parent, (good, bad) = make_collection(connection, 2, now=now)
        finish(connection, last_run(connection, good.id, now=now), now=now)
        fail(connection, start_run(connection, bad.id, now=now), now=now)
        settled = settle(connection, parent.id, now=now)
        if settled is None:
            raise ValueError("the collection did not settle")
        return settled
    stage = {Status.PARSING: Actor.PARSE, Status.DOWNLOADING: Actor.DOWNLOAD}.get(
        status, Actor.TRANSCODE
    )
    run = run_at(connection, stage, now=now)
    if status is Status.SUCCESS:
        return finish(connection, run, now=now)
    if status is Status.FAILED:
        return fail(connection, run, now=now)
    if status is Status.CANCELED:
        canceled = moves.cancel(connection, run.job.id, now=now)
        if canceled is None:
            raise ValueError("the job could not be canceled")
        return canceled
    return run.job


def last_run(connection: sa.Connection, job_id: str, *, now: float = NOW) -> claims.Claim:
    """Bring a job that waits for a worker to its transcode run."""
    run = start_run(connection, job_id, now=now)
    for to in STAGES[STAGES.index(run.job.stage) + 1 :]:
        runs.advance(connection, run, to=to, fields={}, now=now)
        run = start_run(connection, job_id, now=now)
    return run
