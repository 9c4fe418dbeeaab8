"""Crashes at named places instead of by luck: each is reached, none loses or doubles anything."""

from __future__ import annotations

import contextlib

import httpx
import pytest

from sluice_testing.outcome import assert_all_well, assert_nothing_left
from sluice_testing.system import running
from sluice_testing.waiting import until


def start(tmp_path, world, parts, failpoints):
    allow = world.address()
    return running(
        tmp_path / "data",
        SLUICE_EGRESS_ALLOW=allow,
        SLUICE_FAILPOINTS=failpoints,
        SLUICE_FAILPOINTS_LOG=str(tmp_path / "hits"),
        # Three kills of whoever holds a job are meant here, and none of them is its doing.
        SLUICE_LONE_LOSSES="9",
        **parts,
    )


def hits(tmp_path, name):
    return (tmp_path / "hits").read_text().splitlines().count(name)


@pytest.mark.parametrize(
    "name",
    [
        "run.delivered",
        "run.claimed",
        "download.mid_fetch",
        "run.before_commit",
        "run.after_commit",
        "run.before_ack",
    ],
)
def test_killed_worker(tmp_path, world, parts, name):
    with start(tmp_path, world, parts, f"{name}=kill*3") as system:
        links = [f"/clips/{n}/clip.mp4?bytes=300000&throttle=300000" for n in range(4)]
        jobs = [system.submit(world.url(link), preset="original") for link in links]
        assert_all_well(system, world, jobs, links, timeout=150)
    assert hits(tmp_path, name) >= 3


def test_a_job_that_lost_two_workers_goes_on_in_a_process_of_its_own(tmp_path, world, parts):
    with start(tmp_path, world, parts, "run.claimed=kill*2") as system:
        link = "/clips/1/clip.mp4?bytes=300000"
        job = system.submit(world.url(link), preset="original")
        assert_all_well(system, world, [job], [link])
        answer = system.http.get(f"/v1/jobs/{job['id']}/attempts").json()
        parsed = [a for a in answer["attempts"] if a["stage"] == "parse"]
        assert [attempt["outcome"] for attempt in parsed] == ["lost", "lost", "ok"]
        assert system.log.read_text().count('"runs_alone"') == 1


def test_a_package_that_was_stored_and_not_yet_named_is_made_anew(tmp_path, world, parts):
    # The third stage to end is the transcoder: all files of its epoch are in storage.
    with start(tmp_path, world, parts, "run.before_commit=kill*1/3") as system:
        job = system.submit(world.url("/mp4/small.mp4"), preset="hls")
        [ended] = system.wait([job["id"]])
        assert (ended["status"], ended["error"]) == ("SUCCESS", None)
        answer = system.http.get(f"/v1/jobs/{job['id']}/attempts").json()
        runs = [(a["stage"], a["outcome"], a["epoch"]) for a in answer["attempts"]]
        assert [run[:2] for run in runs[-2:]] == [("transcode", "lost"), ("transcode", "ok")]
        for number, file in enumerate(ended["files"]):
            assert len(system.download(ended, number)) == file["bytes"]
        assert_nothing_left(system, artifacts=5)
        folder = f"files/{job['id']}/transcode.{runs[-1][2]}/"
        assert system.stored(folder) == system.stored()
    assert hits(tmp_path, "run.before_commit") >= 3


@pytest.mark.parametrize("name", ["api.after_commit", "api.after_publish"])
def test_killed_api(tmp_path, world, parts, name):
    with start(tmp_path, world, parts, f"{name}=kill*1") as system:
        link = "/clips/1/clip.mp4?bytes=300000"
        body = {"url": world.url(link), "preset": "original"}
        headers = {"Idempotency-Key": "once"}
        with contextlib.suppress(httpx.TransportError):
            system.http.post("/v1/jobs", json=body, headers=headers)

        def again():
            try:
                return system.http.post("/v1/jobs", json=body, headers=headers)
            except httpx.TransportError:
                return None

        answer = until(again)
        assert answer.status_code == httpx.codes.ACCEPTED
        assert_all_well(system, world, [answer.json()], [link])
        assert len(system.http.get("/v1/jobs").json()["jobs"]) == 1
    assert hits(tmp_path, name) >= 1


def test_worker_stopped_while_its_child_runs_on(tmp_path, world, parts):
    link = "/clips/1/clip.mp4?bytes=3000000&throttle=300000"
    with start(tmp_path, world, parts, "") as system:
        job = system.submit(world.url(link), preset="original")
        until(lambda: (system.job(job["id"])["progress"]["bytes"] or 0) > 0)
        worker = system.part("downloader")
        worker.suspend()
        try:
            # The reconciler gives the job to nobody else here (one downloader), but its epoch is
            # raised, and the stopped worker's child ends its download for nothing.
            until(
                lambda: system.job(job["id"])["waiting_for"] == "worker",
                why="the stopped worker was not noticed",
            )
        finally:
            worker.resume()
        assert_all_well(system, world, [job], [link])
