from __future__ import annotations

import json

import pytest
from dramatiq.message import Message

from sluice_core.domain.errors import BrokerAwayError
from sluice_core.runtime.broker.broker import PUBLISH_BATCH

Q = "parse.default"


def test_the_same_id_is_queued_once_while_waiting_and_while_in_flight(rig):
    assert rig.publish("a") == [True]
    assert rig.publish("a") == [False]
    assert rig.ids() == ["a"]
    assert [row[1] for row in rig.fetch()] == ["a"]
    assert rig.publish("a") == [False]
    assert rig.ids() == []


def test_an_id_that_nobody_holds_is_queued_again(rig):
    rig.publish("a")
    rig.client.delete(f"dramatiq:{Q}")  # as after a partial loss
    assert rig.publish("a") == [False]
    assert rig.ids() == ["a"]


def test_a_batch_larger_than_one_call_keeps_its_order(rig):
    names = [f"m{n:04}" for n in range(2 * PUBLISH_BATCH + 1)]
    assert all(rig.publish(*names))
    assert rig.ids() == names


def test_text_stays_what_it_is(rig):
    words = {"job": "影片 🎬 «עברית»"}
    rig.broker.publish("标识-🎉", "parse", Q, words)
    queue, message_id, data, tries = rig.fetch()[0]
    assert (queue, message_id, tries) == (Q, "标识-🎉", 1)
    assert json.loads(data)["kwargs"] == words


def test_delays_and_positional_arguments_are_refused(rig):
    message = Message(Q, "parse", (), {"job": "a"}, {})
    with pytest.raises(ValueError, match="outbox"):
        rig.broker.enqueue(message, delay=1)
    with pytest.raises(ValueError, match="outbox"):
        rig.broker.enqueue(message.copy(options={"eta": 1}))
    with pytest.raises(ValueError, match="named"):
        rig.broker.enqueue(message.copy(args=(1,)))
    assert rig.client.keys("*") == []


def test_a_publisher_needs_no_actor_and_leaves_no_heartbeat(rig):
    rig.publish("a")
    rig.broker.stats([Q])
    assert rig.client.exists("dramatiq:__heartbeats__") == 0
    assert rig.broker.get_declared_actors() == set()


def test_readings_tell_waiting_from_in_flight(rig):
    rig.publish("a", "b", "c")
    rig.fetch(idle=1)
    stats = rig.broker.stats([Q, "parse.high"])
    assert (stats[Q].waiting, stats[Q].in_flight) == (2, 1)
    assert 0 <= stats[Q].oldest_age < 5
    assert stats["parse.high"].oldest_age is None
    assert rig.broker.waiting([Q]) == {Q: 2}
    assert rig.broker.in_flight([Q]) == {Q: 1}
    assert [rig.place(i) for i in "abz"] == ["in_flight", "waiting", "absent"]


def test_only_a_waiting_message_can_be_removed(rig):
    rig.publish("a", "b")
    rig.fetch(idle=1)
    assert rig.broker.remove(Q, "b")
    assert not rig.broker.remove(Q, "a")
    assert not rig.broker.remove(Q, "z")
    assert rig.broker.stats([Q])[Q].in_flight == 1


def test_a_failed_reading_is_an_error_and_never_a_zero(own_redis, rig_on):
    rig = rig_on(own_redis.url)
    rig.publish("a")
    own_redis.kill9()
    for reading in (
        lambda: rig.broker.waiting([Q]),
        lambda: rig.broker.in_flight([Q]),
        lambda: rig.broker.sights([(Q, "a")]),
        lambda: rig.broker.absent([(Q, "a")]),
        lambda: rig.broker.remove(Q, "a"),
        rig.broker.requeue_dead,
        lambda: rig.publish("b"),
    ):
        with pytest.raises(BrokerAwayError):
            reading()


def test_a_full_server_is_as_good_as_away(own_redis, rig_on):
    rig = rig_on(own_redis.url)
    rig.client.config_set("maxmemory", "1mb")
    with pytest.raises(BrokerAwayError):
        rig.publish("a")
