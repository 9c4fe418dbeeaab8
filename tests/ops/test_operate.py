"""What operators do to a whole system: pauses outlive everything, a drain interrupts nothing."""

from __future__ import annotations

import time

from sluice_testing.system import running
from sluice_testing.waiting import until

QUEUE = "download.default"


def test_a_pause_outlives_redis_and_the_whole_system(world, tmp_path):
    allow = world.address()
    data = tmp_path / "data"
    with running(data, SLUICE_EGRESS_ALLOW=allow) as system:
        assert system.http.post(f"/v1/queues/{QUEUE}/pause").status_code == 200
        # At once: what is submitted right afterwards is not fetched any more.
        job = system.submit(world.url("/clips/91/film.mp4"), preset="original")
        words = "waiting: the queue is paused"
        until(lambda: system.job(job["id"])["step"] == words)
        system.kill_all()
        system.start()
        with system.redis(1) as client:
            client.flushall()
        # The scheduler brings messages and pauses back; other queues go on meanwhile.
        other = system.submit(world.url("/clips/92/film.mp4"), preset="original", priority="high")
        assert system.wait([other["id"]])[0]["status"] == "SUCCESS"
        with system.redis(1) as client:
            until(lambda: client.llen(f"dramatiq:{QUEUE}"))
            assert client.smembers("dramatiq:__paused__")
        shown = system.job(job["id"])
        assert (shown["status"], shown["step"]) == ("DOWNLOADING", words)
        assert system.query("SELECT count(*) FROM attempts WHERE stage = 'download'") == [(1,)]
        assert system.http.post(f"/v1/queues/{QUEUE}/resume").status_code == 200
        assert system.wait([job["id"]])[0]["status"] == "SUCCESS"


def test_a_drained_worker_finishes_what_it_runs_and_another_takes_its_place(system, world, sluice):
    def worker() -> dict:
        found = system.http.get("/v1/workers").json()["workers"]
        return next((w for w in found if w["stage"] == "download"), {})

    path = "/clips/93/slow.mp4"
    # Silent in the middle, until all has been seen that is to be seen meanwhile.
    world.control(path, stall=150_000)
    job = system.submit(world.url(f"{path}?bytes=300000"), preset="original")
    first = until(lambda: (found := worker()).get("jobs") == [job["id"]] and found)
    assert first["memory_bytes"] > 10_000_000
    assert {"sluice", "yt-dlp"} <= set(first["versions"])
    assert first["runs"][0]["job_id"] == job["id"]
    code, lines, _ = sluice("workers", "drain", first["id"])
    assert (code, lines) == (0, [f"{first['id']} drains"])
    code, lines, _ = sluice("workers")
    assert ["draining" in line for line in lines if first["id"] in line] == [True]
    world.control(path)
    world.cut(path)
    assert system.wait([job["id"]])[0]["status"] == "SUCCESS"
    outcomes = system.query(
        "SELECT outcome FROM attempts WHERE job_id = :id AND stage = 'download'", id=job["id"]
    )
    assert outcomes == [("ok",)]
    until(lambda: worker() and worker()["id"] != first["id"])
    again = system.submit(world.url("/clips/94/film.mp4"), preset="original")
    assert system.wait([again["id"]])[0]["status"] == "SUCCESS"
    code, _, err = sluice("workers", "drain", "nobody")
    assert code == 2
    assert "no worker nobody" in err


def test_the_command_pauses_moves_many_and_shows_the_trail(system, world, sluice):
    assert sluice("queues", "pause", "parse.low")[1] == ["parse.low paused"]
    assert sluice("queues", "pause", "parse.low")[1] == ["parse.low is paused already"]
    marker = f"many{time.time_ns()}"
    jobs = [
        system.submit(world.url(f"/clips/{marker}-{n}/film.mp4"), priority="low") for n in range(3)
    ]
    assert any("paused by anybody" in line for line in sluice("queues")[1])
    assert f"paused: {'':15} parse.low".split() in [line.split() for line in sluice("stats")[1]]
    # Of the many queues those that hold something.
    until(
        lambda: ["waiting:", "parse.low", "3"] in [line.split() for line in sluice("stats")[1]],
        why="stats do not tell the one queue in which three wait",
    )
    link = world.url(f"/clips/{marker}")
    assert sluice("cancel", "--q", link)[1] == ["3 canceled"]
    assert {system.job(job["id"])["status"] for job in jobs} == {"CANCELED"}
    assert sluice("retry", "--q", link, "--status", "canceled")[1] == ["3 started again"]
    assert {system.job(job["id"])["status"] for job in jobs} == {"PENDING"}
    assert sluice("queues", "resume", "parse.low")[1] == ["parse.low resumed"]
    for words in (["cancel"], ["retry", "X" * 26, "--all"]):
        assert sluice(*words)[0] == 2
    code, _, err = sluice("queues", "pause", "parse.none")
    assert code == 2
    assert "no queue parse.none" in err
    trail = [line.split()[2] for line in sluice("audit", "--limit", "4")[1][1:]]
    assert trail == ["queue.resume", "jobs.retry", "jobs.cancel", "queue.pause"]
    system.wait([job["id"] for job in jobs])


def test_schedules_and_subscriptions_are_named_by_name_or_id(world, sluice):
    name = f"weekly {time.time_ns()}"
    link = world.url("/clips/96/film.mp4")
    for more in ([], ["--subscribe"]):
        added = sluice("schedules", "add", name, link, "--every", "86400", *more)[1][0].split()[0]
        # It may fire between two looks.
        first = sluice("schedules", "show", name)[1][0]
        assert first == sluice("schedules", "show", added)[1][0]
        assert first.startswith(name)
        [line] = sluice("schedules", "change", name, "--every", "172800")[1]
        assert line.startswith(f"{name} changed, next 20")
        assert sluice("schedules", "run", name)[1] == [f"{name} fires"]
        assert sluice("schedules", "remove", name)[1] == [f"{name} removed"]
        code, _, err = sluice("schedules", "show", name)
        assert code == 2
        assert "`sluice schedules` lists them" in err
