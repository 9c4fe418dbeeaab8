"""Each situation in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sluice_core.domain.explain import Attempt, Order, Sight, Standing, explain
from sluice_core.domain.job import ChildCounts, Job, JobError, Progress, Request
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import Status, WaitingFor

NOW = 1_800_000_000.0
JOB = Job(
    id="J",
    request=Request(url="https://media.example/film"),
    status=Status.DOWNLOADING,
    stage=Actor.DOWNLOAD,
    epoch=3,
    version=9,
    waiting_for=WaitingFor.WORKER,
    tries=1,
    losses=0,
    progress=Progress(),
    created_at=NOW - 60,
    updated_at=NOW,
)
ORDER = Order("M", Actor.DOWNLOAD, "download.bulk", 3, NOW - 5, NOW - 5, 1)
ATTEMPT = Attempt(
    stage="download",
    number=2,
    epoch=3,
    worker="host-1",
    message_id="M",
    queue="download.bulk",
    published_at=NOW - 9,
    publishes=1,
    deliveries=1,
    delivered_at=NOW - 8,
    claimed_at=NOW - 8,
    beat=2,
    progressed=False,
    ended_at=None,
    outcome=None,
    error_code=None,
    error_message=None,
)
WAITING = Sight("waiting", before=2)
ABSENT = Sight("absent")


def told(
    job: Job = JOB, *, seen: Sight | None = None, workers: int | None = 2, **more: Any
) -> list[str]:
    return explain(Standing(job, **more), {"M": seen or WAITING}, workers=workers, now=NOW)


@pytest.mark.parametrize(
    ("seen", "order", "words"),
    [
        (WAITING, ORDER, "number 3 in its queue"),
        (Sight("waiting", before=0, handed_out=3), ORDER, "(handed out 3 times)"),
        (Sight("in_flight", worker="host-7"), ORDER, "in flight with host-7"),
        (Sight("in_flight"), ORDER, "in flight with a worker that is gone"),
        (ABSENT, ORDER, "is in no queue; it is published again within"),
        (ABSENT, replace(ORDER, published_at=None), "it reaches the broker within 3 s"),
        (ABSENT, replace(ORDER, due_at=NOW + 30), "kept in the database and is due at 2027"),
    ],
)
def test_where_a_message_is(seen: Sight, order: Order, words: str) -> None:
    assert words in told(seen=seen, orders=(order,))[-1]


@pytest.mark.parametrize(
    ("workers", "words"),
    [(2, "of which 2 live"), (0, "none of them lives"), (None, "of the stage download.")],
)
def test_who_it_waits_for(workers: int | None, words: str) -> None:
    assert words in told(workers=workers, orders=(ORDER,))[1]


def test_when_it_tries_again() -> None:
    job = replace(
        JOB,
        waiting_for=WaitingFor.RETRY,
        retry_at=NOW + 12,
        error=JobError("server_error", "transient", "HTTP 500"),
    )
    said = told(job, orders=(replace(ORDER, due_at=NOW + 12),))
    assert (
        "after server_error: HTTP 500; try 2 is due at 2027-01-15T08:00:12.000Z (in 12 s)"
        in (said[1])
    )


def test_when_it_starts() -> None:
    request = replace(JOB.request, not_before=NOW + 3600)
    job = replace(
        JOB, status=Status.PENDING, stage=Actor.PARSE, waiting_for=WaitingFor.TIME, request=request
    )
    assert "start time, at 2027-01-15T09:00:00.000Z (in 3600 s)" in told(job, orders=(ORDER,))[1]


def test_children() -> None:
    job = replace(JOB, waiting_for=WaitingFor.CHILDREN, expansion_done=True)
    counts = ChildCounts(total=10, success=4, partial=1, failed=2, canceled=1, active=2)
    said = told(job, children=counts)
    assert "2 are under way, 4 done, 1 done in part, 2 failed and 1 canceled" in said[1]
    assert not any("orders it anew" in words for words in said)


def test_a_run_under_way() -> None:
    said = told(
        replace(JOB, waiting_for=None),
        seen=Sight("in_flight", worker="host-1"),
        attempts=(ATTEMPT,),
    )
    assert "Run 2 of download (epoch 3): message M of download.bulk, published 2027" in said[-1]
    assert "runs since 8.0 s, beat 2, its message is in flight with host-1." in said[-1]


def test_a_run_that_ended() -> None:
    attempt = replace(
        ATTEMPT,
        ended_at=NOW - 3,
        outcome="retry",
        error_code="network",
        error_message="cut",
        deliveries=2,
    )
    said = told(attempts=(attempt,), orders=(ORDER,), earlier_attempts=7)
    assert "7 earlier runs are not shown." in said
    (words,) = [w for w in said if w.startswith("Run ")]
    assert "(handed out 2 times), claimed" in words
    assert words.endswith("it ended retry after 5.0 s with network: cut.")


def test_nothing_carries_it() -> None:
    assert "Nothing runs it and no message asks for a run" in told()[2]
    ended = replace(ATTEMPT, ended_at=NOW, outcome="lost")
    assert "Nothing runs it" in told(attempts=(ended,))[2]


def test_the_end() -> None:
    job = replace(
        JOB,
        status=Status.FAILED,
        waiting_for=None,
        finished_at=NOW,
        error=JobError("gone", "permanent", "the media was removed"),
    )
    said = told(job)
    assert said[0] == "The job is FAILED: failed: the media was removed."
    assert "waits for nothing" in said[1]
    assert "The reason is gone: the media was removed." in said[2]
    done = replace(JOB, status=Status.SUCCESS, finished_at=NOW, expires_at=NOW + 60)
    assert "Its 2 files are kept until 2027-01-15T08:01:00.000Z." in told(done, files=2)


def test_redis_away() -> None:
    said = explain(Standing(JOB, orders=(ORDER,)), None, workers=None, now=NOW)
    assert said[-1].startswith("Redis does not answer")
    assert "was published 2027" in said[-2]
