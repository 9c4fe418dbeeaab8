"""The doctor where a store hangs: it takes connections, and answers nothing."""

from __future__ import annotations

from contextlib import contextmanager

import httpx
import psutil
import pytest

from sluice_testing.system import running
from sluice_testing.waiting import until

#: Seconds within which the doctor must have ended, its start on a busy machine included.
DEADLINE = 90.0


@pytest.fixture
def stores(own_postgres, own_redis, moto_server):
    """Settings of a system on real servers, and the process of each."""
    settings = {
        "SLUICE_DATABASE_URL": own_postgres.url(own_postgres.new_database()),
        "SLUICE_REDIS_URL": own_redis.url,
        "SLUICE_STORAGE_URL": moto_server.new_bucket(),
    }
    pids = {
        "database": own_postgres.process.pid,
        "redis": own_redis.pid,
        "storage": moto_server.process.pid,
    }
    return settings, {name: psutil.Process(pid) for name, pid in pids.items()}


@contextmanager
def frozen(server):
    """Connections stay and come, as the kernel takes them; nobody answers."""
    family = [server]
    try:
        server.suspend()
        # PostgreSQL has a process for each connection.
        family += server.children(recursive=True)
        for process in family[1:]:
            process.suspend()
        yield
    finally:
        for process in family:
            process.resume()


@pytest.fixture
def hospital(stores, world, tmp_path):
    settings, servers = stores
    with running(
        tmp_path / "hung", SLUICE_EGRESS_ALLOW=world.address(), SLUICE_MAX_TRIES="2", **settings
    ) as started:
        yield started, servers


def is_ready(system):
    try:
        return system.http.get("/readyz").status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.timeout(600)
def test_a_store_that_hangs_is_named_and_nothing_is_handed_in(hospital, sluice_at, world):
    system, servers = hospital
    links = ("--good", world.url("/mp4/small.mp4"), "--bad", world.url("/mp4/small.mp4?fail=500"))
    for name, server in servers.items():
        with frozen(server):
            code, lines, err = sluice_at(system)("doctor", *links, timeout=DEADLINE)
        assert code == 1, (name, lines, err)
        assert len(lines) == 1, (name, lines)
        assert lines[0].startswith(f"FAIL stores        {name}: "), (name, lines)
        for other in servers.keys() - {name}:
            assert f"{other}: " not in lines[0], "healthy, and blamed"
        until(lambda: is_ready(system), why=f"not ready after {name} came back")
    assert system.http.get("/v1/jobs").json()["jobs"] == []
    code, lines, err = sluice_at(system)("doctor", *links)
    assert code == 0, (lines, err)
