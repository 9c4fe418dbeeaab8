"""Small, foreign and read-only disks, and a user that nobody has prepared anything for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice_testing.require import missing
from sluice_testing.site import SampleSite
from sluice_testing.system import System, running
from sluice_testing.users import as_user
from sluice_testing.waiting import until

MIB = 1024 * 1024
DISK, RESERVE = 56 * MIB, 24 * MIB

PRESETS = """
[wide]
title = "One size, many bytes"
kind = "video"
format = "b"
containers = ["mp4"]
video_codecs = ["h264"]
audio_codecs = ["aac"]
video = { encoder = "libx264", crf = 23, speed = "ultrafast" }
audio = { encoder = "aac", bitrate = 64 }
ladder = [{ height = 180, max_bitrate = 20000 }]
"""


@contextmanager
def mounted(size: int) -> Iterator[Path]:
    """A disk of its own."""
    place = Path(tempfile.mkdtemp(prefix="sluice-disk-"))
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        place.rmdir()
        missing("the right to mount a small disk (root)")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)
        place.rmdir()


def as_root() -> None:
    if os.geteuid() != 0:
        missing("the right to mount a small disk or to become another user (root)")


@contextmanager
def system_on(data: Path, world: SampleSite, **env: str) -> Iterator[System]:
    with running(
        data,
        SLUICE_EGRESS_ALLOW=world.address(),
        SLUICE_MAX_TRIES="1",
        SLUICE_MIN_FREE_BYTES=str(RESERVE),
        **env,
    ) as system:
        yield system


@pytest.fixture(scope="module")
def cramped(world, tmp_path_factory) -> Iterator[System]:
    """Data on 56 MiB with 24 in reserve; finished files on another disk."""
    as_root()
    storage = tmp_path_factory.mktemp("other-disk")
    with mounted(DISK) as place:
        data = place / "data"
        # Slow enough that the disk is looked at before it is full.
        env = {"SLUICE_STORAGE_URL": f"file://{storage}", "SLUICE_RATE_LIMIT": str(10 * MIB)}
        presets = place / "presets.toml"
        presets.write_text(PRESETS)
        env["SLUICE_PRESETS_FILE"] = str(presets)
        with system_on(data, world, **env) as system:
            yield system


def test_temporary_and_final_files_on_different_disks(cramped, world):
    link = "/clips/601/film.mp4?bytes=3000000"
    [job] = cramped.wait([cramped.submit(world.url(link), preset="original")["id"]])
    assert job["status"] == "SUCCESS", job["error"]
    assert job["files"][0]["sha256"] == world.sha256(link)
    job = cramped.submit(world.url("/mp4/small.mp4"), preset="audio-m4a")
    [job] = cramped.wait([job["id"]])
    assert job["status"] == "SUCCESS", job["error"]


def test_too_large_a_file_is_not_begun(cramped, world):
    link = f"/big/{50 * MIB}.mp4"
    world.control(link, throttle=20 * MIB)
    [job] = cramped.wait([cramped.submit(world.url(link), preset="original")["id"]])
    assert (job["status"], job["error"]["code"]) == ("FAILED", "disk_full")
    assert job["error"]["class"] == "transient"
    assert "50 MiB are needed" in job["error"]["message"]
    # The parser looked at its beginning.
    assert world.stats(link).bytes < 4 * MIB


def test_a_file_of_unknown_size_ends_when_the_disk_gets_low(cramped, world):
    link = f"/big/{54 * MIB}.mp4"
    world.control(link, length="chunked")
    small = "/clips/602/film.mp4?bytes=400000&throttle=100000"
    job = cramped.submit(world.url(link), preset="original")
    beside = cramped.submit(world.url(small), preset="original")
    [job] = cramped.wait([job["id"]])
    assert (job["status"], job["error"]["code"]) == ("FAILED", "disk_full")
    assert "temporary files were removed" in job["error"]["message"]
    assert "stay in reserve" in job["error"]["message"]
    # It gave way with room left for everybody else, and all that it took is free again.
    [beside] = cramped.wait([beside["id"]])
    assert beside["status"] == "SUCCESS", beside["error"]
    until(
        lambda: shutil.disk_usage(cramped.data).free > DISK - 16 * MIB,
        why=lambda: f"{shutil.disk_usage(cramped.data)}",
    )


@contextmanager
def filled(system: System, *, left: int) -> Iterator[None]:
    """The disk of the system's data, with so many bytes left above the reserve."""
    ballast = system.data.parent / "ballast"
    taken = shutil.disk_usage(system.data).free - RESERVE - left
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, taken)
    try:
        yield
    finally:
        ballast.unlink()


