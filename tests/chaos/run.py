"""One chaos run from start to verdict."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psutil
import sqlalchemy as sa

from sluice_core.adapters.db.engine import open_engine
from sluice_core.domain.errors import StoreAwayError
from sluice_testing.encodes import write_presets
from sluice_testing.process import free_port
from sluice_testing.site import SampleSite
from sluice_testing.system import System
from tests.chaos import links
from tests.chaos.clients import Clients, Order, orders
from tests.chaos.faults import DRAIN, Faults
from tests.chaos.pod import Pod
from tests.chaos.points import DRAINED, NOT_IN_A_FOLDER, Points
from tests.chaos.storages import Shelf, open_shelf
from tests.chaos.stores import Database, Redis, open_database
from tests.chaos.strays import still_there, strays
from tests.chaos.verdict import PIECE, Picture, Verdict

#: What a run sets, and why; printed with its result.
SETTINGS = {
    # Faults of stores count as tries; the jobs are not to blame.
    "SLUICE_MAX_TRIES": "8",
    # As do killed workers, which quarantine a job on purpose.
    "SLUICE_LONE_LOSSES": "20",
    # So that drains end in handing back, and silent servers are noticed within the run.
    "SLUICE_DRAIN_GRACE": "0.3",
    "SLUICE_DOWNLOAD_STALL_TIMEOUT": "10",
    # The site is slow on purpose; what then waits must not outlast the run.
    "SLUICE_DOWNLOAD_CONCURRENCY": "8",
    # It has four hosts; this keeps some jobs waiting for theirs, and not all of them.
    "SLUICE_HOST_CONCURRENCY": "6",
    # Workers also retire by themselves; messages that wait for a host count, too.
    "SLUICE_MAX_TASKS": "150",
    # So that an encode of a minute is cut into ten, of which other slots may encode some.
    "SLUICE_SEGMENT_SECONDS": "6",
    "SLUICE_TRANSCODE_CONCURRENCY": "2",
    # What failed jobs leave for a retry by hand must be gone in the end.
    "SLUICE_RETENTION_PARTIAL": "5",
}
#: Part of the run in which jobs come in; the rest must do for what then waits.
SUBMITTING = 0.6
#: Seconds that sweepers get after the last job has ended; locks of the killed last a minute.
SWEEP = 90.0
#: Seconds that failpoints get at least which were not met yet when all else is over.
PEACE = 120.0
#: Seconds between two drains meanwhile: longer than a worker takes to start and get busy.
PEACE_PAUSE = (6.0, 10.0)


@dataclass(frozen=True, slots=True)
class Options:
    """What to do."""

    #: `sqlite` or `postgresql`.
    database: str
    #: `folder` or `s3`.
    storage: str
    seed: int
    jobs: int
    minutes: float
    #: Seconds from the last fault until every job must have ended.
    patience: float
    #: How often each failpoint must kill at least.
    kills: int
    #: Whether locks of the killed, which last a minute, are waited for.
    locks: bool = True

    @property
    def seconds(self) -> float:
        return self.minutes * 60


class Run:
    """Starts everything, breaks it, counts."""

    def __init__(self, options: Options, folder: Path, say: Callable[[str], None]) -> None:
        self._options = options
        self._data = folder / "data"
        self._pod_log = folder / "pod.log"
        self._shelf_folder = folder / "shelf"
        self._points = Points(
            folder / "hits",
            share=options.jobs / 200,
            least=options.kills,
            without=NOT_IN_A_FOLDER if options.storage == "folder" else frozenset(),
        )
        self._say = say
        self._fine = True

    def __call__(self) -> bool:
        """Whether all went well."""
        self._data.mkdir(parents=True)
        with (
            SampleSite(hosts=links.HOSTS) as site,
            open_database(self._options.database, self._data) as database,
            open_shelf(self._options.storage, self._shelf_folder) as shelf,
        ):
            site.prepare()
            for path, rule in links.RULES.items():
                site.control(path, **rule)
            system = System(self._data, self._environment(site, database.url, shelf.url))
            system.start()
            faults = self._faults(system, site, database, shelf)
            engine = open_engine(database.url, patience=30.0)
            try:
                self._break(system, site, faults, engine, shelf)
            finally:
                engine.dispose()
                faults.seen.update(_family(system), faults.pod.family())
                faults.pod.scale_away()
                status = system.stop()
            self._check("ended with status 0", [f"it ended with {status}"] if status else [])
            self._check("no process left", still_there(faults.seen, seconds=10.0))
        return self._fine

    def _environment(self, site: SampleSite, database: str, storage: str) -> dict[str, str]:
        bases = [site.url("", host=number) for number in range(len(links.HOSTS))]
        return {
            **SETTINGS,
            "SLUICE_EGRESS_ALLOW": ",".join(base.removeprefix("http://") for base in bases),
            "SLUICE_DATABASE_URL": database,
            "SLUICE_STORAGE_URL": storage,
            "SLUICE_HTTP_PORT": str(free_port()),
            "SLUICE_PRESETS_FILE": str(write_presets(self._data)),
            "SLUICE_FAILPOINTS": self._points.rules,
            "SLUICE_FAILPOINTS_LOG": str(self._points.log),
        }

    def _faults(self, system: System, site: SampleSite, database: Database, shelf: Shelf) -> Faults:
        seconds = self._options.seconds
        return Faults(
            system,
            Pod(system, self._pod_log),
            site,
            database,
            shelf,
            rng=Random(f"faults {self._options.seed}"),
            longest=min(45.0, seconds / 4),
            outage=min(20.0, seconds / 6),
        )

    def _break(
        self, system: System, site: SampleSite, faults: Faults, engine: sa.Engine, shelf: Shelf
    ) -> None:
        options = self._options
        rng = Random(f"links {options.seed}")
        wanted = links.plan(options.jobs, rng)
        urls = [site.url(link.path, host=rng.randrange(len(links.HOSTS))) for link in wanted]
        todo = orders(wanted, urls, seconds=options.seconds * SUBMITTING, rng=rng)
        clients = Clients(system.url, todo)
        clients.start()
        try:
            faults.run(options.seconds, self._say)
            # Then in peace but for what leads there, until each failpoint was met or it is late.
            peace = max(PEACE, options.seconds)
            faults.run(
                peace,
                self._say,
                only=[DRAIN],
                pause=PEACE_PAUSE,
                enough=lambda: DRAINED not in self._missed(),
            )
            faults.run(peace, self._say, only=[], enough=lambda: not self._missed())
            hits = self._points.silence()
            last, last_at = time.monotonic(), time.time()
            faults.pod.scale_away()
            clients.finish()
            picture = self._settle(system, engine, shelf, last)
        except BaseException:
            clients.abort()
            raise
        self._check_all(picture, todo, site, faults, shelf)
        self._check("no child left", strays(system))
        self._check("no media child outlived its parent", faults.orphans.outlived)
        self._check("clients got right answers", clients.wrong)
        self._check(f"each failpoint killed {options.kills} times", self._missed(hits).values())
        self._tell(picture, clients, faults, hits)
        self._say("last to end, runs in seconds after the last fault:")
        for line in picture.latest(last_at):
            self._say(f"        {line}")

    def _missed(self, hits: Counter[str] | None = None) -> dict[str, str]:
        now = self._points.hits() if hits is None else hits
        return self._points.missed(now)

    def _left_in_redis(self) -> list[str]:
        return Redis(self._data).left(locks=self._options.locks)

    def _settle(self, system: System, engine: sa.Engine, shelf: Shelf, last: float) -> Picture:
        """Wait until all is over: first the jobs, then what sweepers have to do."""
        picture = _until(engine, lambda p: not p.active(), last + self._options.patience)
        seconds = time.monotonic() - last
        late = [f"still {job['status']}: {job['id']} {job['url']}" for job in picture.active()]
        self._check(f"all jobs ended, {seconds:.0f} s after the last fault", late)
        scratch = self._data / "scratch"

        def is_swept(picture: Picture) -> bool:
            rows = picture.outbox or any(job["sweep_at"] for job in picture.jobs)
            files = any(scratch.iterdir()) or any(shelf.storage.unfinished())
            return not (rows or files or self._left_in_redis() or strays(system))

        return _until(engine, is_swept, time.monotonic() + SWEEP)

    def _check_all(
        self,
        picture: Picture,
        todo: list[Order],
        site: SampleSite,
        faults: Faults,
        shelf: Shelf,
    ) -> None:
        verdict = Verdict(picture, todo, site, shelf.storage, self._data / "scratch")
        self._check("jobs end as they deserve", verdict.states())
        self._check("nothing twice", verdict.doubles())
        self._check("files right, once", verdict.files())
        self._check("nothing left", verdict.leftovers())
        self._check("Redis empty", self._left_in_redis())
        total, wrong = verdict.refetched()
        if total > PIECE * max(1, faults.kills):
            wrong.append("more than 16 MiB per kill in all")
        self._check(f"fetched again: {total / 2**20:.1f} MiB in {faults.kills} kills", wrong)

    def _check(self, name: str, found: Iterable[str]) -> None:
        lines = list(found)
        self._say(f"{'ok  ' if not lines else 'FAIL'}  {name}")
        for line in lines[:20]:
            self._say(f"        {line}")
        self._fine = self._fine and not lines

    def _tell(self, picture: Picture, clients: Clients, faults: Faults, hits: Counter[str]) -> None:
        said = _events(self._data / "test.log") + _events(self._pod_log)
        dead = ("run_stale", "message_dropped", "worker_lost", "job_lost_alone", "run_crashed")
        self._say(f"settings: {SETTINGS}")
        self._say(f"faults: {dict(faults.counts)}")
        self._say(f"failpoints (passes): {dict(hits)}")
        self._say(f"failpoints (kills): {dict(self._points.kills(hits))}")
        self._say(f"jobs: {dict(Counter(j['status'] for j in picture.jobs))}")
        self._say(f"runs: {dict(Counter(r['outcome'] for r in picture.attempts))}")
        self._say(f"errors: {dict(Counter(r['error_code'] for r in picture.attempts))}")
        self._say(f"clients: {dict(clients.answers)}")
        self._say(f"refused and noticed: { {name: said[name] for name in dead} }")
        odd = {n: c for n, c in said.items() if n.endswith("_failed") or n.startswith("Traceback")}
        self._say(f"unexpected words in the log: {odd}")


def _until(engine: sa.Engine, done: Callable[[Picture], bool], deadline: float) -> Picture:
    """The first picture that is as wanted, or the last one before the deadline."""
    while True:
        try:
            picture = Picture.take(engine)
            if done(picture) or time.monotonic() > deadline:
                return picture
        except StoreAwayError:
            if time.monotonic() > deadline:
                raise
        time.sleep(1.0)


def _events(log: Path) -> Counter[str]:
    """What was said how often."""
    found: Counter[str] = Counter()
    if not log.exists():
        return found
    with log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                found[str(json.loads(line).get("event"))] += 1
            except (ValueError, AttributeError):
                found[line.strip()[:60]] += 1
    return found


def _family(system: System) -> list[psutil.Process]:
    try:
        return system.family()
    except psutil.NoSuchProcess:
        return []
