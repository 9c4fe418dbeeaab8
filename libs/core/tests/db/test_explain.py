"""What an explanation is told by the database."""

from __future__ import annotations

import sqlalchemy as sa

from sluice_core.adapters.db import runs
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.explain import MAX_ATTEMPTS, standing
from sluice_core.domain.lanes import Actor
from sluice_testing.factories import (
    ERROR,
    NOW,
    finish,
    make_collection,
    make_job,
    run_at,
    start_run,
)


def test_a_run_with_its_message_and_the_next_order(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD)
        runs.retry_later(c, run, ERROR, due_at=NOW + 30, now=NOW + 2)
        found = standing(c, run.job.id)
    assert found is not None
    assert [(a.stage, a.number, a.outcome) for a in found.attempts] == [
        ("parse", 1, "ok"),
        ("download", 1, "retry"),
    ]
    (order,) = found.orders
    assert (order.actor, order.due_at, order.published_at) == (Actor.DOWNLOAD, NOW + 30, None)
    assert found.messages[-1] == ("download.default", order.id)
    assert len(found.messages) == 3


def test_children_and_files_are_counted(engine: sa.Engine) -> None:
    with write(engine) as c:
        parent, _ = make_collection(c, 3)
        done = finish(c, run_at(c, Actor.TRANSCODE))
    with read(engine) as c:
        of_parent, of_done = standing(c, parent.id), standing(c, done.id)
    assert of_parent is not None
    assert (of_parent.children.total, of_parent.children.active) == (3, 3)
    assert of_done is not None
    assert of_done.files == 1


def test_of_many_runs_the_newest_are_told(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job(c)
        for _ in range(MAX_ATTEMPTS + 3):
            runs.hand_back(c, start_run(c, job.id), now=NOW)
        found = standing(c, job.id)
    assert found is not None
    assert len(found.attempts) == MAX_ATTEMPTS
    assert found.earlier_attempts == 3
    assert [a.number for a in found.attempts] == list(range(4, MAX_ATTEMPTS + 4))


def test_no_such_job(engine: sa.Engine) -> None:
    with read(engine) as c:
        assert standing(c, "0" * 26) is None
