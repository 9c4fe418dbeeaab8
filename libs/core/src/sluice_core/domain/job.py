"""A job as read from the database, and what people are told of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sluice_core.domain.errors import CODES
from sluice_core.domain.gaps import Gap
from sluice_core.domain.lanes import Actor, Lane
from sluice_core.domain.states import Status, WaitingFor


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the current stage is; None is an honest "unknown"."""

    #: 0 to 100.
    percent: float | None = None
    #: Bytes done in this stage.
    bytes: int | None = None
    #: Bytes in all.
    total_bytes: int | None = None
    bytes_per_second: float | None = None
    eta_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job ended, or why its last run did."""

    code: str
    error_class: str
    message: str

    @property
    def help(self) -> str:
        return CODES[self.code].help if self.code in CODES else ""


#: `Request.playlist` of a subscription's checks: entries that were not seen before.
ONLY_NEW = "new"


@dataclass(frozen=True, slots=True)
class Request:
    """What a submitter asked for; equal requests are the same job unless forced."""

    url: str
    preset: str = "best"
    lane: Lane = Lane.DEFAULT
    #: `auto`, `single` or `all`: what to do with a link that holds several media; or `ONLY_NEW`.
    playlist: str = "auto"
    #: Entry numbers to take, yt-dlp's syntax ("1-3,7"); None takes all.
    items: str | None = None
    subtitles: tuple[str, ...] = ()
    #: Keep the media when parts of it are missing for good: PARTIAL, with the gaps named.
    allow_gaps: bool = False
    #: Unix seconds before which nothing starts.
    not_before: float | None = None
    callback_url: str | None = None
    #: The submitter's own words, handed back as they came.
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Job:
    """One row of `jobs`. Times are Unix seconds, sizes bytes, durations seconds."""

    id: str
    request: Request
    status: Status
    #: The actor that runs now or comes next.
    stage: Actor
    #: Fencing epoch: raised by every claim, every cancel and every new order to run.
    epoch: int
    #: Raised by every write: orders events of the same job.
    version: int
    waiting_for: WaitingFor | None
    #: Tries of the current stage so far, hand-backs not counted.
    tries: int
    #: Runs lost with their worker without durable progress.
    losses: int
    progress: Progress
    created_at: float
    updated_at: float
    api_key_id: str | None = None
    parent_id: str | None = None
    #: The schedule or subscription that made it.
    schedule_id: str | None = None
    #: What the parent's list said of this entry: {"url", "index", "title", ...}.
    entry: dict[str, Any] | None = None
    #: True once the list of a collection was read to its end; None when no collection.
    expansion_done: bool | None = None
    retry_at: float | None = None
    title: str | None = None
    extractor: str | None = None
    duration: float | None = None
    thumbnail: str | None = None
    #: What the parser chose: see `sluice_core.domain.plan`.
    plan: dict[str, Any] | None = None
    #: What the downloader fetched: see `sluice_core.domain.plan`.
    sources: list[dict[str, Any]] | None = None
    error: JobError | None = None
    #: What it is kept without, once it is PARTIAL.
    gaps: tuple[Gap, ...] = ()
    finished_at: float | None = None
    expires_at: float | None = None
    traceparent: str | None = None
    #: Since when somebody waits for it, where that is not `created_at`.
    wanted_at: float | None = None

    @property
    def is_check(self) -> bool:
        """Whether it looks for new entries of a subscription."""
        return self.request.playlist == ONLY_NEW

    @property
    def owner(self) -> str | None:
        """Whose work it is where work is shared out: an API key's, else a collection's."""
        return self.api_key_id or self.parent_id

    @property
    def is_collection(self) -> bool:
        return self.expansion_done is not None

    def log_context(self) -> dict[str, Any]:
        """What each log line about this job carries."""
        return {"job": self.id, "stage": self.stage.value, "epoch": self.epoch}


#: `Artifact.kind` of what names other files of the same job, by their names.
PLAYLIST = "playlist"


@dataclass(frozen=True, slots=True)
class Artifact:
    """A finished file: the database row is the only pointer to its key."""

    name: str
    #: `video`, `audio`, `image`, `PLAYLIST`, `subtitle` or `other`.
    kind: str
    key: str
    bytes: int
    sha256: str
    content_type: str


@dataclass(frozen=True, slots=True)
class ChildCounts:
    """Children of a collection by state; all but `total` add up to it."""

    total: int = 0
    success: int = 0
    failed: int = 0
    canceled: int = 0
    active: int = 0
    #: Media that is kept although something of it is missing.
    partial: int = 0


_RUNNING_WORDS = {
    Status.PENDING: "waiting to start",
    Status.PARSING: "reading the link",
    Status.DOWNLOADING: "downloading",
    Status.MERGING: "merging",
}
_WAITING_WORDS = {
    Status.PENDING: "waiting for a worker",
    Status.PARSING: "waiting for a worker to read the link",
    Status.DOWNLOADING: "waiting for a worker to download",
    Status.MERGING: "waiting for a worker to merge",
}


def words_for(job: Job, children: ChildCounts | None = None) -> str:
    """Where the job is, in words for people, e.g. "downloading 45 %"."""
    ended = _ended_words(job, children)
    if ended is not None:
        return ended
    if job.waiting_for is not None:
        return _waiting_words(job, children)
    words = _RUNNING_WORDS[job.status]
    if job.is_collection and children and children.total:
        return f"{words}, {children.total} found"
    percent = job.progress.percent
    return words if percent is None else f"{words} {percent:.0f} %"


def _waiting_words(job: Job, children: ChildCounts | None) -> str:
    if job.waiting_for is WaitingFor.RETRY:
        why = job.error.message if job.error else "the last try failed"
        return f"waiting to try again: {why}"
    if job.waiting_for is WaitingFor.TIME:
        return "waiting for its start time"
    if job.waiting_for is WaitingFor.CHILDREN:
        return _children_words(children)
    return _WAITING_WORDS[job.status]


def _ended_words(job: Job, children: ChildCounts | None) -> str | None:
    if job.status is Status.SUCCESS:
        return "done"
    if job.status is Status.CANCELED:
        return "canceled"
    if job.status is Status.PARTIAL:
        if children and children.total:
            return f"done in part: {children.success} of {children.total}"
        return "done in part"
    if job.status is Status.FAILED:
        return f"failed: {job.error.message}" if job.error else "failed"
    return None


def _children_words(children: ChildCounts | None) -> str:
    if children is None or not children.total:
        return "downloading its entries"
    done = children.total - children.active
    return f"downloading {done} of {children.total}"
