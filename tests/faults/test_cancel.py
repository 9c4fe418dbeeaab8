"""Cancel reaches work in every state within two seconds, and nothing brings it back."""

from __future__ import annotations

from contextlib import contextmanager, suppress

import psutil
import pytest

from sluice_core.adapters.ids import new_id
from sluice_core.adapters.redis import connect_broker
from sluice_core.runtime.broker import Outgoing, SluiceBroker
from sluice_testing.fair import FairClock
from sluice_testing.site import SampleSite
from sluice_testing.system import System, running
from sluice_testing.waiting import until

MIB = 1024 * 1024
#: Seconds in which a cancel is to reach everything.
REACH = 2.0
#: Far beyond what a run of these tests takes.
LONG = 600

#: A minute of it is a minute of work, or more.
PRESETS = """
[slow]
title = "slow"
kind = "video"
format = "b"
containers = ["mp4"]
video_codecs = ["hevc"]
audio_codecs = ["aac"]
video = { encoder = "libx265", crf = 10, speed = "placebo" }
audio = { encoder = "aac", bitrate = 64 }
"""


@pytest.fixture(scope="module")
def site():
    with SampleSite(hosts=("127.0.0.1", "127.0.0.2")) as started:
        yield started


@pytest.fixture(scope="module")
def system(site, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cancel")
    presets = folder / "presets.toml"
    presets.write_text(PRESETS)
    allow = [site.address(host=n) for n in (0, 1)]
    settings = {
        "SLUICE_EGRESS_ALLOW": ",".join(allow),
        "SLUICE_PRESETS_FILE": str(presets),
        "SLUICE_DOWNLOAD_CONCURRENCY": "5",
        "SLUICE_HOST_CONCURRENCY": "20",
    }
    with running(folder / "data", **settings) as started:
        yield started


@pytest.fixture(autouse=True)
def _clean(site):
    site.reset()
    yield
    site.reset()


class Busy:
    """Jobs at work, one of each kind."""

    def __init__(self, system: System, site: SampleSite) -> None:
        self.system, self.site = system, site
        self.jobs: dict[str, str] = {}
        site.control("/big/*.mp4", stall=MIB)
        # Neither of the two that go on ends before it is canceled, however long that takes.
        site.control("/hls/ts/*.ts", latency=5)
        site.control("/pages/video", latency=LONG)
        self.add("stalled", f"/big/{40 * MIB}.mp4")
        # Told some times a second.
        self.add("flowing", "/clips/1/clip.mp4?bytes=900000000&throttle=3000000")
        self.add("fragments", "/hls/many/400.m3u8", preset="best")
        self.add("encoding", "/mp4/long.mp4", preset="slow")
        self.add("reading", "/pages/video")
        self.until("stalled", "download", "progressed = 1 OR child_pid > 0")
        self.until("flowing", "download", "child_pid > 0")
        self.until("fragments", "download", "child_pid > 0")
        self.until("encoding", "transcode", "child_pid > 0")
        self.until("reading", "parse", "child_pid > 0")

    def add(self, name: str, link: str, *, host: int = 0, **fields: object) -> None:
        fields = {"preset": "original", "force": True, **fields}
        self.jobs[name] = self.system.submit(self.site.url(link, host=host), **fields)["id"]

    def until(self, name: str, stage: str, what: str) -> None:
        query = f"SELECT 1 FROM attempts WHERE job_id = :id AND stage = :stage AND ({what})"  # noqa: S608  # constants of this file
        until(lambda: self.system.query(query, id=self.jobs[name], stage=stage), why=name)

    def wait_for(self, name: str, waiting_for: str) -> None:
        until(
            lambda: self.system.job(self.jobs[name])["waiting_for"] == waiting_for,
            why=name,
        )

    def children(self) -> list[psutil.Process]:
        """Every media child and what it started."""
        found = []
        for part in ("parser", "downloader", "transcoder"):
            for server in self.system.part(part).children():
                with suppress(psutil.NoSuchProcess):
                    found += server.children(recursive=True)
        return found

    def cancel(self) -> None:
        for name, job_id in self.jobs.items():
            clock = self.clock()
            answer = self.system.http.post(f"/v1/jobs/{job_id}/cancel")
            assert answer.status_code == 202, (name, answer.text)
            assert clock.seconds < REACH, name

    def clock(self) -> FairClock:
        """Of the test and of all parts; not of media children, which go on or have ended."""
        media = set(self.children())
        parts = [process for process in self.system.family() if process not in media]
        return FairClock([psutil.Process(), *parts])

    def traces(self) -> list[str]:
        """What is still there of canceled jobs."""
        scratch = [path.name for path in (self.system.data / "scratch").glob("*.*.*")]
        connected = [p for p, s in self.site.all_stats().items() if s.connected]
        return [*map(str, self.children()), *scratch, *connected]

    def assert_gone(self) -> None:
        clock = self.clock()
        until(lambda: not self.traces(), every=0.02, why=lambda: f"{self.traces()}")
        assert clock.seconds < REACH

    def states(self) -> dict[str, str]:
        return {name: self.system.job(job_id)["status"] for name, job_id in self.jobs.items()}


def test_in_every_state(system, site):
    busy = Busy(system, site)
    busy.add("time", "/mp4/small.mp4", not_before="2199-01-01T00:00:00Z")
    site.control("/mp4/second.mp4", fail=503, retry_after=LONG)
    busy.add("retry", "/mp4/second.mp4", host=1)
    # None of its entries is done by then, whenever one gets a slot.
    busy.add("collection", "/collection?n=6&bytes=90000000&with=throttle%3D100000")
    for number in range(4):
        busy.add(f"queued {number}", f"/big/{41 * MIB + number}.mp4")
    busy.wait_for("time", "time")
    busy.wait_for("retry", "retry")
    busy.wait_for("collection", "children")
    until(lambda: "worker" in {waits(system, i) for i in busy.jobs.values()})
    assert len(busy.children()) >= 5
    clock = busy.clock()
    busy.cancel()
    busy.assert_gone()
    assert clock.seconds < REACH + len(busy.jobs) * 0.2
    assert set(busy.states().values()) == {"CANCELED"}
    assert system.query("SELECT count(*) FROM jobs WHERE status <> 'CANCELED'") == [(0,)]
    assert system.query("SELECT count(*) FROM attempts WHERE ended_at IS NULL") == [(0,)]
    until(lambda: not system.stored(), why=lambda: f"stored: {system.stored()}")
    deliver_again(system)


def waits(system, job_id):
    return system.job(job_id)["waiting_for"]


def deliver_again(system):
    """Messages of canceled jobs, of the epochs before and after, bring nothing back."""
    attempts = system.query("SELECT count(*) FROM attempts")
    [socket] = system.data.rglob("*.sock")
    broker = SluiceBroker(connect_broker(f"unix://{socket}?db=0"))
    jobs = system.query("SELECT id, stage, epoch FROM jobs")
    late = [
        Outgoing(new_id(), stage, f"{stage}.default", {"job": job_id, "epoch": number})
        for job_id, stage, epoch in jobs
        for number in (epoch - 1, epoch)
    ]
    broker.publish_many(late)
    queues = sorted({message.queue for message in late})
    until(lambda: not any(broker.waiting(queues).values()))
    broker.client.close()
    until(lambda: not any(queue["in_flight"] for queue in told_queues(system)))
    assert system.query("SELECT count(*) FROM attempts") == attempts
    assert system.query("SELECT count(*) FROM jobs WHERE status <> 'CANCELED'") == [(0,)]


def told_queues(system):
    return system.http.get("/v1/queues").json()["queues"]


@contextmanager
def hung(process):
    process.suspend()
    try:
        yield
    finally:
        process.resume()


def test_while_redis_is_away(system, site):
    busy = Busy(system, site)
    with hung(system.part("redis")):
        busy.cancel()
        busy.assert_gone()
        assert set(busy.states().values()) == {"CANCELED"}
    until(lambda: not system.stored())
