from __future__ import annotations

import io
from typing import Any

import pytest

from sluice_cli.show import PlainLines
from sluice_cli.words import clean, duration, failure_of, name_of, size


def job(status: str, step: str, percent: float | None = None, **more: Any) -> dict[str, Any]:
    progress = {"percent": percent, "bytes": None, "total_bytes": None}
    return {"id": "1", "title": "Film", "status": status, "step": step, "progress": progress} | more


def said(*jobs: dict[str, Any]) -> list[str]:
    stream = io.StringIO()
    lines = PlainLines(stream)
    for one in jobs:
        lines.update(one)
    return stream.getvalue().splitlines()


def test_a_line_per_change_of_state_and_per_ten_percent() -> None:
    percents = [job("DOWNLOADING", f"downloading {p} %", p) for p in range(101)]
    lines = said(
        job("PENDING", "waiting for a worker", waiting_for="worker"),
        job("PENDING", "waiting for a worker", waiting_for="worker"),
        *percents,
        job("MERGING", "merging"),
        job("SUCCESS", "done", 100.0),
    )
    assert lines == [
        "[Film] waiting for a worker",
        *(f"[Film] downloading {p} %" for p in range(0, 101, 10)),
        "[Film] merging",
        "[Film] done",
    ]


def test_entries_of_a_collection_are_told_by_tens_too() -> None:
    words = [
        job("DOWNLOADING", f"downloading {n} of 300", n / 3, waiting_for="children")
        for n in range(301)
    ]
    assert len(said(*words)) == 11


def test_figures_are_told_as_far_as_known() -> None:
    progress = {"percent": 50.0, "bytes": 5 * 2**20, "total_bytes": 10 * 2**20}
    progress |= {"bytes_per_second": 2**20, "eta_seconds": 5.0}
    one = job("DOWNLOADING", "downloading 50 %") | {"progress": progress}
    assert said(one) == ["[Film] downloading 50 % (5.0 MiB of 10.0 MiB, 1.0 MiB/s, 5 s left)"]


def test_a_title_can_not_steer_the_terminal() -> None:
    assert clean("a\x1b[31m\u202eb\r\n") == "a [31m b"
    assert said(job("FAILED", "failed: \x1b]0;x\x07")) == ["[Film] failed:  ]0;x"]


@pytest.mark.parametrize(
    ("title", "url", "name"),
    [
        ("x" * 50, "", "x" * 39 + "…"),
        (None, "http://h/a/b.mp4?x=1", "b.mp4"),
        (None, "http://h/", "h"),
    ],
)
def test_what_a_job_is_called(title: str | None, url: str, name: str) -> None:
    assert name_of({"id": "1", "title": title, "url": url}) == name


def test_a_failure_is_code_message_and_help() -> None:
    error = {"code": "not_found", "message": "the link no longer exists", "help": "Check it."}
    assert failure_of({"error": error}) == "not_found: the link no longer exists. Check it."
    assert failure_of({"error": None, "step": "canceled"}) == "canceled"


def test_units() -> None:
    assert [size(n) for n in (999, 2048, 5 * 2**30)] == ["999 B", "2.0 KiB", "5.0 GiB"]
    assert [duration(n) for n in (3, 63, 3723)] == ["3 s", "1:03", "1:02:03"]