@pytest.mark.parametrize(
    ("link", "preset", "left"),
    [
        # Fragments are fetched while there is room; putting them together needs as much again.
        ("/hls/many/200.m3u8", "best", 2 * MIB),
        # Three seconds of what the peak of its one rung allows are 7 MiB.
        ("/mp4/small.mp4", "wide", 3 * MIB),
    ],
)
def test_no_result_is_begun_that_has_no_room(cramped, world, link, preset, left):
    with filled(cramped, left=left):
        job = cramped.submit(world.url(link), preset=preset)
        [job] = cramped.wait([job["id"]])
    assert (job["status"], job["error"]["code"]) == ("FAILED", "disk_full")
    assert "are needed" in job["error"]["message"]
    runs = cramped.http.get(f"/v1/jobs/{job['id']}/attempts").json()["attempts"]
    assert [(run["stage"], run["outcome"]) for run in runs] == [
        ("parse", "ok"),
        ("download", "ok"),
        ("transcode", "failed"),
    ]
    until(lambda: not list((cramped.data / "scratch").glob(f"{job['id']}.*")))


def test_a_storage_that_becomes_read_only(world, tmp_path):
    """Jobs wait for it; nothing is lost and nothing is half there."""
    as_root()
    with mounted(DISK) as place:
        env = {
            "SLUICE_STORAGE_URL": f"file://{place}",
            "SLUICE_MAX_TRIES": "10",
            "SLUICE_MIN_FREE_BYTES": str(RESERVE),
        }
        allow = world.address()
        with running(tmp_path / "data", SLUICE_EGRESS_ALLOW=allow, **env) as system:
            # Workers look at their storage when they start; they are to be past that.
            system.wait_for_workers()
            subprocess.run(["mount", "-o", "remount,ro", place], check=True)
            link = "/clips/603/film.mp4?bytes=300000"
            job = system.submit(world.url(link), preset="original")
            waiting = until(
                lambda: (found := system.job(job["id"]))["waiting_for"] == "retry" and found,
            )
            assert waiting["error"]["code"] == "storage_error"
            assert "Read-only" in waiting["error"]["message"]
            subprocess.run(["mount", "-o", "remount,rw", place], check=True)
            [job] = system.wait([job["id"]])
            assert job["status"] == "SUCCESS", job["error"]
            assert job["files"][0]["sha256"] == world.sha256(link)


def refused_start(**env: str) -> str:
    """What `sluice up` says that can't start."""
    done = subprocess.run(
        [sys.executable, "-m", "sluice_cli", "up"],
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")},
            "SLUICE_HTTP_PORT": "0",
            **env,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    return done.stderr


def test_a_storage_that_is_read_only_from_the_start(tmp_path):
    as_root()
    with mounted(MIB) as place:
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        env = {"SLUICE_DATA_DIR": str(tmp_path / "data"), "SLUICE_STORAGE_URL": f"file://{place}"}
        assert "can't be written: Read-only file system" in refused_start(**env)


def test_a_disk_that_is_full_from_the_start():
    as_root()
    with mounted(64 * 1024) as place:
        said = refused_start(SLUICE_DATA_DIR=str(place / "data"))
    assert said.startswith("sluice: The database has no room to write: ")
    assert len(said.splitlines()) == 1


def test_a_user_without_a_name_or_a_home(world):
    """As containers start it: a random id, HOME at the root, nothing writable but the data."""
    as_root()
    place = Path(tempfile.mkdtemp(prefix="sluice-user-"))
    try:
        os.chown(place, 54_321, 54_321)
        link = "/clips/604/film.mp4?bytes=300000"
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SLUICE_", "XDG_"))}
        done = subprocess.run(
            [
                *as_user(54_321),
                *(sys.executable, "-m", "sluice_cli", "get", world.url(link)),
                *("--preset", "original", "--out", place / "out"),
            ],
            env={
                **env,
                "HOME": "/",
                "USER": "",
                "SLUICE_DATA_DIR": str(place / "data"),
                "SLUICE_EGRESS_ALLOW": world.address(),
            },
            cwd="/",
            umask=0o077,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        [file] = (place / "out").iterdir()
        assert file.stat().st_size == 300_000
    finally:
        shutil.rmtree(place)
