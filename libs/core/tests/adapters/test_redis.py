from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from sluice_core.adapters import redis as redis_adapter
from sluice_core.adapters.redis import call, check, connect, connect_broker
from sluice_core.domain.errors import BrokerAwayError, ConfigError
from sluice_testing.redis import RedisServer


def test_a_good_server_passes(redis_url):
    with connect(redis_url) as client:
        check(client)


def test_the_broker_has_the_next_database_and_answers_bytes(redis_url):
    with connect(redis_url) as ours, connect_broker(redis_url) as brokers:
        ours.set("a", "影片 🎬")
        assert ours.get("a") == "影片 🎬"
        assert brokers.get("a") is None
        brokers.set("a", b"\xff")
        assert brokers.get("a") == b"\xff"


def test_a_database_number_in_the_url_is_kept(redis_url):
    url = redis_url.removesuffix("/0") + "/7"
    with connect_broker(url) as client:
        assert client.connection_pool.connection_kwargs["db"] == 8
        assert client.ping()


@pytest.mark.parametrize("url", ["http://localhost", "", "redis://host:port/x"])
def test_an_unreadable_url_is_named(url):
    with pytest.raises(ConfigError, match="SLUICE_REDIS_URL must look like"):
        connect(url)


def test_nobody_listens(own_redis):
    own_redis.kill9()
    with connect(own_redis.url) as client, pytest.raises(ConfigError, match="does not answer"):
        check(client)


def test_a_silent_server_is_told_within_the_timeout(own_redis):
    own_redis.pause()
    with (
        connect(own_redis.url, socket_timeout=0.3) as client,
        pytest.raises(ConfigError, match="does not answer"),
    ):
        check(client)


def test_evicting_is_refused(own_redis):
    with connect(own_redis.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(ConfigError, match="maxmemory-policy allkeys-lru"):
            check(client)


def test_too_few_databases(redis_url):
    with (
        connect_broker(redis_url.removesuffix("/0") + "/15") as client,
        pytest.raises(ConfigError, match="too few databases"),
    ):
        check(client)


@pytest.fixture
def locked_redis(tmp_path):
    server = RedisServer(tmp_path / "locked", "--requirepass", "right")
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("login", ["", ":wrong@"])
def test_a_missing_or_wrong_password(locked_redis, login):
    url = locked_redis.url.replace("//", f"//{login}")
    with connect(url) as client, pytest.raises(ConfigError, match="password"):
        check(client)


def test_the_right_password(locked_redis):
    with connect(locked_redis.url.replace("//", "//:right@")) as client:
        check(client)


def test_every_way_of_being_away_is_one_error(own_redis):
    with connect(own_redis.url, socket_timeout=60) as client:
        client.replicaof("127.0.0.1", "1")
        with pytest.raises(BrokerAwayError), call():
            client.set("a", "b")
    own_redis.pause()
    with connect(own_redis.url, socket_timeout=0.3) as client:
        with pytest.raises(BrokerAwayError), call():
            client.ping()
        own_redis.kill9()
        with pytest.raises(BrokerAwayError), call():
            client.ping()


def test_a_fault_of_ours_is_not_called_away(redis_url):
    with connect(redis_url) as client:
        client.set("a", "b")
        with pytest.raises(ResponseError, match="WRONGTYPE"), call():
            client.lpop("a")


def test_connections_are_bounded(redis_url, monkeypatch):
    monkeypatch.setattr(redis_adapter, "MAX_CONNECTIONS", 2)
    with connect(redis_url) as client:
        held = [client.connection_pool.get_connection() for _ in range(2)]
        with pytest.raises(BrokerAwayError), call():
            client.ping()
        client.connection_pool.release(held[0])
        with call():
            client.ping()
        client.connection_pool.release(held[1])
