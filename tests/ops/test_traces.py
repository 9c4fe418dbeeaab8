"""From a request to the last line of its run: one trace, and no secret."""

from __future__ import annotations

import itertools
import json

import pytest

from sluice_testing.logs import whole_lines
from sluice_testing.waiting import until

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
WORD = "word-that-nobody-may-read"
numbers = itertools.count(1)


def lines(system, job_id):
    """Log lines of a job, of all processes."""
    return [json.loads(line) for line in whole_lines(system.log) if job_id in line]


@pytest.mark.parametrize(
    ("link", "stages"),
    [("/broken/truncated.mp4?", {"parse", "download"}), ("/mp4/plain.mp4?fail=404&", {"parse"})],
)
def test_every_line_of_a_run_names_job_stage_attempt_message_and_trace(system, world, link, stages):
    answer = system.http.post(
        "/v1/jobs",
        json={"url": world.url(f"{link}n={next(numbers)}&token={WORD}"), "preset": "original"},
        headers={"traceparent": f"00-{TRACE}-{SPAN}-01"},
    )
    given = answer.headers["traceparent"]
    assert given.startswith(f"00-{TRACE}-")
    assert SPAN not in given
    [job] = system.wait([answer.json()["id"]], timeout=120)
    assert job["status"] == "FAILED"
    attempts = system.http.get(f"/v1/jobs/{job['id']}/attempts").json()["attempts"]

    def all_ended():
        ended = [e for e in lines(system, job["id"]) if e["event"] == "run_ended"]
        return len(ended) == len(attempts)

    until(all_ended)
    told = lines(system, job["id"])
    of_runs = [line for line in told if line["process"] in ("parse", "download", "transcode")]
    assert {line["stage"] for line in of_runs} == stages
    for line in of_runs:
        assert line["job"] == job["id"], line
        assert line["attempt"] >= 1, line
        assert line["trace_id"] == TRACE, line
        assert line["stage"] == line["process"], line
    assert {a["message_id"] for a in attempts} == {line["message_id"] for line in of_runs}
    if "404" in link:
        # What the media program wrote is among them.
        said = [line["line"] for line in of_runs if line["event"] == "child_said"]
        assert "404" in "".join(said)
    assert WORD not in system.log.read_text("utf-8", "replace")


@pytest.mark.parametrize("header", [None, "nonsense", f"00-{'0' * 32}-{SPAN}-01"])
def test_a_request_without_a_trace_begins_one_and_a_problem_tells_it(system, header):
    headers = {} if header is None else {"traceparent": header}
    answer = system.http.get("/v1/jobs/01ARZ3NDEKTSV4RRFFQ69G5FAV", headers=headers)
    assert answer.status_code == 404
    trace_id = answer.headers["traceparent"].split("-")[1]
    assert answer.json()["trace_id"] == trace_id
    assert len(trace_id) == 32
    assert int(trace_id, 16)
    again = system.http.get("/v1/jobs/01ARZ3NDEKTSV4RRFFQ69G5FAV", headers=headers)
    assert again.json()["trace_id"] != trace_id
