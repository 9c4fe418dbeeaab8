"""What must be true once the faults are over and every job has ended."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.binaries import ffmpeg_tools
from sluice_core.adapters.db.engine import read
from sluice_core.adapters.db.schema import artifacts, attempts, callbacks, jobs, outbox, segments
from sluice_core.adapters.storage import Storage
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import ACTIVE
from sluice_testing.encodes import streams
from sluice_testing.site import SampleSite
from tests.chaos.clients import GONE, Order
from tests.chaos.links import Link

Rows = list[Mapping[str, Any]]
#: What a lost worker may cost, and what the kernel's buffers take beyond what a reader wanted.
PIECE = 16 * 1024 * 1024
HELP = Actor.HELP.value
#: Seconds by which the result of adaptive media may differ.
SLACK = 0.5


@dataclass(frozen=True, slots=True)
class Picture:
    """The database as it is in the end."""

    jobs: Rows
    attempts: Rows
    outbox: Rows
    artifacts: Rows
    callbacks: Rows
    segments: Rows

    @classmethod
    def take(cls, engine: sa.Engine) -> Picture:
        with read(engine) as connection:
            tables = (jobs, attempts, outbox, artifacts, callbacks, segments)
            return cls(*([*connection.execute(sa.select(t)).mappings()] for t in tables))

    def active(self) -> Rows:
        return [job for job in self.jobs if job["status"] in ACTIVE]

    def latest(self, since: float, count: int = 5) -> list[str]:
        """How the jobs went that ended last; times are relative to `since`."""
        ended = [job for job in self.jobs if job["finished_at"]]
        ended.sort(key=lambda job: -job["finished_at"])
        return [f"{job['url'][-60:]}: {self._course(job, since)}" for job in ended[:count]]

    def _course(self, job: Mapping[str, Any], since: float) -> str:
        return ", ".join(
            f"{row['stage']} {row['claimed_at'] - since:.0f}…{(row['ended_at'] or 0) - since:.0f}"
            f" {row['error_code'] or row['outcome']}"
            for row in self.attempts_of(job["id"])
        )

    def attempts_of(self, job_id: str) -> Rows:
        """The job's own runs in order; slots that helped with one are none."""
        own = [row for row in self.attempts if row["job_id"] == job_id and row["stage"] != HELP]
        return sorted(own, key=lambda row: row["epoch"])


