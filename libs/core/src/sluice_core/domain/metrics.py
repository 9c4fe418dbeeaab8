"""Every metric there is: name, meaning, labels with their values, buckets, and who tells it.

The names are a contract with dashboards and alerts. `docs/metrics.md` is made from this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sluice_core.domain.errors import CODES, ErrorClass
from sluice_core.domain.lanes import CONSUMERS, STAGES, Actor, queues_of
from sluice_core.domain.states import Status

PREFIX = "sluice_"

#: Seconds; from a direct file on loopback to a live recording of a day.
WORK_SECONDS = (
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    120,
    300,
    600,
    1800,
    3600,
    7200,
    14400,
    86400,
)
#: Seconds of one request.
REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
#: Seconds of media made in one second.
SPEED_RATIOS = (0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128)


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Source(StrEnum):
    """Who tells a metric, and so how several tellers are taken together."""

    #: The API, out of the stores: every API process tells the same. Take `max`, never `sum`.
    INSTALLATION = "installation"
    #: Each API process for itself: take `sum`.
    API = "api"
    #: Each worker and scheduler process for itself, on its own port: take `sum`.
    PROCESS = "process"
    #: The autoscaler that leads.
    AUTOSCALER = "autoscaler"


@dataclass(frozen=True, slots=True)
class Metric:
    """One name. `labels` maps each label to its values, or to words where settings name them."""

    name: str
    kind: Kind
    source: Source
    help: str
    labels: Mapping[str, Sequence[str] | str]
    buckets: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        return PREFIX + self.name

    @property
    def unit(self) -> str:
        """`seconds`, `bytes`, `ratio`, or empty for a plain number."""
        stem = self.name.removesuffix("_total")
        return next((u for u in ("seconds", "bytes", "ratio") if stem.endswith(u)), "")


_QUEUES = tuple(queue for actor in CONSUMERS for queue in queues_of(actor))
_STAGES = tuple(stage.value for stage in STAGES)
#: What runs take slots for.
_RUNS = (*_STAGES, Actor.HELP.value)
_ACTORS = tuple(actor.value for actor in CONSUMERS)
_ENDS = tuple(s.value for s in (Status.SUCCESS, Status.PARTIAL, Status.FAILED, Status.CANCELED))
_OUTCOMES = ("ok", "failed", "retry", "handed_back", "lost", "child_lost", "canceled")
_CODES = tuple(CODES)
_CLASSES = tuple(c.value for c in ErrorClass)
_PRESET = "a preset's name"
_POOL = "a pool's name"
#: What the scheduler sets right.
RECONCILED = (
    "lost_worker", "lost_message", "emptied_redis", "dead_consumer", "orphan", "unsettled_parent",
)  # fmt: skip
#: Why a worker process ends by itself.
RETIRED = ("tasks", "memory", "unhealthy")

_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_I, _A, _P, _S = Source.INSTALLATION, Source.API, Source.PROCESS, Source.AUTOSCALER

_ALL = (
    # -- stores --------------------------------------------------------------------------------
    Metric("up", _G, _I,
           "1 while the store answers. What it would tell is left out while it does not.",
           {"store": ("database", "redis", "storage")}),
    Metric("redis_memory_bytes", _G, _I, "What Redis uses.", {}),
    Metric("redis_memory_max_bytes", _G, _I, "Redis' `maxmemory`; 0 is no limit.", {}),
    Metric("redis_noeviction", _G, _I, "1 while Redis evicts nothing, as it must.", {}),
    Metric("storage_free_bytes", _G, _I,
           "Free space of the folder of finished files; absent with object storage.", {}),
    Metric("scratch_free_bytes", _G, _P,
           "Free space of this process' folder of running work, within SCRATCH_SIZE.", {}),
    Metric("disk_reserve_bytes", _G, _I, "Space that must stay free: MIN_FREE_BYTES.", {}),
    # -- queues --------------------------------------------------------------------------------
    Metric("queue_messages", _G, _I,
           "Messages: `waiting` in Redis, `in_flight` with a worker, `due` in the database and not"
           " in Redis yet, `delayed` until a later time, `dead` as dead letters.",
           {"queue": _QUEUES, "state": ("waiting", "in_flight", "due", "delayed", "dead")}),
    Metric("queue_oldest_age_seconds", _G, _I,
           "How long the next message has waited; 0 when none waits.", {"queue": _QUEUES}),
    Metric("queue_paused", _G, _I, "1 while the lane is paused: nothing is fetched from it.",
           {"queue": _QUEUES}),
    Metric("outbox_pending", _G, _I, "Orders that are due and not published yet.", {}),
    Metric("outbox_lag_seconds", _G, _I, "How late the oldest of them is.", {}),
    Metric("dead_letters_dropped_total", _C, _I, "Dead letters pushed out by newer ones.", {}),
    # -- jobs ----------------------------------------------------------------------------------
    Metric("jobs_total", _C, _I, "Jobs that ended. A retry by hand ends a job once more.",
           {"status": _ENDS, "preset": _PRESET}),
    Metric("job_duration_seconds", _H, _I, "From the submit, or the time it was due, to the end.",
           {"preset": _PRESET}, WORK_SECONDS),
    Metric("jobs_active", _G, _I, "Jobs that have not ended.",
           {"status": ("PENDING", "PARSING", "DOWNLOADING", "MERGING")}),
    Metric("jobs_stuck", _G, _I,
           "Runs under way whose job told nothing for 15 minutes: longer than any watchdog waits.",
           {}),
    Metric("slo_jobs_total", _C, _I,
           "Jobs under the promise: `kept` when they ended in SUCCESS, PARTIAL, or FAILED for a"
           " reason of their own within 30 minutes, else `broken`. Canceled ones do not count.",
           {"promise": ("kept", "broken")}),
    # -- stages --------------------------------------------------------------------------------
    Metric("stage_duration_seconds", _H, _I, "One run of a stage, from claim to end.",
           {"stage": _RUNS, "outcome": _OUTCOMES}, WORK_SECONDS),
    Metric("stage_failures_total", _C, _I,
           "Runs that ended with an error, whether another try follows or not.",
           {"stage": _RUNS, "code": _CODES, "class": _CLASSES}),
    Metric("stage_retries_total", _C, _I, "Runs after which another try was ordered.",
           {"stage": _STAGES, "code": _CODES}),
    Metric("stage_in_progress", _G, _I, "Runs under way.", {"stage": _RUNS}),
    Metric("download_bytes_total", _C, _I, "Media bytes fetched.", {}),
    Metric("download_refetched_bytes_total", _C, _I, "Of these, fetched before.", {}),
    Metric("download_bytes_per_second", _G, _I, "What the running downloads make together.", {}),
    Metric("transcode_speed_ratio", _H, _I, "Seconds of media made in one second, per encode.", {},
           SPEED_RATIOS),
    Metric("lock_contended_total", _C, _I, "Messages dropped since a later run holds the job.",
           {"stage": _STAGES}),
    Metric("stale_writes_total", _C, _I, "Writes refused since the run no longer owns its job.",
           {"stage": _STAGES}),
    # -- processes -----------------------------------------------------------------------------
    Metric("workers", _G, _I, "Worker processes that said so within 15 s.", {"stage": _STAGES}),
    Metric("worker_slots", _G, _P, "Threads of this worker.",
           {"stage": _ACTORS, "state": ("busy", "idle")}),
    Metric("worker_messages_total", _C, _P, "Messages that this worker was done with.",
           {"queue": _QUEUES, "outcome": ("ok", "raised", "skipped")}),
    Metric("worker_beat_age_seconds", _G, _P, "Since Redis last took a sign of life.",
           {"stage": _ACTORS}),
    Metric("worker_paused", _G, _P,
           "1 while this worker fetches nothing: drained, on standby, or cut off from a store.",
           {"stage": _ACTORS}),
    Metric("worker_retired_total", _C, _I, "Workers that ended by themselves.",
           {"reason": RETIRED}),
    Metric("reconciled_total", _C, _I, "What the scheduler found amiss and set right.",
           {"what": RECONCILED}),
    Metric("scheduler_leader", _G, _I, "1 while a scheduler leads and gives signs of life.", {}),
    Metric("schedule_last_success_timestamp_seconds", _G, _I,
           "When the built-in task last ended well, Unix time.",
           {"schedule": "a built-in task's name"}),
    # -- API -----------------------------------------------------------------------------------
    Metric("sse_clients", _G, _A, "Open event streams.", {}),
    Metric("http_request_duration_seconds", _H, _A, "Until the answer began.",
           {"route": "a route's pattern, or `unmatched`",
            "method": ("GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS", "other"),
            "status": "100 to 599"}, REQUEST_SECONDS),
    Metric("rate_limit_skipped_total", _C, _A,
           "Requests counted by this process alone, since Redis was away.", {}),
    # -- autoscaler ----------------------------------------------------------------------------
    Metric("autoscaler_desired_replicas", _G, _S, "What was decided.", {"pool": _POOL}),
    Metric("autoscaler_current_replicas", _G, _S, "What the workload asks for.", {"pool": _POOL}),
    Metric("autoscaler_busy_replicas", _G, _S, "Pods that run something.", {"pool": _POOL}),
    Metric("autoscaler_decisions_total", _C, _S, "Decisions, by their reason.",
           {"pool": _POOL, "reason": "a reason of `decide`"}),
    Metric("autoscaler_read_errors_total", _C, _S, "Readings that failed: replicas are held.", {}),
    Metric("autoscaler_apply_errors_total", _C, _S, "Calls to Kubernetes that failed.",
           {"reason": "a kind of fault"}),
    Metric("autoscaler_leader", _G, _S, "1 in the autoscaler that leads.", {}),
)  # fmt: skip

#: By name without prefix.
METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
