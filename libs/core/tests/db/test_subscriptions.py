"""Entries of a list become jobs once, whoever reads it how often."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db import collections, listing, runs, schedules, subscriptions
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.schema import jobs as jobs_table
from sluice_core.adapters.db.schema import subscription_entries
from sluice_core.domain.job import ONLY_NEW, Job, Request
from sluice_core.domain.lanes import Lane
from sluice_core.domain.schedule import Kind, Schedule, Trigger
from sluice_core.domain.states import Status
from sluice_testing.factories import NOW, fail, make_job, settle, start_run

LIST = "https://media.example/feed"


def subscribe(engine: sa.Engine, **fields: object) -> Schedule:
    new = schedules.NewSchedule(
        "feed",
        Kind.SUBSCRIPTION,
        Trigger(every=60.0),
        NOW,
        request=Request(url=LIST, preset="720p"),
        **fields,  # type: ignore[arg-type]
    )
    with write(engine) as c:
        made = schedules.add(c, new, now=NOW)
    assert made is not None
    return made


def check(engine: sa.Engine, subscription: Schedule, names: str) -> tuple[Job, list[Job]]:
    """Read the list, whose entries have these names; returns the ended check and its children."""
    with write(engine) as c:
        job = make_job(c, url=LIST, playlist=ONLY_NEW, schedule_id=subscription.id, preset="720p")
        run = start_run(c, job.id)
        entries = [{"url": f"https://media.example/{n}", "key": n} for n in names]
        collections.add_children(c, run, entries, now=NOW)
        runs.expanded(c, run, fields={}, now=NOW)
        return job, listing.list_page(
            c, listing.Filter(parent_id=job.id), before_id=None, limit=100
        )


def urls(children: list[Job]) -> list[str]:
    return sorted(child.request.url[-1] for child in children)


def end(engine: sa.Engine, job: Job) -> sa.Row[tuple[object, ...]]:
    with write(engine) as c:
        settle(c, job.id)
        return c.execute(sa.select(jobs_table).where(jobs_table.c.id == job.id)).one()


def test_what_is_there_from_the_start_is_not_new(engine: sa.Engine) -> None:
    subscription = subscribe(engine)
    first, children = check(engine, subscription, "abc")
    assert children == []
    row = end(engine, first)
    assert row.status == Status.SUCCESS
    assert row.deleted_at is not None
    second, children = check(engine, subscription, "dabec")
    assert urls(children) == ["d", "e"]
    assert {(c.request.preset, c.request.lane) for c in children} == {("720p", Lane.BULK)}
    third, children = check(engine, subscription, "dabec")
    assert children == []
    assert end(engine, third).deleted_at is not None
    assert end(engine, second).deleted_at is None


def test_with_backfill_all_are_new_once(engine: sa.Engine) -> None:
    subscription = subscribe(engine, backfill=True)
    assert urls(check(engine, subscription, "abb")[1]) == ["a", "b"]
    assert urls(check(engine, subscription, "abc")[1]) == ["c"]


def test_a_first_look_that_failed_makes_nothing_new(engine: sa.Engine) -> None:
    subscription = subscribe(engine)
    with write(engine) as c:
        job = make_job(c, url=LIST, playlist=ONLY_NEW, schedule_id=subscription.id)
        run = start_run(c, job.id)
        collections.add_children(c, run, [{"url": LIST, "key": "a"}], now=NOW)
        fail(c, run)
    assert check(engine, subscription, "abc")[1] == []


def test_what_was_rolled_back_was_not_seen(engine: sa.Engine) -> None:
    subscription = subscribe(engine, backfill=True)

    def crash() -> None:
        with write(engine) as c:
            assert subscriptions.admit(c, subscription.id, {"a"}, now=NOW) == {"a"}
            raise RuntimeError("power")

    with pytest.raises(RuntimeError, match="power"):
        crash()
    with write(engine) as c:
        assert subscriptions.admit(c, subscription.id, {"a", "b"}, now=NOW) == {"a", "b"}
        assert subscriptions.admit(c, subscription.id, {"a", "c"}, now=NOW) == {"c"}


def test_a_subscription_that_is_gone_wants_nothing(engine: sa.Engine) -> None:
    subscription = subscribe(engine, backfill=True)
    with write(engine) as c:
        assert schedules.remove(c, subscription.id)
    assert check(engine, subscription, "abc")[1] == []


def test_entries_that_left_the_list_are_forgotten_in_time(engine: sa.Engine) -> None:
    subscription = subscribe(engine)
    with write(engine) as c:
        subscriptions.admit(c, subscription.id, {"old", "new"}, now=NOW)
        # Nobody could read the list since: no entry has left it.
        assert subscriptions.purge(c, older_than=NOW + 50) == 0
        subscriptions.admit(c, subscription.id, {"new"}, now=NOW + 100)
        assert subscriptions.purge(c, older_than=NOW + 50) == 1
    with read(engine) as c:
        query = sa.select(subscription_entries.c.entry_key)
        assert c.execute(query).scalars().all() == ["new"]
    with write(engine) as c:
        schedules.remove(c, subscription.id)
        c.execute(
            sa.insert(subscription_entries).values(schedule_id="gone", entry_key="x", seen_at=NOW)
        )
        assert subscriptions.purge(c, older_than=0.0) == 1
