"""Each planned time fires once: by real schedulers, several at once, killed and frozen."""

from __future__ import annotations

import signal
import time

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db import firings, jobs, leases, moves, schedules
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.schedules import NewSchedule
from sluice_core.adapters.db.schema import firings as firings_table
from sluice_core.adapters.db.schema import jobs as jobs_table
from sluice_core.domain.job import Request
from sluice_core.domain.schedule import BUILTINS, FiringOutcome, Kind, Missed, Trigger
from sluice_core.domain.states import TERMINAL
from sluice_scheduler import firing
from sluice_testing.factories import NOW, fail, start_run
from sluice_testing.waiting import until

REQUEST = Request(url="https://media.example/1", preset="720p", subtitles=("de",))


def plant(engine, *, every=None, cron=None, next_at=NOW, now=NOW, **fields):
    trigger = Trigger(cron=cron, every=every, anchor=NOW) if cron or every else Trigger(every=60)
    new = NewSchedule(
        name=fields.pop("name", "s"),
        kind=fields.pop("kind", Kind.SUBMIT),
        trigger=trigger,
        next_at=next_at,
        request=fields.pop("request", REQUEST),
        **fields,
    )
    with write(engine) as c:
        return schedules.add(c, new, now=now)


@pytest.fixture
def lease(engine):
    with write(engine) as c:
        return leases.take(c, leases.look(c, "scheduler"), "test")


def all_firings(engine, schedule):
    with read(engine) as c:
        return firings.list_of(c, schedule.id, limit=1000)


def submitted(engine):
    with read(engine) as c:
        return c.execute(sa.select(jobs_table).order_by(jobs_table.c.id)).all()


def end_all(engine):
    for row in submitted(engine):
        if row.status not in TERMINAL:
            with write(engine) as c:
                moves.cancel(c, row.id, now=NOW)


def test_a_due_schedule_submits_its_job_with_its_order(engine, lease):
    schedule = plant(engine, every=60, api_key_id="K")
    assert firing.fire_due(engine, lease, now=NOW - 0.1) == []
    [fired] = firing.fire_due(engine, lease, now=NOW + 0.5)
    with read(engine) as c:
        job = jobs.get(c, fired.job.id)
        after = schedules.get(c, schedule.id)
    assert job.request == REQUEST
    assert (job.schedule_id, job.api_key_id) == (schedule.id, "K")
    assert [order.job_id for order in fired.orders] == [job.id]
    assert after.next_at == NOW + 60
    [kept] = all_firings(engine, schedule)
    assert (kept.planned_at, kept.outcome, kept.job_id) == (NOW, FiringOutcome.OK, job.id)


def test_the_same_time_never_fires_twice(engine, lease):
    schedule = plant(engine, every=60)
    firing.fire_due(engine, lease, now=NOW)
    end_all(engine)
    with write(engine) as c:
        # An operator's change, or a restored row, leads back to a time that has fired.
        schedules.change(c, schedule.id, {"next_at": NOW}, now=NOW)
    assert firing.fire_due(engine, lease, now=NOW + 1) == []
    assert len(submitted(engine)) == 1


def test_who_lost_the_lease_fires_nothing(engine, lease):
    plant(engine, every=60)
    with write(engine) as c:
        assert leases.take(c, leases.look(c, "scheduler"), "other")
    assert firing.fire_due(engine, lease, now=NOW) == []
    assert submitted(engine) == []


def test_no_firing_while_the_last_job_runs(engine, lease):
    schedule = plant(engine, every=60)
    firing.fire_due(engine, lease, now=NOW)
    assert firing.fire_due(engine, lease, now=NOW + 60) == []
    assert [f.outcome for f in all_firings(engine, schedule)] == [
        FiringOutcome.OVERLAP,
        FiringOutcome.OK,
    ]
    with write(engine) as c:
        fail(c, start_run(c, submitted(engine)[0].id))
    assert len(firing.fire_due(engine, lease, now=NOW + 120)) == 1


@pytest.mark.parametrize(
    ("missed", "late", "expected"),
    [
        # Late, but not missed: somebody was about to take over.
        (Missed.SKIP, 45.0, FiringOutcome.OK),
        (Missed.ONCE, 45.0, FiringOutcome.OK),
        (Missed.SKIP, 3605.0, FiringOutcome.MISSED),
        (Missed.ONCE, 3605.0, FiringOutcome.OK),
    ],
)
def test_missed(engine, lease, missed, late, expected):
    schedule = plant(engine, every=10, missed=missed)
    fired = firing.fire_due(engine, lease, now=NOW + late)
    assert len(fired) == (expected is FiringOutcome.OK)
    [kept] = all_firings(engine, schedule)
    assert kept.outcome is expected
    # One for all that passed, and then on time again.
    end_all(engine)
    with read(engine) as c:
        assert schedules.get(c, schedule.id).next_at == NOW + late + 5
    assert firing.fire_due(engine, lease, now=NOW + late) == []
    assert len(firing.fire_due(engine, lease, now=NOW + late + 5)) == 1


