"""What was fetched is not fetched again: after kills, on this machine and on another one."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import time

import httpx
import psutil
import pytest

from sluice_core.adapters.storage import open_storage
from sluice_core.runtime.pieces.manifest import Manifest
from sluice_testing.outcome import assert_all_well, assert_nothing_left
from sluice_testing.require import require
from sluice_testing.system import System, running
from sluice_testing.waiting import PATIENCE, until

MIB = 1024 * 1024
#: What may be fetched twice after one loss.
REPEAT = 16 * MIB
BIG = f"/big/{40 * MIB}.mp4"
HLS = "/hls/many/40.m3u8"
DASH = "/dash/manifest.mpd"
FRAGMENTS_AT_ONCE = 4


@pytest.fixture
def env(site):
    return {"SLUICE_EGRESS_ALLOW": site.address()}


@pytest.fixture
def system(tmp_path, env):
    with running(tmp_path / "data", **env) as started:
        yield started


def refetched(site, path):
    """Bytes of a whole file that went out more than once."""
    return site.stats(path).bytes - site.size(path)


def fragments(site, folder):
    """Path and query of each fragment -> requests that were answered with bytes."""
    sent = {}
    for path, stats in site.all_stats().items():
        if path.startswith(folder) and path.endswith((".ts", ".m4s")):
            for exchange in stats.exchanges:
                sent[exchange.target] = sent.get(exchange.target, 0) + (exchange.bytes > 0)
    return sent


def partial_bytes(system, job):
    """Length of the job's longest partial file on this machine."""
    found = (system.data / "scratch").glob(f"{job['id']}.*/*.part")
    return max((path.stat().st_size for path in found), default=0)


def attempts(system, columns, where):
    return system.query(f"SELECT {columns} FROM attempts WHERE {where}")  # noqa: S608  # constants of this file


def kill_downloader(system):
    system.kill("downloader")


def kill_children(system):
    found = attempts(system, "child_pid", "ended_at IS NULL AND child_pid IS NOT NULL")
    assert found
    for (pid,) in found:
        psutil.Process(pid).kill()


def kill_everything(system):
    system.kill_all()
    system.start()


def hold(site):
    """Let the site fall silent in the middle of each download, but not a second time."""
    # Within one response: what is left of a file that is continued is shorter.
    site.control(BIG, stall=24 * MIB)
    hang = {"latency": 60, "times": FRAGMENTS_AT_ONCE}
    site.control("/hls/*.ts", skip=24, id="hls", **hang)
    site.control("/dash/*.m4s", skip=7, id="dash", **hang)


def are_held(site):
    """Whether each download waits for the site."""
    hls, dash = fragments(site, "/hls/"), fragments(site, "/dash/")
    return (
        site.stats(BIG).bytes >= 24 * MIB
        and len(hls) >= 28
        and sum(hls.values()) >= 24
        and sum(dash.values()) >= 7
        and len(dash) > 7
    )


@pytest.mark.parametrize("kill", [kill_children, kill_downloader, kill_everything])
def test_after_a_kill_each_kind_goes_on_from_there(system, site, digests, kill):
    links = [BIG, HLS, DASH]
    for link in links:
        digests[link] = digests.get(link) or digest(system, site, link)
    site.reset()
    hold(site)
    jobs = [system.submit(site.url(link), preset="best", force=True) for link in links]
    until(lambda: are_held(site), why="the downloads did not get there")
    until(lambda: partial_bytes(system, jobs[0]) > REPEAT)
    kill(system)
    ended = system.wait([job["id"] for job in jobs], timeout=180)
    assert [(job["status"], job["error"]) for job in ended] == [("SUCCESS", None)] * 3
    assert [job["files"][0]["sha256"] for job in ended] == [digests[link] for link in links]
    assert refetched(site, BIG) <= REPEAT
    for folder in ("/hls/", "/dash/"):
        sent = fragments(site, folder)
        assert sum(sent.values()) - len(sent) <= FRAGMENTS_AT_ONCE, sent


@pytest.mark.parametrize("kill", [kill_children, kill_downloader])
def test_a_kill_forgets_no_gap(system, site, kill):
    """Every fourth fragment is missing; the download is lost after two of them."""
    site.control("/hls/ts/v0-003.ts", fail=404)
    site.control("/hls/ts/v0-000.ts", latency=60, skip=2, times=1)
    job = system.submit(site.url("/hls/many/12.m3u8"), preset="original", allow_gaps=True)
    until(lambda: holes(system, job) == 2)
    kill(system)
    [job] = system.wait([job["id"]], timeout=120)
    assert (job["status"], job["error"]["code"]) == ("PARTIAL", "incomplete")
    [gap] = job["gaps"]
    assert [span["first"] for span in gap["spans"]] == [4, 8, 12]
    assert (gap["missing"], gap["total"], gap["seconds"]) == (3, 12, 3.0)
    sent = {path: n for path, n in fragments(site, "/hls/").items() if "v0-003" not in path}
    assert len(sent) == 9
    assert sum(sent.values()) - len(sent) <= FRAGMENTS_AT_ONCE, sent