class Verdict:
    """Compares what is with what should be; each method yields one line per fault."""

    def __init__(
        self,
        picture: Picture,
        todo: Sequence[Order],
        site: SampleSite,
        storage: Storage,
        scratch: Path,
    ) -> None:
        self._picture = picture
        self._todo = todo
        self._site = site
        self._storage = storage
        self._scratch = scratch
        #: Not among those of runs, which workers sweep.
        self._look = scratch.parent / "look"
        self._by_id = {job["id"]: job for job in picture.jobs}
        self._files: dict[str, Rows] = defaultdict(list)
        for row in picture.artifacts:
            self._files[row["job_id"]].append(row)
        self._children: dict[str, Rows] = defaultdict(list)
        for job in picture.jobs:
            if job["parent_id"]:
                self._children[job["parent_id"]].append(job)

    def states(self) -> Iterator[str]:
        """Every job ends as its input deserves."""
        for order in self._todo:
            job = self._by_id.get(order.job_id)
            if order.fates == {GONE}:
                if job is not None:
                    yield f"{order.job_id} ({order.link.kind}) was deleted and is still there"
            elif job is None:
                yield f"{order.job_id} ({order.link.kind}) is not there"
            else:
                yield from self._state(job, order.link, order.fates)
                yield from self._family(job, order)

    def _state(self, job: Mapping[str, Any], link: Link, fates: set[str]) -> Iterator[str]:
        if job["status"] not in fates:
            error = f"{job['error_code']}: {job['error_message']}"
            yield f"{job['id']} ({link.kind}) is {job['status']}, not {sorted(fates)}; {error}"
        elif job["status"] == "FAILED" and job["error_code"] != link.code:
            yield f"{job['id']} ({link.kind}) failed with {job['error_code']}, not {link.code}"

    def _family(self, job: Mapping[str, Any], order: Order) -> Iterator[str]:
        found = self._entries(job["id"])
        canceled = job["status"] == "CANCELED"
        for number, link in enumerate(order.link.children, 1):
            child = found.pop(number, None)
            if child is not None:
                fates = {link.status} | ({"CANCELED"} if canceled else set())
                yield from self._state(child, link, fates)
            elif not canceled:
                yield f"{job['id']} lacks its child {link.path}"
        yield from (f"{job['id']} has a child too many: {number}" for number in found)
        if len(self._children[job["id"]]) > len(order.link.children):
            yield f"{job['id']} has {len(self._children[job['id']])} children"

    def doubles(self) -> Iterator[str]:
        """No job that nobody asked for; no stage done twice, no two runs of a job at once."""
        roots = {job["id"] for job in self._picture.jobs if not job["parent_id"]}
        asked = {order.job_id for order in self._todo}
        yield from (f"nobody asked for {job_id}" for job_id in sorted(roots - asked))
        if len(asked) != len(self._todo):
            yield f"{len(self._todo)} orders share {len(asked)} jobs"
        moved = {order.job_id for order in self._todo if order.moved}
        for job in self._picture.jobs:
            rows = self._picture.attempts_of(job["id"])
            for before, after in pairwise(rows):
                if before["ended_at"] is None or before["ended_at"] > after["claimed_at"]:
                    yield f"{job['id']}: run {after['epoch']} began before the last one had ended"
            if job["id"] in moved or job["parent_id"] in moved:
                continue
            done = Counter(row["stage"] for row in rows if row["outcome"] == "ok")
            yield from (f"{job['id']}: {s} was done {n} times" for s, n in done.items() if n > 1)

    def files(self) -> Iterator[str]:
        """One artifact set per finished job, whole and right; nothing else in storage."""
        keys = {row["key"] for row in self._picture.artifacts}
        stored = {*self._storage.keys("work/"), *self._storage.keys("files/")}
        yield from (f"in storage without need: {key}" for key in sorted(stored - keys))
        yield from (f"not in storage: {key}" for key in sorted(keys - stored))
        yield from (f"half put: {put.key} {put.handle}" for put in self._storage.unfinished())
        for job, link in self._singles():
            rows = self._files[job["id"]]
            if len(rows) != (job["status"] == "SUCCESS"):
                yield f"{job['id']} is {job['status']} and has {len(rows)} files"
            for row in rows:
                if row["key"] in stored:
                    with self._storage.local(row["key"], self._look) as file:
                        yield from self._file(job["id"], link, file, row["sha256"])

    def _file(self, job_id: str, link: Link, file: Path, told: str) -> Iterator[str]:
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        if digest != told:
            yield f"{job_id}: the file is not the one that was told"
        if link.verbatim and digest != self._site.sha256(link.source):
            yield f"{job_id} ({link.kind}): the bytes are not those of the site"
        if link.duration is not None:
            seconds = _duration(file)
            if abs(seconds - link.duration) > SLACK:
                yield f"{job_id} ({link.kind}): {seconds} s long, not {link.duration}"
        if link.frames is not None:
            frames = int(streams(file)["video"]["nb_read_packets"])
            if frames != link.frames:
                yield f"{job_id} ({link.kind}): {frames} pictures, not {link.frames}"

    def _singles(self) -> Iterator[tuple[Mapping[str, Any], Link]]:
        """Jobs that are no collections, with their links."""
        for order in self._todo:
            job = self._by_id.get(order.job_id)
            if job is None:
                continue
            if not order.link.children:
                yield job, order.link
            entries = self._entries(job["id"])
            for number, link in enumerate(order.link.children, 1):
                if number in entries:
                    yield entries[number], link

    def _entries(self, parent_id: str) -> dict[int, Mapping[str, Any]]:
        """Children of a collection by their place in it, from 1."""
        return {child["entry"]["index"]: child for child in self._children[parent_id]}

    def leftovers(self) -> Iterator[str]:
        """No open claim, no order, no scratch folder."""
        picture = self._picture
        yield from (f"still {job['status']}: {job['id']} {job['url']}" for job in picture.active())
        for row in picture.attempts:
            if row["ended_at"] is None:
                yield f"open run {row['stage']} {row['epoch']} of {row['job_id']}"
            if row["job_id"] not in self._by_id:
                yield f"run of a job that is gone: {row['job_id']}"
        shared = Counter(row["job_id"] for row in picture.segments)
        yield from (f"{n} segments are shared of {job_id}" for job_id, n in shared.items())
        yield from (f"in the outbox: {row['actor']} of {row['job_id']}" for row in picture.outbox)
        yield from (f"in scratch: {path.name}" for path in sorted(self._scratch.iterdir()))

    def refetched(self) -> tuple[int, list[str]]:
        """Bytes that the site sent beyond each file's size, and jobs that cost too many."""
        total, wrong = 0, []
        for job, link in self._singles():
            if link.duration is not None or job["status"] != "SUCCESS":
                continue
            again = max(0, self._site.stats(link.source).bytes - self._site.size(link.source))
            total += again
            runs = [r for r in self._picture.attempts_of(job["id"]) if r["stage"] != "transcode"]
            if again > PIECE * max(1, len(runs) - 1):
                wrong.append(f"{job['id']} ({link.kind}): {again} bytes again in {len(runs)} runs")
        return total, wrong


def _duration(file: Path) -> float:
    argv = [str(ffmpeg_tools().ffprobe), "-v", "error", "-of", "json", "-show_format", str(file)]
    done = subprocess.run(argv, capture_output=True, check=True, timeout=60)
    return float(json.loads(done.stdout)["format"]["duration"])
