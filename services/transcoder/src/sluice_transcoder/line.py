"""Who encodes which segment: one run alone, or all slots of the pool that have nothing else to do.

The run that owns the job asks its `Line` what to do next, until it has every segment; a slot that
helps asks its `turns.Turns`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from sluice_core.adapters.db import segments
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.outbox import OutboxRow
from sluice_core.domain.beats import BeatWatch
from sluice_core.domain.errors import BrokerAwayError, StoreAwayError
from sluice_core.runtime.publisher import publish_now
from sluice_core.runtime.run import Run, stored

log = structlog.get_logger(__name__)

#: Seconds between looks at what others have done.
LOOK_EVERY = 1.0
#: Seconds between looks whether somebody who helped is to be replaced.
ASK_EVERY = 5.0
#: Seconds, as the scheduler's.
PATIENCE = 15.0
#: So many times the seconds after which an ffmpeg is stalled: whoever got no picture further by
#: then, although he lives, is waited for no longer.
PATIENCES = 2


@dataclass(frozen=True, slots=True)
class Turn:
    """What to do next: encode a segment, or fetch what somebody else made of it."""

    number: int
    key: str | None = None


class Line:
    """One run alone: one segment after another."""

    def __init__(self) -> None:
        self._left: dict[int, int] = {}

    def offer(self, fingerprint: str, missing: Mapping[int, int]) -> None:
        """These are to be made: number -> pictures. Called once, before everything else."""
        del fingerprint
        self._left = dict(missing)

    def turn(self) -> Turn | None:
        """What to do next; None while others are at all that is left."""
        return Turn(min(self._left))

    def have(self, turn: Turn, key: str | None) -> None:
        """A segment is here, and stored under a key, unless it could not be."""
        del key
        self._left.pop(turn.number, None)

    def refuse(self, turn: Turn) -> None:
        """What somebody else made is of no use."""
        raise NotImplementedError(turn)

    def others(self) -> int:
        """Pictures that others have encoded of what is not here."""
        return 0

    def withdraw(self) -> None:
        """Nothing of it is wanted any more."""


class SharedLine(Line):
    """The line of a run that asks for help.

    While the database is away it goes on by itself, with what nobody was at when it was last seen.
    What is then encoded twice is worth as much once.

    Args:
        run: the job's own.
        helpers: slots that may help at once.
        patience: seconds that the beat of whoever holds a segment may stand still.

    """

    def __init__(self, run: Run, *, helpers: int, patience: float = PATIENCE) -> None:
        super().__init__()
        self._run = run
        self._helpers = helpers
        self._me = run.claim.attempt_id
        self._mark = ""
        self._rows: dict[int, segments.Shared] = {}
        self._looked_at = 0.0
        self._asked_at = 0.0
        self._beats = BeatWatch(patience=patience)
        self._pictures = BeatWatch(patience=PATIENCES * run.deps.limits.stall_timeout)
        #: (number, holder) of those that are waited for no longer.
        self._lost: set[tuple[int, str | None]] = set()
        #: Number -> key of those that were made while nobody could be told.
        self._untold: dict[int, str | None] = {}
        #: Numbers of which what others made is of no use.
        self._refused: set[int] = set()

    def offer(self, fingerprint: str, missing: Mapping[int, int]) -> None:
        super().offer(fingerprint, missing)
        self._mark = fingerprint
        now = self._run.deps.clock()
        rows = stored(
            self._run.deps,
            lambda connection: segments.offer(
                connection,
                self._run.claim,
                fingerprint=fingerprint,
                missing=missing,
                helpers=self._helpers,
                now=now,
            ),
        )
        self._asked(rows, now)
        self._look()

    def _asked(self, orders: list[OutboxRow], now: float) -> None:
        self._asked_at = time.monotonic()
        publish_now(self._run.deps.broker, orders, now=now)
        if orders:
            log.info("help_asked", slots=len(orders), segments=len(self._left))

    def turn(self) -> Turn | None:
        for refused in self._refused & self._left.keys():
            return Turn(refused)
        if not self._look():
            return self._unasked()
        for number, row in self._rows.items():
            if number in self._left and row.done and row.key is not None:
                return Turn(number, row.key)
        try:
            taken = self._take()
        except StoreAwayError:
            return self._unasked()
        return self._of_lost_ones() if taken is None else Turn(taken)

    def _take(self) -> int | None:
        while True:
            with write(self._run.deps.engine) as connection:
                number = segments.take(
                    connection, self._run.job.id, self._me, fingerprint=self._mark
                )
            if number is None or number in self._left:
                return number
            # Made while the database was away.
            self._finish(number, None)

    def _unasked(self) -> Turn | None:
        free = (n for n in self._left if n not in self._rows or not self._is_at(self._rows[n]))
        number = min(free, default=None)
        return None if number is None else Turn(number)

    def _is_at(self, row: segments.Shared) -> bool:
        """Whether somebody else has it, or is at it."""
        return row.done or (row.held and row.holder != self._me)

    def _of_lost_ones(self) -> Turn | None:
        for number in self._left:
            row = self._rows.get(number)
            if row is None:
                # Nobody shares it any more.
                return Turn(number)
            if (number, row.holder) in self._lost and self._take_back(row):
                log.warning("segment_taken_back", number=number, holder=row.holder)
                return Turn(number)
        return None

    def _take_back(self, row: segments.Shared) -> bool:
        try:
            with write(self._run.deps.engine) as connection:
                return segments.take_back(
                    connection,
                    self._run.job.id,
                    row.number,
                    holder=row.holder,
                    attempt_id=self._me,
                )
        except StoreAwayError:
            return False

    def have(self, turn: Turn, key: str | None) -> None:
        super().have(turn, key)
        if turn.key is not None:
            return
        try:
            told = self._finish(turn.number, key)
        except StoreAwayError:
            # Whoever makes it again harms nobody.
            self._run.deps.running.note_store(away=True)
            told = False
        if not told:
            self._untold[turn.number] = key

    def _finish(self, number: int, key: str | None) -> bool:
        with write(self._run.deps.engine) as connection:
            return segments.finish(
                connection, self._run.job.id, number, attempt_id=self._me, key=key
            )

    def _tell(self) -> None:
        """What was made while the database was away, before somebody else begins it."""
        untold, self._untold = self._untold, {}
        for number, key in untold.items():
            row = self._rows.get(number)
            if row is not None and not self._is_at(row) and self._take_back(row):
                self._finish(number, key)

    def refuse(self, turn: Turn) -> None:
        self._refused.add(turn.number)
        self._take_back(self._rows[turn.number])

    def others(self) -> int:
        if time.monotonic() - self._looked_at >= LOOK_EVERY:
            self._look()
        rows = (self._rows[n] for n in self._left if n in self._rows)
        return sum(row.encoded for row in rows if self._is_at(row))

    def withdraw(self) -> None:
        deps = self._run.deps
        try:
            with write(deps.engine) as connection:
                orders = segments.withdraw_by(connection, self._run.claim)
            for order in orders:
                # Where all slots are busy nobody would come by and drop them.
                deps.broker.remove(*order)
        except StoreAwayError:
            # The end of the job does the same.
            deps.running.note_store(away=True)
        except BrokerAwayError as exc:
            log.debug("orders_left", reason=str(exc))

    def _look(self) -> bool:
        self._looked_at = time.monotonic()
        try:
            with read(self._run.deps.engine) as connection:
                rows = segments.look(connection, self._run.job.id)
            self._rows = {row.number: row for row in rows}
            self._tell()
            if self._looked_at - self._asked_at >= ASK_EVERY:
                self._ask_anew()
        except StoreAwayError:
            self._run.deps.running.note_store(away=True)
            self._beats.failed()
            self._pictures.failed()
            return False
        self._watch([row for row in rows if self._is_at(row) and not row.done])
        return True

    def _ask_anew(self) -> None:
        """Fill the places of those who helped and are gone."""
        run, helpers = self._run, self._helpers
        self._asked_at, now = time.monotonic(), run.deps.clock()
        with read(run.deps.engine) as connection:
            if segments.places(connection, run.job, helpers=helpers) < 1:
                return
        with write(run.deps.engine) as connection:
            orders = segments.offer_places(connection, run.claim, helpers=helpers, now=now)
        self._asked(orders, now)

    def _watch(self, held: list[segments.Shared]) -> None:
        """Whoever gives no sign of life, or gets no further, is waited for no longer."""
        now = time.monotonic()
        at = {f"{row.number}/{row.holder}": row for row in held}
        silent = set(self._beats.observe([(name, row.beat) for name, row in at.items()], now))
        still = set(self._pictures.observe([(n, row.encoded) for n, row in at.items()], now))
        self._lost |= {(at[n].number, at[n].holder) for n in silent | still}
