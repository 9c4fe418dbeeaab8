from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sluice_core.domain.job import ChildCounts, Job, JobError, Progress, Request, words_for
from sluice_core.domain.lanes import Actor, Lane, queue_name, queues_of
from sluice_core.domain.states import RUNNING_STATE, Status, WaitingFor

JOB = Job(
    id="01J",
    request=Request(url="https://media.example/1"),
    status=Status.PENDING,
    stage=Actor.PARSE,
    epoch=0,
    version=0,
    waiting_for=None,
    tries=0,
    losses=0,
    progress=Progress(),
    created_at=0.0,
    updated_at=0.0,
)
S, W = Status, WaitingFor
GONE = JobError("not_found", "permanent", "the link no longer exists")
AWAY = JobError("network", "transient", "the connection failed")


@pytest.mark.parametrize(
    ("changes", "children", "words"),
    [
        ({"status": S.PENDING}, None, "waiting to start"),
        ({"status": S.PENDING, "waiting_for": W.WORKER}, None, "waiting for a worker"),
        ({"status": S.PENDING, "waiting_for": W.TIME}, None, "waiting for its start time"),
        ({"status": S.PARSING}, None, "reading the link"),
        ({"status": S.PARSING, "expansion_done": False}, (9, 0, 0, 0, 9),
         "reading the link, 9 found"),
        ({"status": S.PARSING, "waiting_for": W.WORKER}, None,
         "waiting for a worker to read the link"),
        ({"status": S.DOWNLOADING}, None, "downloading"),
        ({"status": S.DOWNLOADING, "progress": Progress(percent=45.2)}, None, "downloading 45 %"),
        ({"status": S.DOWNLOADING, "progress": Progress(percent=0.0)}, None, "downloading 0 %"),
        ({"status": S.DOWNLOADING, "waiting_for": W.WORKER}, None,
         "waiting for a worker to download"),
        ({"status": S.DOWNLOADING, "waiting_for": W.RETRY, "error": AWAY}, None,
         "waiting to try again: the connection failed"),
        ({"status": S.DOWNLOADING, "waiting_for": W.RETRY}, None,
         "waiting to try again: the last try failed"),
        ({"status": S.DOWNLOADING, "waiting_for": W.CHILDREN}, None, "downloading its entries"),
        ({"status": S.DOWNLOADING, "waiting_for": W.CHILDREN}, (8, 2, 1, 0, 5),
         "downloading 3 of 8"),
        ({"status": S.MERGING, "progress": Progress(percent=37.5)}, None, "merging 38 %"),
        ({"status": S.MERGING, "waiting_for": W.WORKER}, None, "waiting for a worker to merge"),
        ({"status": S.SUCCESS}, None, "done"),
        ({"status": S.CANCELED}, None, "canceled"),
        ({"status": S.PARTIAL}, None, "done in part"),
        ({"status": S.PARTIAL}, (8, 5, 3, 0, 0), "done in part: 5 of 8"),
        ({"status": S.FAILED, "error": GONE}, None, "failed: the link no longer exists"),
        ({"status": S.FAILED}, None, "failed"),
    ],
)  # fmt: skip
def test_words_for_people(
    changes: dict[str, Any], children: tuple[int, ...] | None, words: str
) -> None:
    counts = ChildCounts(*children) if children else None
    assert words_for(replace(JOB, **changes), counts) == words


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("waiting_for", [None, *WaitingFor])
def test_no_state_is_without_words(status: Status, waiting_for: WaitingFor | None) -> None:
    assert words_for(replace(JOB, status=status, waiting_for=waiting_for))


def test_every_stage_has_its_state() -> None:
    assert list(RUNNING_STATE.values()) == [Status.PARSING, Status.DOWNLOADING, Status.MERGING]


def test_queues_go_from_the_highest_lane_down() -> None:
    assert queue_name(Actor.DOWNLOAD, Lane.BULK) == "download.bulk"
    assert queues_of(Actor.PARSE) == (
        "parse.critical", "parse.high", "parse.default", "parse.low", "parse.bulk",
    )  # fmt: skip
