"""Each kind of row is filled past its cap."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db import (
    access,
    claims,
    idempotency,
    job_counts,
    jobs,
    moves,
    runs,
    sweeps,
)
from sluice_core.adapters.db.access import MAX_KEYS, Scope
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.schema import api_keys, attempts, idempotency_keys
from sluice_core.adapters.db.schema import jobs as jobs_table
from sluice_core.adapters.db.schema import outbox as outbox_table
from sluice_core.adapters.ids import new_id
from sluice_core.domain.errors import ConfigError
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import ACTIVE, Status
from sluice_testing.factories import NOW, make_job, make_job_in, run_at, start_run


def test_runs_of_a_job_keep_the_newest(engine: sa.Engine) -> None:
    with write(engine) as c:
        first = run_at(c, Actor.DOWNLOAD)
        runs.hand_back(c, first, now=NOW)
        for _ in range(claims.ATTEMPTS_KEPT + 4):
            run = start_run(c, first.job.id)
            runs.hand_back(c, run, now=NOW)
        kept = jobs.attempts_of(c, first.job.id)
    download = [a.number for a in kept if a.stage == "download"]
    assert len(download) == claims.ATTEMPTS_KEPT
    assert download == list(range(6, claims.ATTEMPTS_KEPT + 6))
    assert run.number == claims.ATTEMPTS_KEPT + 5
    assert [a.number for a in kept if a.stage == "parse"] == [1]


def test_orders_of_a_job_do_not_pile_up(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job(c)
        for _ in range(20):
            runs.hand_back(c, start_run(c, job.id), now=NOW)
        count = c.execute(sa.select(sa.func.count()).select_from(outbox_table)).scalar_one()
    assert count == 1


def test_open_keys_are_refused_beyond_the_cap_and_revoked_ones_forgotten(
    engine: sa.Engine,
) -> None:
    def row(*, revoked: bool) -> dict[str, object]:
        i = new_id()
        end = NOW if revoked else None
        return {"id": i, "name": "n", "hash": i, "scopes": "read", "created_at": NOW,
                "revoked_at": end}  # fmt: skip

    with write(engine) as c:
        rows = [row(revoked=n < MAX_KEYS + 3) for n in range(2 * MAX_KEYS + 2)]
        c.execute(sa.insert(api_keys), rows)
        _, last = access.create(c, name="last", scopes=[Scope.READ], now=NOW)
        keys = access.list_keys(c)
        assert sum(key.revoked_at is not None for key in keys) == MAX_KEYS
        assert keys[0].id == rows[3]["id"]
        assert sum(key.revoked_at is None for key in keys) == MAX_KEYS
        with pytest.raises(ConfigError, match="revoke some first"):
            access.create(c, name="one too many", scopes=[Scope.READ], now=NOW)
        access.revoke(c, last.id, now=NOW)
        access.create(c, name="in its place", scopes=[Scope.READ], now=NOW)


def test_ended_jobs_beyond_the_cap_go_with_their_files_oldest_first(engine: sa.Engine) -> None:
    with write(engine) as c:
        ended = [make_job_in(c, Status.SUCCESS).id for _ in range(4)]
        active = make_job(c).id
        ended += [make_job_in(c, Status.FAILED).id]
        assert sweeps.purge_excess(c, cap=5, now=NOW, limit=9) == 0
        assert sweeps.purge_excess(c, cap=2, now=NOW, limit=2) == 2
        assert sweeps.purge_excess(c, cap=2, now=NOW, limit=2) == 1
        assert sweeps.purge_excess(c, cap=2, now=NOW, limit=2) == 0
        assert set(jobs.get_many(c, [*ended, active])) == {*ended[3:], active}
        assert sorted(sweeps.due_ids(c, now=NOW, limit=9))[:3] == ended[:3]


def test_an_ended_job_that_is_retried_just_now_stays_and_holds_nothing_up(
    engine: sa.Engine,
) -> None:
    with write(engine) as c:
        again, other, newest = [make_job_in(c, Status.FAILED).id for _ in range(3)]
    marked: list[int] = []

    def purge() -> None:
        with write(engine) as c:
            marked.append(sweeps.purge_excess(c, cap=1, now=NOW, limit=9))

    thread = threading.Thread(target=purge)
    # SQLite has one writer at a time, and so no two that could wait for each other.
    one_writer = engine.dialect.name == "sqlite"
    with write(engine) as c:
        moves.retry(c, again, now=NOW)
        thread.start()
        thread.join(0 if one_writer else 60)
        assert one_writer or marked == [1]
    thread.join(60)
    with read(engine) as c:
        assert set(jobs.get_many(c, [again, other, newest])) == {again, newest}


def test_active_jobs_are_counted_to_the_cap(engine: sa.Engine) -> None:
    with write(engine) as c:
        for status in Status:
            make_job_in(c, status)
        active = c.execute(
            sa.select(sa.func.count()).where(jobs_table.c.status.in_([s.value for s in ACTIVE]))
        ).scalar_one()
        assert job_counts.active(c) == active


def test_deleted_jobs_are_remembered_for_a_week(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job(c)
        moves.delete(c, job.id, now=NOW)
        sweep = sweeps.begin(c, job.id, now=NOW)
        assert sweep is not None
        sweeps.done(c, sweep)
        assert jobs.get(c, job.id) is None
        for days, known in ((6.9, True), (7.1, False)):
            assert sweeps.purge_gone(c, now=NOW + days * 86_400) == (not known)
            assert sweeps.exists(c, job.id) is known


def test_idempotency_keys_last_a_day(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job(c)
        for n in range(3):
            at = NOW + n * 50_000
            assert idempotency.remember(c, f"k{n}", body_hash="b", job_id=job.id, now=at)
        assert idempotency.purge(c, now=NOW + 100_000) == 1
        left = c.execute(sa.select(idempotency_keys.c.key)).scalars().all()
    assert sorted(left) == ["k1", "k2"]


def test_a_job_deleted_while_it_is_swept_is_swept_again(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job_in(c, Status.FAILED)
        c.execute(sa.update(jobs_table).values(sweep_at=NOW))
        sweep = sweeps.begin(c, job.id, now=NOW)
        assert sweep is not None
        assert moves.delete(c, job.id, now=NOW + 1)
        sweeps.done(c, sweep)
        assert sweeps.due_ids(c, now=NOW + 1, limit=9) == [job.id]
        again = sweeps.begin(c, job.id, now=NOW + 1)
        assert again is not None
        sweeps.done(c, again)
        assert c.execute(sa.select(jobs_table.c.id)).all() == []


def test_nothing_of_a_purged_job_is_left(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job_in(c, Status.SUCCESS)
        idempotency.remember(c, "k", body_hash="b", job_id=job.id, now=NOW)
        later = NOW + 90 * 86_400.0
        sweeps.expire_files(c, now=later, limit=9)
        assert sweeps.purge_rows(c, older_than=later, now=later, limit=9) == 1
        sweep = sweeps.begin(c, job.id, now=later)
        assert sweep is not None
        sweeps.done(c, sweep)
        for table in (jobs_table, attempts, outbox_table, idempotency_keys):
            assert c.execute(sa.select(sa.func.count()).select_from(table)).scalar_one() == 0
