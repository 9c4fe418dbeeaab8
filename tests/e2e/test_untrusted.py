"""Links that attack: nothing inside is reached, no file is read, no secret lies about."""

from __future__ import annotations

import itertools
import socket
from pathlib import Path
from threading import Thread
from urllib.parse import quote

import psutil
import pytest

from sluice_testing.fair import FairClock
from sluice_testing.process import is_alive
from sluice_testing.waiting import until

numbers = itertools.count(1)

#: In the environment of the whole system, see `conftest`.
SECRET = "hunter2"  # noqa: S105  # a word to look for
#: How a link may lead to an address of its own choice.
WAYS = (
    "/hostile/hls-private.m3u8?target={target}",
    "/hostile/master-private.m3u8?target={target}",
    "/hostile/key-private.m3u8?target={target}",
    "/hostile/dash-private.mpd?target={target}",
    "/hostile/page-private?target={target}",
    "/redirect/1?to={target}",
    "/redirect/3?to={target}",
    "/mp4/plain.mp4?redirect={target}",
    "/pages/og?media={target}",
    "/pages/titled?media={target}&title=x",
)


class Inside:
    """A service on loopback that no link may reach; counts who comes."""

    def __init__(self):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.visits = 0
        self._thread = Thread(target=self._run)

    def _run(self):
        while True:
            try:
                visitor, _ = self._socket.accept()
            except OSError:
                return
            self.visits += 1
            visitor.close()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(120)


@pytest.fixture
def inside():
    with Inside() as listener:
        yield listener


def end_of_all(system, links):
    jobs = [system.submit(link, preset="best", force=True) for link in links]
    return system.wait([job["id"] for job in jobs], timeout=120)


def test_nothing_inside_is_reached(system, world, inside):
    names = [f"http://127.0.0.1:{inside.port}/x.mp4", f"http://localhost:{inside.port}/x.ts"]
    links = [
        world.url(way.format(target=quote(f"{name}?{next(numbers)}", safe="")))
        for way in WAYS
        for name in names
    ]
    ended = end_of_all(system, links)
    # Visitors are let in one after the other: whoever came before this one has been counted too.
    socket.create_connection(("127.0.0.1", inside.port)).close()
    until(lambda: inside.visits)
    assert inside.visits == 1
    for link, job in zip(links, ended, strict=True):
        assert (job["status"], job["error"]["code"]) == ("FAILED", "blocked_address"), link


def test_the_listener_would_have_noticed(inside):
    socket.create_connection(("127.0.0.1", inside.port)).close()
    until(lambda: inside.visits == 1)


def test_no_file_of_ours_is_read(system, world, tmp_path):
    secret = tmp_path / "secret.ts"
    secret.write_bytes(Path("/proc/self/exe").read_bytes()[:1000] + b"inside-secret" * 100)
    target = quote(f"file://{secret}", safe="")
    links = [world.url(f"{way.format(target=target)}&n={next(numbers)}") for way in WAYS]
    links += [
        world.url(f"/hostile/{kind}-file.{ext}")
        for kind, ext in (("hls", "m3u8"), ("key", "m3u8"), ("master", "m3u8"), ("dash", "mpd"))
    ]
    ended = end_of_all(system, links)
    assert {job["status"] for job in ended} == {"FAILED"}
    for job in ended:
        assert job["files"] == []
    for key in system.stored():
        assert b"inside-secret" not in system.read_stored(key)


def environment(process):
    try:
        return " ".join(f"{k}={v}" for k, v in process.environ().items())
    except psutil.Error:
        return ""


def test_children_have_no_secrets_and_limits(system, world):
    warm = system.submit(world.url("/mp4/small.mp4?warm"), preset="original")
    system.wait([warm["id"]])
    worker = system.part("downloader")
    before = {process.pid for process in worker.children(recursive=True)}
    # It is canceled in the end, and goes on until then.
    job = system.submit(
        world.url("/clips/77/c.mp4?bytes=90000000&throttle=300000"), preset="original"
    )
    until(lambda: system.job(job["id"])["progress"]["bytes"])
    children = [p for p in worker.children(recursive=True) if p.pid not in before]
    assert children, "no child of a download is there"
    for child in children:
        assert SECRET not in environment(child), child.cmdline()
        assert child.rlimit(psutil.RLIMIT_CORE)[1] == 0
        assert child.rlimit(psutil.RLIMIT_DATA)[1] != psutil.RLIM_INFINITY
        assert child.rlimit(psutil.RLIMIT_FSIZE)[1] != psutil.RLIM_INFINITY
    for server in {child.parent() for child in children}:
        assert SECRET not in environment(server), server.cmdline()
    assert SECRET in environment(psutil.Process(system.pid)), "nothing to hide, nothing shown"
    clock = FairClock([psutil.Process(), *system.family()])
    system.http.post(f"/v1/jobs/{job['id']}/cancel").raise_for_status()
    until(lambda: not any(map(is_alive, children)))
    assert clock.seconds < 3
