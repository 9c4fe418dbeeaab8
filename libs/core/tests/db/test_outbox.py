"""The outbox: nothing is lost between the database and the broker, nothing taken twice at once."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from sluice_core.adapters.db import jobs, outbox, schema
from sluice_core.adapters.db.engine import open_engine, read, write
from sluice_core.domain.job import Request
from sluice_core.domain.lanes import Actor, Lane
from sluice_testing.factories import NOW, make_job, next_order


def test_a_job_and_its_message_are_one_transaction(engine: sa.Engine) -> None:
    with pytest.raises(KeyError), write(engine) as c:  # noqa: PT012  # in one transaction
        job = make_job(c)
        raise KeyError
    with read(engine) as c:
        assert outbox.of_job(c, job.id) == []
    with write(engine) as c:
        job = make_job(c, traceparent="00-1-2-01")
        (row,) = outbox.take_due(c, now=NOW + 5, older_than=5, limit=9)
    assert row.args() == {"job": job.id, "epoch": 0, "traceparent": "00-1-2-01"}
    assert (row.actor, row.queue) == (Actor.PARSE, "parse.default")


def test_fresh_rows_are_left_to_their_writer(engine: sa.Engine) -> None:
    with write(engine) as c:
        make_job(c)
        assert outbox.take_due(c, now=NOW + 4, older_than=5, limit=9) == []
        assert len(outbox.take_due(c, now=NOW + 5, older_than=5, limit=9)) == 1


def test_rows_due_later_are_the_relays_at_once(engine: sa.Engine) -> None:
    with write(engine) as c:
        make_job(c, not_before=NOW + 3600)
        assert outbox.take_due(c, now=NOW + 3599, older_than=5, limit=9) == []
        (row,) = outbox.take_due(c, now=NOW + 3600, older_than=5, limit=9)
    assert row.due_at == NOW + 3600


def test_the_longest_due_come_first_up_to_the_limit(engine: sa.Engine) -> None:
    with write(engine) as c:
        for delay in (30, 10, 20):
            make_job(c, not_before=NOW + delay)
        rows = outbox.take_due(c, now=NOW + 99, older_than=0, limit=2)
    assert [row.due_at for row in rows] == [NOW + 10, NOW + 20]


def test_published_rows_are_kept_until_claimed_and_not_taken_again(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job(c)
        row = next_order(c, job.id)
        outbox.mark_published(c, [row.id], NOW + 1)
        outbox.mark_published(c, [row.id, "0" * 26], NOW + 2)
        outbox.mark_published(c, [], NOW + 3)
        assert outbox.take_due(c, now=NOW + 99, older_than=0, limit=9) == []
        kept = outbox.get(c, row.id)
    assert kept is not None
    assert (kept.published_at, kept.publishes) == (NOW + 2, 2)


def test_what_nobody_claimed_is_found_in_pages(engine: sa.Engine) -> None:
    with write(engine) as c:
        ids = [next_order(c, make_job(c).id).id for _ in range(5)]
        outbox.mark_published(c, ids[:4], NOW)
        outbox.mark_published(c, ids[4:], NOW + 50)
        found: list[str] = []
        while page := outbox.unclaimed(
            c, published_before=NOW + 10, after_id=found[-1] if found else "", limit=3
        ):
            found += [row.id for row in page]
    assert found == sorted(ids[:4])


def test_two_relays_at_once_take_no_row_twice(postgres_engine: sa.Engine) -> None:
    with write(postgres_engine) as c:
        ids = {next_order(c, make_job(c).id).id for _ in range(20)}
    with write(postgres_engine) as first, write(postgres_engine) as second:
        taken = [row.id for row in outbox.take_due(first, now=NOW, older_than=0, limit=12)]
        rest = [row.id for row in outbox.take_due(second, now=NOW, older_than=0, limit=12)]
        assert len(taken) == 12
        assert len(rest) == 8
        assert set(taken) | set(rest) == ids


def test_relays_that_race_publish_each_row_once(engine: sa.Engine) -> None:
    with write(engine) as c:
        ids = [next_order(c, make_job(c).id).id for _ in range(60)]
    published: list[str] = []

    def relay() -> None:
        while True:
            with write(engine) as c:
                rows = outbox.take_due(c, now=NOW, older_than=0, limit=7)
                published.extend(row.id for row in rows)
                outbox.mark_published(c, [row.id for row in rows], NOW)
            if not rows:
                with read(engine) as c:
                    if outbox.lag(c, NOW)[0] == 0:
                        return

    threads = [threading.Thread(target=relay) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(published) == sorted(ids)


def test_lag_counts_what_is_due_and_waits(engine: sa.Engine) -> None:
    with write(engine) as c:
        assert outbox.lag(c, NOW) == (0, 0.0)
        published = next_order(c, make_job(c).id)
        outbox.mark_published(c, [published.id], NOW)
        make_job(c, not_before=NOW + 100)
        assert outbox.lag(c, NOW + 50) == (0, 0.0)
        make_job(c, now=NOW + 20)
        assert outbox.lag(c, NOW + 50) == (1, 30.0)
        assert outbox.lag(c, NOW + 150) == (2, 130.0)


def test_the_same_request_at_once_is_one_job(engine: sa.Engine) -> None:
    barrier = threading.Barrier(4, timeout=60)
    made: list[str] = []
    found: list[str] = []

    def submit() -> None:
        for turn in range(15):
            key = f"same-{turn}"
            barrier.wait()
            with write(engine) as c:
                new = jobs.NewJob(Request(url="https://media.example/x"), dedup_key=key)
                ((job, _order),) = jobs.insert_many(c, [new], now=NOW)
                other = jobs.by_dedup_key(c, key)
            if job is not None:
                made.append(job.id)
            assert other is not None
            found.append(other.id)

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(made) == 15
    assert len(found) == 60
    assert set(found) == set(made)


def test_batches_in_opposite_order_do_not_block_each_other(database_url: str) -> None:
    # The one waits for the other as long as that takes; only waiting for each other is a fault.
    engine = open_engine(database_url, patience=60)
    keys = [f"k{n:04}" for n in range(2500)]
    barrier = threading.Barrier(2, timeout=60)
    made: list[int] = []

    def submit(order: list[str]) -> None:
        new = [jobs.NewJob(Request(url=f"https://media.example/{k}"), dedup_key=k) for k in order]
        barrier.wait()
        with write(engine) as c:
            made.append(sum(job is not None for job, _ in jobs.insert_many(c, new, now=NOW)))

    threads = [threading.Thread(target=submit, args=(o,)) for o in (keys, keys[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    engine.dispose()
    assert sorted(made) == [0, 2500]


def test_a_batch_answers_line_by_line(engine: sa.Engine) -> None:
    with write(engine) as c:
        make_job(c, dedup_key="b")
        new = [
            jobs.NewJob(Request(url=f"https://media.example/{n}"), dedup_key=key)
            for n, key in enumerate(["c", "b", "a", "a", None])
        ]
        answers = jobs.insert_many(c, new, now=NOW)
        assert jobs.insert_many(c, [], now=NOW) == []
    urls = [job.request.url[-1] if job else None for job, _ in answers]
    assert urls == ["0", None, "2", None, "4"]
    for job, order in answers:
        assert (job is None) == (order is None)
        assert job is None or order is None or order.job_id == job.id
    with read(engine) as c:
        all_jobs = set(c.execute(sa.select(schema.jobs.c.id)).scalars())
        for table in (schema.outbox, schema.job_search):
            assert sorted(c.execute(sa.select(table.c.job_id)).scalars()) == sorted(all_jobs)


def test_postgresql_takes_jobs_with_their_words_and_orders_in_one_statement(
    postgres_engine: sa.Engine,
) -> None:
    sent: list[str] = []
    event.listen(
        postgres_engine,
        "before_cursor_execute",
        lambda _c, _cursor, text, *_rest: sent.append(text),
    )
    new = [jobs.NewJob(Request(url=f"https://media.example/{n}")) for n in range(3)]
    with write(postgres_engine) as c:
        jobs.insert_many(c, new, now=NOW)
    assert [text.partition(" ")[0] for text in sent] == ["BEGIN;", "WITH"]


def test_a_queue_is_of_its_actor_and_lane(engine: sa.Engine) -> None:
    with write(engine) as c:
        job = make_job(c, lane=Lane.CRITICAL)
        assert next_order(c, job.id).queue == "parse.critical"
