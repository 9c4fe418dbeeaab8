"""Fan-out and fan-in: children once each, a parent that counts."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db import claims, collections, details, jobs, moves, outbox, runs
from sluice_core.adapters.db.engine import read, write
from sluice_core.domain.errors import StaleRunError
from sluice_core.domain.lanes import Actor, Lane
from sluice_core.domain.states import Status, WaitingFor
from sluice_testing.factories import (
    NOW,
    fail,
    finish,
    make_collection,
    make_job_in,
    run_at,
    settle,
    start_run,
)


def _entries(*keys: int) -> list[dict[str, object]]:
    return [{"url": f"https://media.example/{k}", "key": f"{k}", "title": f"第{k}集"} for k in keys]


def _end(c: sa.Connection, job_id: str, *, well: bool) -> None:
    run = start_run(c, job_id)
    if not well:
        fail(c, run)
        return
    for stage in (Actor.DOWNLOAD, Actor.TRANSCODE):
        runs.advance(c, run, to=stage, fields={}, now=NOW)
        run = start_run(c, job_id)
    finish(c, run)


def test_children_are_jobs_of_their_own(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.PARSE, preset="720p", api_key_id="key-1", metadata={"a": 1})
        orders = collections.add_children(c, run, _entries(1, 2), now=NOW)
        child = jobs.get(c, orders[0].job_id)
    assert child is not None
    assert (child.parent_id, child.api_key_id) == (run.job.id, "key-1")
    assert (child.request.preset, child.request.playlist) == ("720p", "single")
    assert (child.request.lane, orders[0].queue) == (Lane.BULK, "parse.bulk")
    assert (child.title, child.request.metadata) == ("第1集", {})


def test_a_chosen_lane_is_kept(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.PARSE, lane=Lane.HIGH)
        (order,) = collections.add_children(c, run, _entries(1), now=NOW)
    assert order.queue == "parse.high"


def test_an_entry_is_written_once(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.PARSE)
        assert len(collections.add_children(c, run, _entries(1, 2, 2), now=NOW)) == 2
        assert len(collections.add_children(c, run, _entries(2, 3), now=NOW)) == 1
        assert collections.add_children(c, run, [], now=NOW) == []
        assert details.child_counts(c, [run.job.id])[run.job.id].total == 3


def test_an_entry_is_written_once_by_many_at_once(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.PARSE)
    barrier = threading.Barrier(4, timeout=60)
    added: list[int] = []

    def add(turn: int) -> None:
        for first in range(0, 60, 6):
            barrier.wait()
            keys = list(range(first, first + 12))
            with write(engine) as c:
                found = collections.add_children(
                    c, run, _entries(*(keys if turn % 2 else reversed(keys))), now=NOW
                )
            added.append(len(found))

    threads = [threading.Thread(target=add, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(added) == 66
    with read(engine) as c:
        assert details.child_counts(c, [run.job.id])[run.job.id].total == 66


def test_no_children_for_a_canceled_parent(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.PARSE)
        moves.cancel(c, run.job.id, now=NOW)
    with pytest.raises(StaleRunError), write(engine) as c:
        collections.add_children(c, run, _entries(1), now=NOW)
    with read(engine) as c:
        assert details.child_counts(c, [run.job.id]) == {}


@pytest.mark.parametrize(
    ("ends", "status", "code"),
    [
        ([True, True], Status.SUCCESS, None),
        ([True, False], Status.PARTIAL, "incomplete"),
        ([False, False], Status.FAILED, "incomplete"),
        ([], Status.FAILED, "no_media"),
    ],
)
def test_a_parent_ends_as_its_children_did(
    engine: sa.Engine, ends: list[bool], status: Status, code: str | None
) -> None:
    with write(engine) as c:
        parent, children = make_collection(c, len(ends))
        for child, well in zip(children, ends, strict=True):
            assert settle(c, parent.id) is None
            _end(c, child.id, well=well)
        ended = settle(c, parent.id)
        assert ended is not None
        assert ended.status is status
        assert (ended.error.code if ended.error else None) == code
        assert ended.finished_at == NOW
        assert (ended.expires_at is None) == (status is Status.FAILED)
        # Twice is once.
        assert settle(c, parent.id) is None
        assert jobs.get(c, parent.id) == ended
        assert outbox.of_job(c, parent.id) == []


def test_canceled_children_count_as_missing(engine: sa.Engine) -> None:
    with write(engine) as c:
        parent, (good, bad) = make_collection(c, 2)
        _end(c, good.id, well=True)
        moves.cancel(c, bad.id, now=NOW)
        ended = settle(c, parent.id)
    assert ended is not None
    assert ended.status is Status.PARTIAL
    assert ended.error is not None
    assert ended.error.message == "of 2 entries 1 canceled"


def test_deleted_children_do_not_count(engine: sa.Engine) -> None:
    with write(engine) as c:
        parent, (good, bad) = make_collection(c, 2)
        _end(c, good.id, well=True)
        moves.delete(c, bad.id, now=NOW)
        ended = settle(c, parent.id)
    assert ended is not None
    assert ended.status is Status.SUCCESS


def test_nothing_settles_before_the_list_was_read(engine: sa.Engine) -> None:
    with write(engine) as c:
        run = run_at(c, Actor.PARSE)
        (order,) = collections.add_children(c, run, _entries(1), now=NOW)
        _end(c, order.job_id, well=True)
        assert settle(c, run.job.id) is None
        runs.expanded(c, run, fields={}, now=NOW)
        assert [r.actor for r in outbox.of_job(c, run.job.id)] == ["settle"]
        assert settle(c, run.job.id) is not None


def test_a_lost_settle_message_is_found(engine: sa.Engine) -> None:
    with write(engine) as c:
        parent, (child,) = make_collection(c, 1)
        busy, _ = make_collection(c, 1)
        assert collections.unsettled(c, 9) == []
        _end(c, child.id, well=True)
        c.execute(sa.text("DELETE FROM outbox"))
        assert collections.unsettled(c, 9) == [parent.id]
        settle(c, parent.id)
        assert collections.unsettled(c, 9) == []
        assert jobs.get(c, busy.id).waiting_for is WaitingFor.CHILDREN  # type: ignore[union-attr]


def test_a_single_job_is_never_settled(engine: sa.Engine) -> None:
    with write(engine) as c:
        for status in Status:
            job = make_job_in(c, status)
            assert settle(c, job.id) is None
        assert settle(c, "0" * 26) is None


def test_the_last_two_children_settle_their_parent_whatever_the_order(
    engine: sa.Engine,
) -> None:
    """Each asks; whichever message comes first, the last one finds both done."""
    with write(engine) as c:
        parent, children = make_collection(c, 2)
        started = [start_run(c, child.id) for child in children]
    barrier = threading.Barrier(2, timeout=60)

    def end(run: claims.Claim) -> None:
        barrier.wait()
        with write(engine) as c:
            fail(c, run)
        with write(engine) as c:
            settle(c, parent.id)

    threads = [threading.Thread(target=end, args=(run,)) for run in started]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    with read(engine) as c:
        assert jobs.get(c, parent.id).status is Status.FAILED  # type: ignore[union-attr]
