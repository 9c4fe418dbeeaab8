"""Where a run's files go: every path and key carries job, stage and epoch.

So a paused writer that wakes up late, or its orphaned child, can only touch files that nobody
points to any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluice_core.domain.lanes import Actor

#: How the names of scratch folders begin in which a media server makes ready: of use for seconds.
WARM_UP = "warm-up-"


@dataclass(frozen=True, slots=True)
class RunId:
    """One run: the unit that owns files."""

    job_id: str
    stage: Actor
    epoch: int

    @property
    def folder(self) -> str:
        """Name of the run's scratch folder, also readable back by `parse_folder`."""
        return f"{self.job_id}.{self.stage.value}.{self.epoch}"


def parse_folder(name: str) -> RunId | None:
    """The run that owns a scratch folder, or None when the name is not one of ours."""
    job_id, _, rest = name.partition(".")
    stage, _, epoch = rest.partition(".")
    if not job_id or stage not in {a.value for a in Actor} or not epoch.isdigit():
        return None
    return RunId(job_id, Actor(stage), int(epoch))


def help_folder(attempt_id: str, epoch: int) -> str:
    """Name of the scratch folder of a slot that helps: several may help one run on one machine."""
    return RunId(attempt_id, Actor.HELP, epoch).folder


def work_prefix(job_id: str) -> str:
    """Storage prefix of everything intermediate of one job."""
    return f"work/{job_id}/"


def final_prefix(job_id: str) -> str:
    """Storage prefix of the finished files of one job, all epochs."""
    return f"files/{job_id}/"


def work_key(run: RunId, name: str) -> str:
    """Key of an intermediate file, e.g. `work/<job>/download.3/137.mp4`."""
    return f"{work_prefix(run.job_id)}{run.stage.value}.{run.epoch}/{name}"


def partial_prefix(run: RunId) -> str:
    """Where a run saves what it has of unfinished files, e.g. `work/<job>/partial.3/`.

    Not below the run's own work: a later run goes on from it, so it stays when this run fails, and
    goes with everything else of the job.
    """
    return f"{work_prefix(run.job_id)}partial.{run.epoch}/"


def segments_prefix(run: RunId) -> str:
    """Where a run keeps finished segments of an encode, e.g. `work/<job>/segments.5/`.

    Not below the run's own work, as with `partial_prefix`.
    """
    return f"{work_prefix(run.job_id)}segments.{run.epoch}/"


def final_key(run: RunId, name: str) -> str:
    """Key of a finished file, e.g. `files/<job>/transcode.5/title.mp4`."""
    return f"{final_prefix(run.job_id)}{run.stage.value}.{run.epoch}/{name}"
