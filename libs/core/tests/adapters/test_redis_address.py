"""Redis behind Sentinels, behind TLS, and with a password that lives apart; real servers."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import closing, suppress

import pytest
import redis as redis_library

from sluice_core.adapters.binaries import redis_server_path
from sluice_core.adapters.redis import call, check, connect, connect_broker
from sluice_core.adapters.settings import load
from sluice_core.domain.errors import BrokerAwayError, ConfigError
from sluice_testing.process import ServerProcess, free_port, listens
from sluice_testing.redis import RedisServer
from sluice_testing.waiting import until

PATIENCE = 60.0


def until_up(asked, what):
    """Wait for something true; that a server is away says "not yet"."""

    def answer():
        with suppress(BrokerAwayError, redis_library.RedisError):
            return asked()
        return None

    until(answer, why=f"not in time: {what}")


@pytest.mark.parametrize(
    ("url", "whole"),
    [
        ("redis://h:1/2", "redis://:p%2Fw%40@h:1/2"),
        ("rediss://u@h", "rediss://u:p%2Fw%40@h"),
        ("redis://u:own@h", "redis://u:own@h"),
        ("redis+sentinel://a,b:2/n/0", "redis+sentinel://:p%2Fw%40@a,b:2/n/0"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("", ""),
    ],
)
def test_a_password_of_its_own_variable(url, whole):
    loaded = load({"SLUICE_REDIS_URL": url, "SLUICE_REDIS_PASSWORD": "p/w@"})
    assert loaded.store.redis_url == whole
    assert "p/w@" not in str(loaded.effective())
    assert "p%2Fw%40" not in str(loaded.effective())


def test_the_password_lets_in(tmp_path):
    server = RedisServer(tmp_path / "locked", "--requirepass", "p/w@")
    server.start()
    try:
        env = {"SLUICE_REDIS_URL": server.url, "SLUICE_REDIS_PASSWORD": "p/w@"}
        with connect(load(env).store.redis_url) as client:
            check(client)
    finally:
        server.stop()


@pytest.mark.parametrize(
    "url", ["redis+sentinel://h:26379", "redis+sentinel:///name", "rediss+sentinel://h:x/name"]
)
def test_an_unreadable_sentinel_address_is_named(url):
    with pytest.raises(ConfigError, match="SLUICE_REDIS_URL must look like"):
        connect(url)


@pytest.fixture
def pair(tmp_path):
    """A master and its replica, both with a password."""
    auth = ("--requirepass", "pw", "--masterauth", "pw")
    master = RedisServer(tmp_path / "master", *auth)
    master.start()
    follow = ("--replicaof", f"127.0.0.1 {master.port}", "--repl-diskless-sync-delay", "0")
    replica = RedisServer(tmp_path / "replica", *auth, *follow)
    replica.start()
    yield master, replica
    replica.stop()
    master.stop()


@pytest.fixture
def sentinels(pair, tmp_path):
    """Ports of two Sentinels that agree on a failover; they want a password themselves."""
    master, _ = pair
    started = []
    for number in range(2):
        folder = tmp_path / f"sentinel-{number}"
        folder.mkdir()
        port = free_port()
        config = folder / "sentinel.conf"
        config.write_text(
            f"bind 127.0.0.1\nport {port}\ndir {folder}\nrequirepass watch\n"
            f"sentinel sentinel-pass watch\nsentinel monitor queue 127.0.0.1 {master.port} 2\n"
            "sentinel auth-pass queue pw\nsentinel down-after-milliseconds queue 1000\n"
            "sentinel failover-timeout queue 5000\n"
        )
        program = str(redis_server_path(os.environ.get("SLUICE_REDIS_BINARY")))
        process = ServerProcess(
            [program, str(config), "--sentinel"],
            log=folder / "log",
            ready=lambda port=port: listens(port),
        )
        process.start()
        started.append((process, port))
    yield [port for _, port in started]
    for process, _ in started:
        process.stop()


def knows_all(port):
    with redis_library.Redis(port=port, password="watch") as watcher:  # noqa: S106
        found = watcher.sentinel_master("queue")
    return found["num-slaves"] == 1 and found["num-other-sentinels"] == 1


def test_work_goes_on_after_a_failover(pair, sentinels):
    master, replica = pair
    for port in sentinels:
        until_up(lambda port=port: knows_all(port), "the Sentinels know all")
    hosts = ",".join(f"127.0.0.1:{port}" for port in (free_port(), *sentinels))
    url = f"redis+sentinel://:pw@{hosts}/queue/3?sentinel_password=watch"
    with connect(url) as ours, connect_broker(url) as brokers:
        check(ours)
        ours.set("mark", "here")
        assert brokers.get("mark") is None
        assert ours.connection_pool.connection_kwargs["db"] == 3
        assert ours.wait(1, 5000) == 1
        master.kill9()
        with pytest.raises(BrokerAwayError), call():
            ours.set("lost", "1")
        until_up(lambda: ours.set("again", "1"), "the replica is the master")
        assert ours.get("mark") == "here"
        assert ours.info("server")["tcp_port"] == replica.port


def test_no_sentinel_answers():
    url = f"redis+sentinel://127.0.0.1:{free_port()}/queue"
    with connect(url) as client, pytest.raises(ConfigError, match="does not answer"):
        check(client)


@pytest.fixture
def tls_port(certificate, redis_server):
    """TLS in front of a Redis, whose own build may have none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def carry(source, target):
        with suppress(OSError):
            while piece := source.recv(65536):
                target.sendall(piece)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def serve():
        while True:
            try:
                raw, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(raw,), daemon=True).start()

    def one(raw):
        with (
            closing(raw),
            suppress(OSError),
            context.wrap_socket(raw, server_side=True) as ours,
            socket.create_connection(("127.0.0.1", redis_server.port)) as theirs,
        ):
            back = threading.Thread(target=carry, args=(theirs, ours), daemon=True)
            back.start()
            carry(ours, theirs)
            back.join(60)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield port
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(60)


def test_tls_with_ones_own_authority(tls_port, certificate):
    with connect(f"rediss://127.0.0.1:{tls_port}/0?ssl_ca_certs={certificate[0]}") as client:
        check(client)
    with (
        connect(f"rediss://127.0.0.1:{tls_port}/0") as stranger,
        pytest.raises(ConfigError, match="certificate verify failed"),
    ):
        check(stranger)


def test_a_worker_says_what_is_wrong_with_its_redis(tmp_path):
    """The whole process: one line, and the status of wrong settings."""
    server = RedisServer(tmp_path / "evicts", "--maxmemory-policy", "allkeys-lru")
    server.start()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "sluice_parser"],
            env={
                "PATH": os.environ["PATH"],
                "SLUICE_REDIS_URL": server.url,
                "SLUICE_DATA_DIR": str(tmp_path / "data"),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        server.stop()
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "Redis has maxmemory-policy allkeys-lru, which drops queued work: use noeviction."
    )