def holes(system, job):
    """How many gaps the job's download has noted on this machine."""
    found = (system.data / "scratch").glob(f"{job['id']}.*/*.ytdl")
    notes = [json.loads(path.read_text())["downloader"] for path in found]
    return max((len(n.get("extra_state", {}).get("missing", ())) for n in notes), default=0)


@pytest.fixture(scope="session")
def digests():
    """Link -> what an undisturbed run made of it."""
    return {}


def digest(system, site, link):
    """What an undisturbed run makes of the link."""
    [job] = system.wait([system.submit(site.url(link), preset="best")["id"]])
    assert job["error"] is None
    return job["files"][0]["sha256"]


def test_a_drained_download_is_handed_back_and_goes_on(tmp_path, site, env):
    with running(tmp_path / "data", SLUICE_DOWNLOAD_DRAIN_GRACE="0.5", **env) as system:
        site.control(BIG, stall=24 * MIB)
        job = system.submit(site.url(BIG), preset="original")
        until(lambda: partial_bytes(system, job) > REPEAT)
        system.part("downloader").terminate()
        assert_all_well(system, site, [job], [BIG])
        outcomes = attempts(system, "outcome", "stage = 'download' ORDER BY number")
    assert outcomes == [("handed_back",), ("ok",)]
    assert refetched(site, BIG) <= REPEAT


def test_the_work_of_a_writer_that_lives_is_not_taken_over(system, site, env):
    link = "/clips/7/clip.mp4?bytes=6000000"
    path = link.partition("?")[0]
    site.control(path, throttle=20_000)
    job = system.submit(site.url(link), preset="original")
    until(lambda: partial_bytes(system, job) > 100_000)
    site.control(path)
    first = system.part("downloader")
    [(child,)] = attempts(system, "child_pid", "ended_at IS NULL AND child_pid IS NOT NULL")
    [before] = (system.data / "scratch").glob(f"{job['id']}.download.*")
    first.suspend()
    second = another_downloader(system, env)
    try:
        [ended] = system.wait([job["id"]])
        # All the while it wrote into a folder of its own.
        assert psutil.Process(child).status() != psutil.STATUS_ZOMBIE
        assert before.exists()
        assert [file["sha256"] for file in ended["files"]] == [site.sha256(link)]
        assert site.stats(link).bytes > 6_000_000 + 100_000
    finally:
        first.resume()
        second.terminate()
        second.wait(PATIENCE)
    assert_nothing_left(system, artifacts=1)


def another_downloader(system, env):
    """A second worker on the same data folder."""
    socket = next(system.data.rglob("*.sock"))
    settings = {
        "SLUICE_DATA_DIR": str(system.data),
        "SLUICE_REDIS_URL": f"unix://{socket}?db=0",
        "SLUICE_LOG_FORMAT": "json",
        **env,
    }
    with system.log.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "sluice_downloader"],
            env={**os.environ, **settings},
            stdout=log,
            stderr=log,
        )


SMALL = 10 * MIB

#: What the site does from the second request for the media on.
CHANGES = {
    f"/big/{SMALL + 1}.mp4": {"ranges": "no"},
    f"/big/{SMALL + 2}.mp4": {"change": 1},
    f"/big/{SMALL + 3}.mp4": {"change": 1, "ranges": "no"},
    f"/big/{SMALL + 4}.mp4": {"fail": 416, "times": 1},
}
#: What it does in the middle of the body.
CUTS = {
    f"/big/{SMALL + 5}.mp4": {"reset": 6 * MIB, "times": 3},
    f"/big/{SMALL + 6}.mp4": {"short": 6 * MIB, "times": 3},
    f"/big/{SMALL + 7}.mp4": {"length": "close"},
    f"/big/{SMALL + 8}.mp4": {"ranges": "no", "reset": 6 * MIB, "times": 3},
}


def test_sites_that_change_or_cut_a_file_give_no_mixed_one(system, site):
    for path in CHANGES:
        site.control(path, stall=6 * MIB)
    jobs = {path: system.submit(site.url(path), preset="original") for path in CHANGES}
    for job in jobs.values():
        until(lambda job=job: partial_bytes(system, job) > MIB)
    kill_children(system)
    for path, control in (CHANGES | CUTS).items():
        site.control(path, **control)
    jobs |= {path: system.submit(site.url(path), preset="original") for path in CUTS}
    ended = system.wait([job["id"] for job in jobs.values()], timeout=120)
    for path, job in zip(jobs, ended, strict=True):
        assert job["error"] is None, path
        assert job["files"][0]["sha256"] == sha256(site.url(path)), path


