"""What the hub has told already: bounded, forgetting the oldest first."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from sluice_core.domain.job import ChildCounts, Job
from sluice_core.domain.states import ACTIVE

#: Versions remembered; a forgotten one is told once more, which harms nobody.
MAX_VERSIONS = 20_000
#: Jobs kept as they are shown, so that progress can be told without the database: as many as may
#: have a client of their own.
MAX_JOBS = 6_000


@dataclass(frozen=True, slots=True)
class Told:
    """A job as the clients know it."""

    job: Job
    children: ChildCounts | None


class Memory:
    def __init__(self, max_versions: int = MAX_VERSIONS, max_jobs: int = MAX_JOBS) -> None:
        self._max_versions = max_versions
        self._max_jobs = max_jobs
        self._versions: OrderedDict[str, int] = OrderedDict()
        #: Versions that clients were sent at their start, of jobs that they follow by name.
        self._noted: OrderedDict[str, int] = OrderedDict()
        self._jobs: OrderedDict[str, Told] = OrderedDict()

    def version(self, job_id: str) -> int:
        """The version that was told last; -1 when none was."""
        return self._versions.get(job_id, -1)

    def noted(self, job_id: str) -> int:
        """The version that whoever follows the job by name knows at least."""
        return max(self.version(job_id), self._noted.get(job_id, -1))

    def note(self, job_id: str, version: int) -> None:
        """A client that follows the job by name has this version; others may not."""
        if version > self._noted.get(job_id, -1):
            self._noted[job_id] = version
            self._noted.move_to_end(job_id)
        while len(self._noted) > self._max_versions:
            self._noted.popitem(last=False)

    def get(self, job_id: str) -> Told | None:
        return self._jobs.get(job_id)

    def keep(self, job: Job, children: ChildCounts | None) -> None:
        self._versions[job.id] = job.version
        self._versions.move_to_end(job.id)
        if job.status in ACTIVE:
            self._jobs[job.id] = Told(_shown_part(job), children)
            self._jobs.move_to_end(job.id)
        else:
            self._jobs.pop(job.id, None)
        while len(self._versions) > self._max_versions:
            self._versions.popitem(last=False)
        while len(self._jobs) > self._max_jobs:
            self._jobs.popitem(last=False)

    def drop(self, job_id: str, version: int) -> None:
        """The job is gone; its last version is remembered, so that this is told once."""
        self._jobs.pop(job_id, None)
        self._versions[job_id] = version
        self._versions.move_to_end(job_id)

    def active(self) -> list[str]:
        """Jobs kept, all of which had not ended."""
        return list(self._jobs)

    def clear(self) -> None:
        self._versions.clear()
        self._noted.clear()
        self._jobs.clear()


def _shown_part(job: Job) -> Job:
    """Without what can be large and is never shown."""
    return replace(job, plan=None, sources=None, entry=None)