def test_a_disabled_schedule_rests(engine, lease):
    plant(engine, every=60, enabled=False)
    assert firing.fire_due(engine, lease, now=NOW + 1) == []


def test_a_zone_that_is_gone_fails_visibly(engine, lease):
    schedule = plant(engine, cron="0 * * * *")
    with write(engine) as c:
        schedules.change(c, schedule.id, {"timezone": "Mars/Olympus"}, now=NOW)
    assert firing.fire_due(engine, lease, now=NOW) == []
    [kept] = all_firings(engine, schedule)
    assert kept.outcome is FiringOutcome.FAILED
    assert "time zone" in kept.message
    with read(engine) as c:
        assert schedules.get(c, schedule.id).next_at is None


def test_firings_are_capped(engine):
    schedule = plant(engine, every=60)
    with write(engine) as c:
        for n in range(firings.KEPT + 20):
            outcome = FiringOutcome.OK
            firings.record(c, schedule, NOW + n, fence=1, now=NOW, outcome=outcome)
        assert firings.purge(c) == 20
    kept = all_firings(engine, schedule)
    assert len(kept) == firings.KEPT
    assert kept[-1].planned_at == NOW + 20


def fences_by_time(engine, schedule):
    with read(engine) as c:
        query = sa.select(firings_table.c.fence).where(firings_table.c.schedule_id == schedule.id)
        return c.execute(query.order_by(firings_table.c.planned_at)).scalars().all()


def test_two_schedulers_fire_each_second_once(engine, start_scheduler, tmp_path):
    """One is killed, the next one frozen; the third goes on: no second twice, none by two jobs."""
    now = time.time()
    schedule = plant(engine, every=1, next_at=now, now=now)
    processes = {name: start_scheduler(name) for name in ("a", "b")}

    def leader():
        with read(engine) as c:
            return leases.look(c, "scheduler")

    def firing():
        """Name of the process that leads and has fired something as the leader that it is."""
        end_all(engine)
        lease = leader()
        if lease.fence not in fences_by_time(engine, schedule):
            return None
        return next((n for n, p in processes.items() if f"-{p.pid}-" in lease.holder), None)

    name = until(firing, why="nobody fires")
    processes[name].kill9()
    (other,) = set(processes) - {name}
    until(lambda: firing() == other, why="nobody follows a killed leader")
    processes[other].send(signal.SIGSTOP)
    processes["c"] = start_scheduler("c")
    until(lambda: firing() == "c", why="nobody follows a frozen leader")
    processes[other].send(signal.SIGCONT)
    log = tmp_path / f"{other}.log"
    until(
        lambda: "leadership" in log.read_text(),
        why="a frozen leader that woke up still leads",
        timeout=60,
    )
    rows = all_firings(engine, schedule)
    # Whoever was followed fired nothing any more.
    assert fences_by_time(engine, schedule) == sorted(fences_by_time(engine, schedule))
    assert len({r.planned_at for r in rows}) == len(rows)
    made = [r.job_id for r in rows if r.job_id]
    assert len(set(made)) == len(made)
    assert sorted(made) == sorted(r.id for r in submitted(engine))


def test_built_in_tasks_run_and_are_told(engine, start_scheduler):
    start_scheduler()
    until(lambda: _builtins(engine))
    with write(engine) as c:
        for schedule in _builtins_in(c):
            schedules.change(c, schedule.id, {"next_at": time.time()}, now=time.time())

    def told():
        with read(engine) as c:
            found = firings.newest(c, [s.id for s in _builtins_in(c)])
        return len(found) == len(BUILTINS) and all(f.ended_at for f in found.values()) and found

    found = until(told, why="not all ran")
    assert {f.outcome for f in found.values()} == {FiringOutcome.OK}, found
    assert all(f.message for f in found.values())


def _builtins(engine):
    with read(engine) as c:
        return len(_builtins_in(c)) == len(BUILTINS)


def _builtins_in(connection):
    return schedules.list_all(connection, kinds=[Kind.BUILTIN])