def sha256(url):
    """Digest of what the site serves now."""
    return hashlib.sha256(httpx.get(url, timeout=PATIENCE).content).hexdigest()


HUGE = f"/big/{100 * MIB}.mp4"


def lose(system):
    system.kill_all()


def drain(system):
    assert system.stop() == 0


@pytest.mark.parametrize(
    ("path", "leave", "repeat"), [(HUGE, lose, REPEAT), (BIG, drain, 0)], ids=["lost", "drained"]
)
def test_another_machine_goes_on(tmp_path, site, shared, *, path, leave, repeat):
    storage = open_storage(shared["SLUICE_STORAGE_URL"])
    held = int(0.6 * site.size(path))
    site.control(path, stall=held)
    first = System(tmp_path / "first", {**shared, "SLUICE_DOWNLOAD_DRAIN_GRACE": "0.5"})
    first.start()
    try:
        job = first.submit(site.url(path), preset="original")
        until(lambda: saved_bytes(storage, job) >= held // REPEAT * REPEAT)
        # The site is silent now: what it has sent is on its way for no longer than a moment.
        until(lambda: site.stats(path).bytes >= held)
        fetched = until(lambda: unchanging(lambda: partial_bytes(first, job)))
        on_the_wire = site.stats(path).bytes - fetched
        assert fetched <= held
    finally:
        leave(first)
    shutil.rmtree(first.data)
    second_user = pwd.getpwnam("nobody")
    data = tmp_path / "second"
    data.mkdir()
    os.chown(data, second_user.pw_uid, second_user.pw_gid)
    second = System(data, shared, prefix=as_user(second_user))
    second.start()
    try:
        assert second.part("downloader").uids().real == second_user.pw_uid
        [ended] = second.wait([job["id"]])
        assert (ended["status"], ended["error"]) == ("SUCCESS", None)
        assert ended["files"][0]["sha256"] == site.sha256(path)
        assert refetched(site, path) <= repeat + on_the_wire
        until(lambda: not list(storage.keys("work/")))
        assert len(list(storage.keys("files/"))) == 1
    finally:
        second.stop()


def unchanging(figure):
    """The figure, if it is the same a second later."""
    before = figure()
    time.sleep(1.0)
    return before if figure() == before else None


def saved_bytes(storage, job):
    keys = [key for key in storage.keys(f"work/{job['id']}/") if key.endswith("/manifest.json")]
    return sum(Manifest.loads(b"".join(storage.read(key))).length for key in keys)


def as_user(user):
    """Run as another user that may read, but not write, what is this one's."""
    if os.geteuid() != 0:
        return []
    program = shutil.which("setpriv")
    require(program, "setpriv")
    caps = [f"--{kind}-caps=+dac_read_search" for kind in ("inh", "ambient")]
    return [program, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *caps]


def test_a_kill_before_a_piece_is_registered_and_a_cancel_leave_nothing(
    tmp_path, site, env, weed_server
):
    url = weed_server.new_bucket()
    storage = open_storage(url)
    failpoints = {
        "SLUICE_FAILPOINTS": "download.mid_piece=kill*1",
        "SLUICE_FAILPOINTS_LOG": str(tmp_path / "hits"),
    }
    site.control(BIG, stall=24 * MIB)
    with running(tmp_path / "data", SLUICE_STORAGE_URL=url, **failpoints, **env) as system:
        job = system.submit(site.url(BIG), preset="original")
        [ended] = system.wait([job["id"]])
        assert ended["files"][0]["sha256"] == site.sha256(BIG)
        assert refetched(site, BIG) <= REPEAT
        assert (tmp_path / "hits").read_text().splitlines()[0] == "download.mid_piece"
        site.control(HUGE, throttle=4 * MIB)
        job = system.submit(site.url(HUGE), preset="original")
        until(lambda: saved_bytes(storage, job) >= REPEAT)
        system.http.post(f"/v1/jobs/{job['id']}/cancel").raise_for_status()
        until(lambda: not site.stats(HUGE).active)
        assert site.stats(HUGE).bytes < site.size(HUGE), "cancel did not reach it"
        until(lambda: not list(storage.keys("work/")))
        # An upload that was under way then has ended by now, and is gone too.
        until(lambda: not list((system.data / "scratch").glob("*.download.*")))
        assert not list(storage.keys("work/"))
