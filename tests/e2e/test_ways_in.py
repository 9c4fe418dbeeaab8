"""One system, three ways in: plain HTTP, the command, and batches. (The page: `test_page`.)"""

from __future__ import annotations

import hashlib
import itertools
import json
import subprocess
import sys
import urllib.request
from pathlib import Path

from sluice_testing.waiting import PATIENCE

numbers = itertools.count(60_000)


def link(world):
    return world.url(f"/clips/{next(numbers)}/clip.mp4?bytes=300000")


def command(system, *words):
    return subprocess.run(
        [sys.executable, "-m", "sluice_cli", words[0], "--url", system.url, *words[1:]],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def test_plain_http(system, world):
    url = link(world)
    body = json.dumps({"url": url, "preset": "original"}).encode()
    request = urllib.request.Request(  # noqa: S310  # our own address
        f"{system.url}/v1/jobs", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
        assert answer.status == 202
        job = json.load(answer)
        assert answer.headers["Location"].endswith(job["links"]["self"])
    [ended] = system.wait([job["id"]])
    assert ended["status"] == "SUCCESS"
    assert hashlib.sha256(system.download(ended)).hexdigest() == ended["files"][0]["sha256"]


def test_the_command(system, world, tmp_path):
    links = [link(world) for _ in range(2)]
    done = command(system, "get", "--preset", "original", "--out", str(tmp_path), *links)
    assert done.returncode == 0, done.stderr
    paths = done.stdout.splitlines()
    wanted = {world.sha256(one.removeprefix(world.url("").rstrip("/"))) for one in links}
    assert {sha256(path) for path in paths} == wanted


def test_the_command_tells_a_failure(system, world, tmp_path):
    bad = world.url(f"/mp4/plain.mp4?fail=404&n={next(numbers)}")
    done = command(system, "get", "--out", str(tmp_path), bad)
    assert done.returncode == 1
    assert "not_found" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_job_is_seen_by_all_in_the_same_words(system, world):
    job = system.submit(link(world), preset="original")
    [ended] = system.wait([job["id"]])
    shown = command(system, "show", job["id"])
    assert shown.returncode == 0
    assert ended["step"] in shown.stdout
    listed = system.http.get("/v1/jobs", params={"q": ended["url"]}).json()["jobs"]
    assert [one["step"] for one in listed] == [ended["step"]]


def test_the_same_link_again_is_the_same_job_and_is_not_fetched_again(system, world):
    url = link(world)
    path = url.removeprefix(world.url("").rstrip("/"))
    first = system.submit(url, preset="original")
    system.wait([first["id"]])
    fetched = world.stats(path).bytes
    again = system.submit(url, preset="original")
    assert again["id"] == first["id"]
    assert again["status"] == "SUCCESS"
    assert world.stats(path).bytes == fetched
    other = system.submit(url, preset="original", force=True)
    assert other["id"] != first["id"]
    system.wait([other["id"]])


def test_redis_and_messages_hold_references_only(system, world):
    """Nothing in Redis grows with what a stage found: a list of 60 entries, a plan, a file."""
    jobs = [
        system.submit(world.url(f"/collection?n=60&t={next(numbers)}"), preset="original"),
        system.submit(f"{link(world)}&throttle=100000", preset="original"),
    ]
    largest = 0
    while system.job(jobs[1]["id"])["finished_at"] is None:
        largest = max(largest, *sizes(system))
    assert 0 < largest < LARGEST_VALUE
    system.wait([job["id"] for job in jobs], timeout=120)


#: Bytes of one message, event or field: ids and figures, never a description or a list.
LARGEST_VALUE = 2_000


def sizes(system):
    """Bytes of every single value in Redis."""
    for database in (0, 1):
        with system.redis(database) as client:
            for key in client.scan_iter():
                yield from map(len, values(client, key))


def values(client, key):
    kind = client.type(key).decode()
    if kind == "string":
        return [client.get(key) or b""]
    if kind == "hash":
        return client.hvals(key)
    if kind == "list":
        return client.lrange(key, 0, -1)
    if kind in ("set", "zset"):
        return client.zrange(key, 0, -1) if kind == "zset" else client.smembers(key)
    if kind == "stream":
        return [v for _, fields in client.xrange(key) for v in fields.values()]
    return []
