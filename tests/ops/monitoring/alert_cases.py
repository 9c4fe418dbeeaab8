"""For every alert: what Prometheus saw, when it must still be silent, and when it must fire.

Times are minutes; the condition of each alert begins to hold at `begins`, so it fires `for` later.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    """One alert: series -> values in promtool's notation, one sample a minute."""

    series: dict[str, str]
    #: Minutes at which it must not fire yet, and must fire.
    silent: int
    fires: int
    #: Beside severity and the labels of the target.
    labels: dict[str, str] = field(default_factory=dict)
    #: How the value is written in the texts.
    value: str = ""
    #: The alert keeps no label of the target.
    bare: bool = False
    #: The labels of the scraped process stay.
    process: bool = False


def _queue(queue: str, values: str, state: str = "waiting") -> dict[str, str]:
    return {
        f'sluice_queue_messages{{queue="{queue}",state="{state}"}}': values,
        f'sluice_queue_paused{{queue="{queue}"}}': "0x2000",
    }


def _promise(broken: str, kept: str) -> dict[str, str]:
    return {
        'sluice_slo_jobs_total{promise="broken"}': broken,
        'sluice_slo_jobs_total{promise="kept"}': kept,
    }


CASES: dict[str, Case] = {
    "SluiceDown": Case({"sluice_up": "1x2 _x60"}, silent=12, fires=13, bare=True),
    "SluiceStoreDown": Case(
        {'sluice_up{store="redis"}': "1x9 0x20", 'sluice_up{store="database"}': "1x40"},
        silent=11, fires=12, labels={"store": "redis"},
    ),
    "SluiceCriticalLaneFull": Case(
        {
            **_queue("parse.critical", "100x9 101x20"),
            # What is due in the database waits as well; another lane may hold more.
            **_queue("parse.high", "900x40"),
        },
        silent=10, fires=11, labels={"queue": "parse.critical"}, value="101",
    ),
    "SluiceDefaultLaneFull": Case(
        {
            **_queue("download.default", "4000x40"),
            'sluice_queue_messages{queue="download.default",state="due"}': "1000x9 1001x30",
        },
        silent=19, fires=20, labels={"queue": "download.default"}, value="5001",
    ),
    "SluiceQueueGrows": Case(
        {
            # The first grows, the second is as long and shrinks.
            **_queue("download.bulk", "1000x9 1001+1x40"),
            **_queue("parse.bulk", "9000-1x60"),
        },
        silent=24, fires=25, labels={"queue": "download.bulk"}, value="1016",
    ),
    "SluiceNoWorker": Case(
        {
            **_queue("transcode.low", "0x9 1x30"),
            'sluice_workers{stage="transcode"}': "0x40",
            # A pool of nobody with nothing to do is well.
            'sluice_workers{stage="parse"}': "0x40",
        },
        silent=14, fires=15, labels={"stage": "transcode"},
    ),
    "SluiceUrgentWorkWaits": Case(
        {
            'sluice_queue_oldest_age_seconds{queue="parse.high"}': "300x9 301x20",
            'sluice_queue_paused{queue="parse.high"}': "0x40",
            'sluice_queue_oldest_age_seconds{queue="parse.critical"}': "9000x40",
            'sluice_queue_paused{queue="parse.critical"}': "1x40",
        },
        silent=11, fires=12, labels={"queue": "parse.high"}, value="5m 1s",
    ),
    "SluiceWorkWaits": Case(
        {
            'sluice_queue_oldest_age_seconds{queue="parse.default"}': "1800x9 1801x20",
            'sluice_queue_paused{queue="parse.default"}': "0x40",
        },
        silent=14, fires=15, labels={"queue": "parse.default"}, value="30m 1s",
    ),
    "SluiceLaneForgotten": Case(
        {
            'sluice_queue_messages{queue="parse.low",state="waiting"}': "3x100",
            'sluice_queue_paused{queue="parse.low"}': "0x9 1x90",
        },
        silent=69, fires=70, labels={"queue": "parse.low"},
    ),
    "SluiceManyJobsFail": Case(
        {
            'sluice_jobs_total{status="FAILED",preset="best"}': "0x29 0+6x60",
            'sluice_jobs_total{status="SUCCESS",preset="best"}': "0x29 0+3x60",
            'sluice_jobs_total{status="CANCELED",preset="best"}': "0+100x100",
        },
        silent=41, fires=42, value="66.67%",
    ),
    "SluiceOwnFaults": Case(
        {
            'sluice_stage_failures_total{stage="parse",code="internal",class="transient"}':
                "0x19 0+1x60",
            'sluice_stage_failures_total{stage="parse",code="not_found",class="permanent"}':
                "0+50x100",
        },
        silent=29, fires=30, value="10",
    ),
    "SluiceDeadLetters": Case(
        {**_queue("parse.low", "90x30", "dead"), **_queue("parse.high", "10x9 11x20", "dead")},
        silent=14, fires=15, value="101",
    ),
    "SluiceDeadLettersDropped": Case(
        {"sluice_dead_letters_dropped_total": "0x9 5x80"}, silent=9, fires=10,
    ),
    "SluiceOutboxLag": Case(
        {"sluice_outbox_lag_seconds": "30x9 31x20"}, silent=11, fires=12, value="31s",
    ),
    "SluiceRedisMemory": Case(
        {"sluice_redis_memory_bytes": "80x9 81x20", "sluice_redis_memory_max_bytes": "100x40"},
        silent=14, fires=15, value="81%",
    ),
    "SluiceRedisEvicts": Case(
        {"sluice_redis_noeviction": "1x9 0x20"}, silent=10, fires=11,
    ),
    "SluiceStorageLow": Case(
        {
            "sluice_storage_free_bytes": "6000000000x9 4294967296x30",
            "sluice_disk_reserve_bytes": "1000000000x40",
        },
        silent=19, fires=20, value="3.069Gi",
    ),
    "SluiceScratchLow": Case(
        {"sluice_scratch_free_bytes": "1000000000x9 536870912x30"},
        silent=19, fires=20, value="512Mi", process=True,
    ),
    "SluiceJobsStuck": Case({"sluice_jobs_stuck": "0x9 2x20"}, silent=14, fires=15, value="2"),
    "SluiceNoLeader": Case({"sluice_scheduler_leader": "1x9 0x20"}, silent=11, fires=12),
    "SluiceTaskLate": Case(
        # The clock of such a test begins at 0: the task ended well at 0 and never since.
        {'sluice_schedule_last_success_timestamp_seconds{schedule="purge-old-rows"}': "0x400"},
        silent=245, fires=246, labels={"schedule": "purge-old-rows"}, value="4h 6m 0s",
    ),
    "SluiceWorkersLost": Case(
        {'sluice_reconciled_total{what="lost_worker"}': "0x60 0+1x30"},
        silent=66, fires=67, labels={"what": "lost_worker"}, value="6",
    ),
    "SluiceWorkerCutOff": Case(
        {'sluice_worker_beat_age_seconds{stage="parse"}': "60x9 61x20"},
        silent=11, fires=12, labels={"stage": "parse"}, process=True,
    ),
    "SluiceAutoscalerBlind": Case(
        {"sluice_autoscaler_read_errors_total": "0x9 0+3x30"}, silent=16, fires=17,
    ),
    "SluiceAutoscalerCannotScale": Case(
        {'sluice_autoscaler_apply_errors_total{reason="forbidden"}': "0x19 0+1x40"},
        silent=30, fires=31, labels={"reason": "forbidden"},
    ),
    "SluiceAutoscalerNoLeader": Case(
        {"sluice_autoscaler_leader": "1x9 0x20"}, silent=14, fires=15,
    ),
    "SluiceApiErrors": Case(
        {
            'sluice_http_request_duration_seconds_count{status="500"}': "0x9 0+10x40",
            'sluice_http_request_duration_seconds_count{status="200"}': "0+100x60",
        },
        silent=17, fires=18, value="9.091%",
    ),
    "SluiceSubmitSlow": Case(
        {
            'sluice_http_request_duration_seconds_bucket'
            f'{{route="/v1/jobs",method="POST",status="202",le="{le}"}}': values
            for le, values in (("1", "0+10x9 90+1x60"), ("2.5", "0+10x70"), ("+Inf", "0+10x70"))
        },
        silent=19, fires=20, value="2.417s",
    ),
    "SluicePromiseBurnsFast": Case(
        _promise("0x90 0+2x60", "0+8x150"), silent=124, fires=125, value="6.367%",
    ),
    "SluicePromiseBurnsSlowly": Case(
        # 4 of 100, from the second day on: too slow for the other one.
        _promise("0x1440 0+4x3000", "0+96x5000"), silent=1932, fires=1933, value="1.049%",
    ),
}  # fmt: skip
