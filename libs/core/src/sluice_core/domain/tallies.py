"""What is counted of runs and jobs, and how counts become series. Pure."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from sluice_core.domain.errors import CODES, ErrorClass
from sluice_core.domain.job import Job, JobError
from sluice_core.domain.metrics import METRICS, Kind
from sluice_core.domain.states import Status

#: Within which a link is to have ended, from the time that somebody waits for it.
PROMISED_SECONDS = 30 * 60.0
#: Failures that are ours, not the link's: a job that ends so breaks the promise.
OWN_FAULTS = frozenset({
    "disk_full", "storage_error", "transcode_failed", "worker_lost", "hard_time_limit", "internal",
    "overloaded",
})  # fmt: skip
_INFINITY = "+Inf"


@dataclass(frozen=True, slots=True)
class Tally:
    """Something that happened: an amount for a counter, or an observation for a histogram."""

    metric: str
    labels: Mapping[str, str]
    value: float = 1.0

    @property
    def labels_text(self) -> str:
        """The labels in the one form that they have in the database."""
        return json.dumps(dict(self.labels), sort_keys=True, separators=(",", ":"))


#: (series, labels) -> what to add.
Cells = dict[tuple[str, str], float]


def cells(metric: str, labels_text: str, value: float) -> Cells:
    """What one event adds to which series; nothing for a metric that is no longer known.

    Buckets are not cumulative here: an observation is in one only.
    """
    known = METRICS.get(metric)
    if known is None:
        return {}
    if known.kind is not Kind.HISTOGRAM:
        return {(metric, labels_text): value}
    at = bisect_left(known.buckets, value)
    bound = bound_text(known.buckets[at]) if at < len(known.buckets) else _INFINITY
    with_bound = {**json.loads(labels_text), "le": bound}
    bucket = Tally(metric, with_bound).labels_text
    return {(f"{metric}_bucket", bucket): 1.0, (f"{metric}_sum", labels_text): value}


def bound_text(bound: float) -> str:
    """A bucket's upper bound as its label has it."""
    return str(float(bound))


def of_run(
    stage: str, outcome: str, seconds: float, *, error: JobError | None = None
) -> list[Tally]:
    """A run ended.

    Args:
        stage: whose.
        outcome: as in `attempts`.
        seconds: since its claim.
        error: why, when it failed.

    """
    found = [
        Tally("stage_duration_seconds", {"stage": stage, "outcome": outcome}, max(0.0, seconds))
    ]
    if error is None and outcome == "lost":
        error = JobError("worker_lost", CODES["worker_lost"].error_class.value, "")
    if error is not None:
        code = error.code if error.code in CODES else "internal"
        known = ErrorClass._value2member_map_
        cls = error.error_class if error.error_class in known else CODES[code].error_class.value
        labels = {"stage": stage, "code": code}
        found.append(Tally("stage_failures_total", {**labels, "class": cls}))
        if outcome == "retry":
            found.append(Tally("stage_retries_total", labels))
    return found


def of_job(job: Job) -> list[Tally]:
    """A job ended, and is as given now."""
    preset = {"preset": job.request.preset}
    found = [Tally("jobs_total", {"status": job.status.value, **preset})]
    if job.status is Status.CANCELED or job.finished_at is None:
        return found
    seconds = max(0.0, job.finished_at - (job.wanted_at or job.created_at))
    found.append(Tally("job_duration_seconds", preset, seconds))
    # A collection is as long as its list; each of its links is under the promise by itself.
    if not job.is_collection:
        own_fault = job.error is not None and job.error.code in OWN_FAULTS
        kept = seconds <= PROMISED_SECONDS and not own_fault
        found.append(Tally("slo_jobs_total", {"promise": "kept" if kept else "broken"}))
    return found


def canceled(preset: str, count: int) -> Tally:
    """So many jobs of a preset were canceled at once."""
    labels = {"status": Status.CANCELED.value, "preset": preset}
    return Tally("jobs_total", labels, float(count))
