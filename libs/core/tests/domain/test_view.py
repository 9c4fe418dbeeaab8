from __future__ import annotations

from typing import Any

from sluice_core.domain.job import Artifact, ChildCounts, Job, JobError, Progress, Request
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import Status, WaitingFor
from sluice_core.domain.view import job_view, timestamp


def job(**fields: Any) -> Job:
    values: dict[str, Any] = {
        "id": "J",
        "request": Request(url="https://media.example/"),
        "status": Status.DOWNLOADING,
        "stage": Actor.DOWNLOAD,
        "epoch": 1,
        "version": 1,
        "waiting_for": None,
        "tries": 1,
        "losses": 0,
        "progress": Progress(),
        "created_at": 0.0,
        "updated_at": 1.5,
    }
    return Job(**{**values, **fields})


def test_times_are_utc_and_say_so() -> None:
    assert timestamp(1.5) == "1970-01-01T00:00:01.500Z"
    assert timestamp(None) is None


def test_figures_and_words_agree() -> None:
    shown = job_view(job(progress=Progress(45.04, 1, 2, 3.16, 4.0)))
    assert shown["step"] == "downloading 45 %"
    assert shown["progress"] == {
        "percent": 45.0,
        "bytes": 1,
        "total_bytes": 2,
        "bytes_per_second": 3.2,
        "eta_seconds": 4.0,
    }


def test_an_error_has_code_class_and_help() -> None:
    failed = job(status=Status.FAILED, error=JobError("not_found", "permanent", "gone away"))
    error = job_view(failed)["error"]
    assert (error["code"], error["class"], error["message"]) == (
        "not_found",
        "permanent",
        "gone away",
    )
    assert error["help"]
    assert job_view(job())["error"] is None


def test_a_name_is_escaped_in_its_address() -> None:
    file = Artifact("a/b ?#%影.mp4", "video", "k", 3, "0" * 64, "video/mp4")
    (shown,) = job_view(job(), files=[file])["files"]
    assert shown["name"] == file.name
    assert shown["url"] == "/v1/jobs/J/files/a%2Fb%20%3F%23%25%E5%BD%B1.mp4"


def test_a_collection_is_as_far_as_its_children() -> None:
    parent = job(expansion_done=True, waiting_for=WaitingFor.CHILDREN)
    counts = ChildCounts(total=4, success=3, failed=0, active=1)
    shown = job_view(parent, children=counts)
    assert shown["progress"]["percent"] == 75.0
    assert shown["children"]["active"] == 1
    still_reading = job(expansion_done=False)
    assert job_view(still_reading, children=counts)["progress"]["percent"] is None
