"""What is broken: one fault every few seconds, from a seeded list, each undone after its time."""

from __future__ import annotations

import heapq
import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from random import Random

import psutil
import redis

from sluice_testing.site import SampleSite
from sluice_testing.system import PARTS, System
from tests.chaos.pod import Pod
from tests.chaos.storages import Shelf
from tests.chaos.stores import Database, Redis, Undo
from tests.chaos.strays import OUTLIVE, Orphans, still_there

#: Seconds between two faults.
PAUSE = (1.0, 4.0)
#: Seconds between two looks at all processes, which cost the site time that it needs itself.
LOOK_EVERY = 1.0
#: Processes that may be frozen at the same time.
MAX_FROZEN = 2
WORKERS = ("parser", "downloader", "transcoder", "scheduler", "api")

DRAIN = "SIGTERM to a worker"

#: Seconds until it is undone, and how; None when the fault could not be made now.
Made = tuple[float, Undo] | None


def _nothing() -> None:
    """Of a fault that needs no undoing."""


class Faults:
    """Breaks one system.

    Args:
        longest: seconds that a process stays frozen at most.
        outage: seconds that storage, database or Redis are away at most.

    """

    def __init__(
        self,
        system: System,
        pod: Pod,
        site: SampleSite,
        database: Database,
        shelf: Shelf,
        *,
        rng: Random,
        longest: float,
        outage: float,
    ) -> None:
        self._system = system
        self.pod = pod
        self._site = site
        self._database = database
        self._shelf = shelf
        self._redis = Redis(system.data)
        self._rng = rng
        self._longest = longest
        self._outage = outage
        self._numbers = itertools.count()
        #: (monotonic time, number, name, undo), the next one first.
        self._undo: list[tuple[float, int, str, Undo]] = []
        self._frozen: set[psutil.Process] = set()
        self._began = time.monotonic()
        self.counts: Counter[str] = Counter()
        #: Kills and ends of processes, each of which may cost a piece of a download.
        self.kills = 0
        self.orphans = Orphans()
        #: Every process that was ever seen.
        self.seen: set[psutil.Process] = set()

    def run(
        self,
        seconds: float,
        say: Callable[[str], None],
        *,
        only: Collection[str] | None = None,
        pause: tuple[float, float] = PAUSE,
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Break things for so long, or until it is enough; everything is undone on return."""
        chosen = {name: FAULTS[name] for name in (FAULTS if only is None else only)}
        end = time.monotonic() + seconds
        due = look = time.monotonic()
        try:
            while time.monotonic() < end and not enough():
                self.undo_due()
                self.orphans.look()
                self.pod.keep_up()
                if time.monotonic() >= look:
                    self.seen.update(self._family(), self.pod.family())
                    look = time.monotonic() + LOOK_EVERY
                if chosen and time.monotonic() >= due:
                    self._one(chosen, say)
                    due = time.monotonic() + self._rng.uniform(*pause)
                time.sleep(0.1)
        finally:
            self.undo_due(everything=True)

    def undo_due(self, *, everything: bool = False) -> None:
        """Undo what has lasted long enough."""
        while self._undo and (everything or self._undo[0][0] <= time.monotonic()):
            heapq.heappop(self._undo)[3]()

    def _one(self, chosen: Mapping[str, Fault], say: Callable[[str], None]) -> None:
        [name] = self._rng.choices(list(chosen), [weight for weight, _ in chosen.values()])
        made = chosen[name][1](self)
        if made is None:
            self.counts[f"{name} (not possible)"] += 1
            return
        seconds, undo = made
        self.counts[name] += 1
        say(f"{time.monotonic() - self._began:6.1f} s  {name}  {seconds or ''}")
        if undo is not _nothing:
            entry = (time.monotonic() + seconds, next(self._numbers), name, undo)
            heapq.heappush(self._undo, entry)

    def _is_away(self) -> bool:
        """Whether a store is broken: one at a time is enough."""
        return any(name in OUTAGES for _, _, name, _ in self._undo)

    # -- processes -------------------------------------------------------------------------------

    def _family(self) -> list[psutil.Process]:
        with suppress(psutil.Error):
            return self._system.family()
        return []

    def _part(self, name: str) -> psutil.Process | None:
        for process in self._family()[1:]:
            with suppress(psutil.Error):
                is_part = any(PARTS[name] in word for word in process.cmdline())
                if is_part and process.ppid() == self._system.pid:
                    return process
        return None

    def _media_children(self, *names: str) -> Iterator[psutil.Process]:
        """Processes below workers that do media work, fork servers included."""
        for name in names:
            part = self._part(name)
            with suppress(psutil.Error):
                yield from part.children(recursive=True) if part else ()

    def _kill(self, process: psutil.Process | None) -> Made:
        if process is None:
            return None
        self.kills += 1
        self.orphans.kill(process)
        return 0.0, _nothing

    def _any_of(self, found: Iterator[psutil.Process]) -> psutil.Process | None:
        ordered = sorted(found, key=lambda process: process.pid)
        return self._rng.choice(ordered) if ordered else None

    def kill_part(self) -> Made:
        return self._kill(self._part(self._rng.choice(WORKERS)))

    def kill_pod(self) -> Made:
        return self._kill(self.pod.process)

    def kill_downloader(self) -> Made:
        return self._kill(self._part("downloader"))

    def kill_child(self) -> Made:
        return self._kill(self._any_of(self._media_children("parser", "downloader")))

    def kill_ffmpeg(self) -> Made:
        return self._kill(self._any_of(self._media_children("transcoder")))

    def kill_any(self) -> Made:
        return self._kill(self._any_of(iter(self._family()[1:])))

    def power_cut(self) -> Made:
        """The supervisor dies, and everything with it; somebody starts it again."""
        self.undo_due(everything=True)
        self.kills += 4
        family = self._family()
        os.kill(self._system.pid, signal.SIGKILL)
        self.orphans.outlived += still_there(family, seconds=OUTLIVE)
        self._system.start()
        return 0.0, _nothing

    def drain(self) -> Made:
        """As a rolling update does."""
        busy = [name for name in ("downloader", "transcoder", "parser") if self._is_busy(name)]
        process = self._part(self._rng.choice(busy)) if busy else None
        if process is None:
            return None
        self.kills += 1
        with suppress(psutil.NoSuchProcess):
            process.terminate()
        return 0.0, _nothing

    def _is_busy(self, name: str) -> bool:
        """Whether it has more children than the one that starts the others."""
        return len(list(self._media_children(name))) > 1

    def freeze_part(self) -> Made:
        return self._freeze(self._part(self._rng.choice(WORKERS)))

    def freeze_child(self) -> Made:
        return self._freeze(self._any_of(self._media_children("downloader", "transcoder")))

    def _freeze(self, process: psutil.Process | None) -> Made:
        self._frozen = {p for p in self._frozen if p.is_running()}
        if process is None or len(self._frozen) >= MAX_FROZEN or process in self._frozen:
            return None
        try:
            process.suspend()
        except psutil.NoSuchProcess:
            return None
        self._frozen.add(process)
        # It may be given up and killed meanwhile, which costs no more than a kill.
        self.kills += 1

        def thaw() -> None:
            self._frozen.discard(process)
            with suppress(psutil.NoSuchProcess):
                process.resume()

        return round(self._rng.uniform(2.0, self._longest), 1), thaw

    # -- stores ----------------------------------------------------------------------------------

    def kill_redis(self) -> Made:
        process = self._part("redis")
        if process is None or self._is_away():
            return None
        with suppress(psutil.NoSuchProcess):
            process.kill()
        return 0.0, _nothing

    def flush_redis(self) -> Made:
        try:
            self._redis.flush()
        except (redis.RedisError, ValueError):
            return None
        return 0.0, _nothing

    def stall_redis(self) -> Made:
        process = self._part("redis")
        if process is None or self._is_away():
            return None
        made = self._freeze(process)
        return made and (self._time_away(20.0), made[1])

    def fill_redis(self) -> Made:
        if self._is_away():
            return None
        try:
            undo = self._redis.fill()
        except (redis.RedisError, ValueError):
            return None

        def free() -> None:
            # One that was killed meanwhile starts with what it had.
            with suppress(redis.RedisError, ValueError):
                undo()

        return self._time_away(10.0), free

    def database_away(self) -> Made:
        if self._is_away():
            return None
        return self._time_away(10.0), self._database.take_away()

    def refuse_storage(self) -> Made:
        if self._is_away():
            return None
        return self._time_away(10.0), self._shelf.take_away()

    def cut_connections(self) -> Made:
        self.kills += 1
        return (0.0, _nothing) if self._site.cut() else None

    def _time_away(self, most: float) -> float:
        return round(min(self._outage, most) * self._rng.uniform(0.5, 1.0), 1)


Fault = tuple[int, Callable[[Faults], Made]]
#: Name -> weight and what does it.
FAULTS: dict[str, Fault] = {
    "kill -9 of a part": (10, Faults.kill_part),
    "kill -9 of the second transcoder": (4, Faults.kill_pod),
    "kill -9 of the downloader": (6, Faults.kill_downloader),
    "kill -9 of a media child": (8, Faults.kill_child),
    "kill -9 of ffmpeg or beside it": (6, Faults.kill_ffmpeg),
    "kill -9 of any process": (5, Faults.kill_any),
    "kill -9 of the supervisor": (1, Faults.power_cut),
    DRAIN: (10, Faults.drain),
    "SIGSTOP of a part": (5, Faults.freeze_part),
    "SIGSTOP of a child": (4, Faults.freeze_child),
    "Redis killed": (3, Faults.kill_redis),
    "Redis emptied": (4, Faults.flush_redis),
    "Redis stalled": (2, Faults.stall_redis),
    "Redis full": (2, Faults.fill_redis),
    "database away": (3, Faults.database_away),
    "storage refused": (3, Faults.refuse_storage),
    "connections of the site cut": (3, Faults.cut_connections),
}
OUTAGES = {"Redis stalled", "Redis full", "database away", "storage refused"}
