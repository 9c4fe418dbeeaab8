"""Who encodes which segment, on a real database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from sluice_core.adapters import settings
from sluice_core.adapters.db import helping, liveness, outbox, segments
from sluice_core.adapters.db.claims import Claim
from sluice_core.adapters.db.engine import write
from sluice_core.adapters.db.outbox import OutboxRow
from sluice_core.adapters.ids import new_id
from sluice_core.adapters.storage import open_storage
from sluice_core.domain.errors import StoreAwayError
from sluice_core.domain.gaps import Gap
from sluice_core.domain.lanes import Actor
from sluice_core.domain.plan import Source
from sluice_core.runtime.deps import StageDeps, make_deps
from sluice_core.runtime.run import Run
from sluice_testing.factories import message_of, run_at, start_run
from sluice_testing.waiting import until
from sluice_transcoder import line as module
from sluice_transcoder.line import Line, SharedLine, Turn
from sluice_transcoder.progress import EncodeProgress, WholeProgress
from sluice_transcoder.turns import Turns
from sluice_transcoder.worker import line_of

MARK = "f" * 32
PATIENCE = 1.0


@pytest.fixture
def deps(engine: sa.Engine, redis_url: str, tmp_path: Path) -> Iterator[StageDeps]:
    env = {"SLUICE_DATA_DIR": str(tmp_path), "SLUICE_REDIS_URL": redis_url}
    loaded = settings.load(env)
    storage = open_storage(loaded.store.effective_storage_url)
    with ExitStack() as stack:
        yield make_deps(Actor.TRANSCODE, loaded, stack, engine=engine, storage=storage)


@pytest.fixture
def run(deps: StageDeps) -> Run:
    with write(deps.engine) as c:
        return Run(deps, run_at(c, Actor.TRANSCODE))


def shared(run: Run, count: int, *, patience: float = 3600.0) -> tuple[SharedLine, Run]:
    """A line of so many segments, and one who helps."""
    line = SharedLine(run, helpers=1, patience=patience)
    line.offer(MARK, dict.fromkeys(range(count), 100))
    with write(run.deps.engine) as c:
        row = c.execute(sa.text("SELECT id, job_id, queue, epoch FROM outbox")).one()
        order = OutboxRow(row.id, row.job_id, Actor.HELP, row.queue, row.epoch, 0.0)
        claim = helping.claim(
            c, message=message_of(order), worker="w-2", now=time.time(), attempt_id=new_id()
        )
    assert claim is not None
    return line, Run(run.deps, claim)


def beat(claim: Claim, deps: StageDeps) -> None:
    with write(deps.engine) as c:
        liveness.beat(c, [claim.attempt_id])


def test_what_others_made_is_fetched_and_what_they_are_at_is_waited_for(run: Run) -> None:
    line, helper = shared(run, 4)
    turns = Turns(helper, on_progress=lambda _size: None)
    assert turns.take(MARK) == 0
    assert line.turn() == Turn(1)
    turns.progress(40, 1)
    until(lambda: line.others() == 40)
    line.have(Turn(1), "mine")
    turns.finish("theirs")
    assert turns.take(MARK) == 2
    assert line.turn() == Turn(0, "theirs")
    line.have(Turn(0, "theirs"), "theirs")
    assert line.turn() == Turn(3)
    line.have(Turn(3), None)
    assert line.turn() is None
    turns.finish("theirs too")
    assert line.turn() == Turn(2, "theirs too")


def test_who_gives_no_sign_of_life_is_waited_for_no_longer(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    line, helper = shared(run, 2, patience=PATIENCE)
    turns = Turns(helper, on_progress=lambda _size: None)
    assert turns.take(MARK) == 0
    line.have(Turn(1), None) if line.turn() == Turn(1) else pytest.fail("it was free")
    # No scheduler runs here. While it beats it is waited for, however long.
    for _ in range(10):
        beat(helper.claim, run.deps)
        assert line.turn() is None
        now[0] += PATIENCE / 2
    silent_since, found = now[0], None
    while found is None and now[0] < silent_since + 5 * PATIENCE:
        found = line.turn()
        now[0] += PATIENCE / 10
    assert found == Turn(0)
    assert now[0] - silent_since >= PATIENCE / 2
    # It wakes up late.
    turns.progress(50, 1)
    assert turns.stop() == "stale"
    turns.finish("late")
    line.have(Turn(0), "mine")
    with write(run.deps.engine) as c:
        assert [s.key for s in segments.look(c, run.job.id)] == ["mine", None]


def test_what_is_of_no_use_is_made_again(run: Run) -> None:
    line, helper = shared(run, 2)
    turns = Turns(helper, on_progress=lambda _size: None)
    assert turns.take(MARK) == 0
    turns.finish("broken")
    with write(run.deps.engine) as c:
        helping.end(c, helper.claim, outcome="ok", now=time.time())
    assert line.turn() == Turn(0, "broken")
    line.refuse(Turn(0, "broken"))
    assert line.turn() == Turn(0)
    line.have(Turn(0), "mine")
    assert line.turn() == Turn(1)


def test_without_the_database_it_goes_on_by_itself(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, helper = shared(run, 4)
    assert Turns(helper, on_progress=lambda _size: None).take(MARK) == 0
    assert line.turn() == Turn(1)
    line.have(Turn(1), "mine")

    def away(_engine: sa.Engine) -> None:
        raise StoreAwayError("away")

    with monkeypatch.context() as patch:
        patch.setattr(module, "read", away)
        patch.setattr(module, "write", away)
        for number in (2, 3):
            assert line.turn() == Turn(number)
            line.have(Turn(number), "mine")
        # Somebody was at it when it was last seen.
        assert line.turn() is None
    # Others are told at the next look, not at the next turn.
    monkeypatch.setattr(module, "LOOK_EVERY", 0.0)
    assert line.others() == 0
    with write(run.deps.engine) as c:
        assert [s.done for s in segments.look(c, run.job.id)] == [False, True, True, True]
    assert line.turn() is None


def test_who_is_lost_after_it_was_of_use_is_replaced(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ASK_EVERY", 0.0)
    line, helper = shared(run, 6)
    turns = Turns(helper, on_progress=lambda _size: None)
    assert turns.take(MARK) == 0
    turns.finish("theirs")
    assert turns.take(MARK) == 1
    assert line.turn() == Turn(0, "theirs")
    # One helps already.
    assert waiting(run) == 1
    with write(run.deps.engine) as c:
        liveness.declare_lost(
            c, helper.claim.attempt_id, max_losses=3, sweep_at=0.0, now=time.time()
        )
    line.have(Turn(0, "theirs"), "theirs")
    for number in (1, 2, 3):
        assert line.turn() == Turn(number)
        assert waiting(run) == 2
    with write(run.deps.engine) as c:
        assert len(outbox.of_job(c, run.job.id)) == 1


def waiting(run: Run) -> int:
    return run.deps.broker.waiting(["transcode.bulk"])["transcode.bulk"]


def test_what_nobody_came_for_is_taken_back_from_redis_too(run: Run) -> None:
    line = SharedLine(run, helpers=2)
    line.offer(MARK, dict.fromkeys(range(4), 100))
    assert waiting(run) == 2
    line.withdraw()
    assert waiting(run) == 0
    with write(run.deps.engine) as c:
        assert outbox.of_job(c, run.job.id) == []
        assert segments.look(c, run.job.id) == []


def next_run(run: Run) -> Run:
    """The run that follows one that was lost and got nowhere."""
    with write(run.deps.engine) as c:
        liveness.declare_lost(c, run.claim.attempt_id, max_losses=3, sweep_at=0.0, now=time.time())
        return Run(run.deps, start_run(c, run.job.id))


def test_a_run_that_wakes_late_takes_nothing_back_from_the_next(run: Run) -> None:
    late = SharedLine(run, helpers=2)
    late.offer(MARK, dict.fromkeys(range(4), 100))
    again = next_run(run)
    SharedLine(again, helpers=2).offer(MARK, dict.fromkeys(range(4), 100))
    late.withdraw()
    with write(run.deps.engine) as c:
        assert len(outbox.of_job(c, run.job.id)) == 2
        assert len(segments.look(c, run.job.id)) == 4


WHOLE = Source("22", "muxed", "work/x/download.2/22.muxed.media", 9, "mp4")


def test_help_is_not_asked_for_where_it_is_of_no_use(run: Run) -> None:
    gapped = replace(WHOLE, gap=Gap("muxed", "22", "not_found"))
    assert isinstance(line_of(run, [WHOLE], helpers=2), SharedLine)
    assert type(line_of(run, [WHOLE], helpers=0)) is Line
    assert type(line_of(run, [WHOLE, gapped], helpers=2)) is Line


def test_what_may_bring_workers_down_is_taken_from_earlier_helpers(run: Run) -> None:
    _, helper = shared(run, 4)
    turns = Turns(helper, on_progress=lambda _size: None)
    assert turns.take(MARK) == 0
    assert type(line_of(next_run(run), [WHOLE], helpers=2)) is Line
    turns.progress(50, 1)
    assert turns.stop() == "stale"
    assert turns.take(MARK) is None


def test_percent_never_goes_back_when_a_helper_is_lost() -> None:
    others, seen = [0], list[EncodeProgress]()
    whole = WholeProgress(
        duration=100.0, frames=1000, on_progress=seen.append, others=lambda: others[0]
    )
    whole.begin()
    whole.tell(100, 1)
    others[0] = 300
    whole.tell(150, 1)
    others[0] = 0
    whole.tell(200, 1)
    whole.ended(900, 9)
    whole.tell(0, 9)
    percents = [value.percent for value in seen]
    assert percents == pytest.approx([9.7, 43.6, 43.6, 87.3], abs=0.1)
    assert all(value.speed for value in seen)
