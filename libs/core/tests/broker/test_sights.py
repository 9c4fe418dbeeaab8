"""All that is known of a message, at one moment."""

from __future__ import annotations

import pytest

from sluice_core.domain.errors import BrokerAwayError
from sluice_core.domain.explain import Sight

Q = "parse.default"


def test_place_position_holder_and_deliveries(rig):
    rig.publish("a", "b", "c")
    rig.fetch("worker-1", idle=1)
    assert rig.broker.sights([(Q, "a"), (Q, "b"), (Q, "c"), (Q, "d"), ("parse.high", "a")]) == [
        Sight("in_flight", None, 1, "worker-1"),
        Sight("waiting", 0, 0, None),
        Sight("waiting", 1, 0, None),
        Sight("absent"),
        Sight("absent"),
    ]
    assert rig.broker.scripts.reconcile("worker-1", [Q], []) == 1
    rig.fetch("worker-2", idle=1)
    assert rig.broker.sights([(Q, "a")]) == [Sight("in_flight", None, 2, "worker-2")]
    # Its holder was forgotten, as when its heartbeats were lost.
    rig.client.delete("dramatiq:__heartbeats__")
    assert rig.broker.sights([(Q, "a")]) == [Sight("in_flight", None, 2, None)]


def test_which_of_many_are_gone(rig):
    rig.publish("a", "b")
    rig.fetch(idle=1)
    assert rig.broker.absent([(Q, "a"), (Q, "b"), (Q, "c"), ("parse.high", "a")]) == {"c", "a"}
    assert rig.broker.absent([]) == frozenset()


def test_away_is_an_error(rig_on, own_redis):
    rig = rig_on(own_redis.url)
    own_redis.stop()
    with pytest.raises(BrokerAwayError):
        rig.broker.sights([(Q, "a")])
