"""Paused queues: nothing is handed out, whoever knows of the pause, and no longer than it lasts."""

from __future__ import annotations

import pytest

from sluice_testing.waiting import until

QUEUE = "parse.default"
LANES = ((QUEUE, False), ("parse.low", True))


@pytest.fixture
def fetch(rig):
    def fetch():
        return [row[1] for row in rig.fetch(lanes=LANES)]

    return fetch


def test_nothing_of_a_paused_queue_is_handed_out_until_it_is_resumed(rig, fetch):
    rig.broker.pause(QUEUE)
    rig.broker.pause(QUEUE)
    rig.publish("d1", "d2")
    rig.publish("l1", lane="low")
    assert rig.broker.paused() == {QUEUE}
    assert fetch() == ["l1"]
    assert fetch() == []
    # Nobody is woken for what nobody may take.
    assert not rig.client.exists(f"dramatiq:__wake__.{QUEUE}")
    rig.broker.resume(QUEUE)
    assert rig.client.llen(f"dramatiq:__wake__.{QUEUE}") == 1
    assert fetch() == ["d1", "d2"]


@pytest.mark.usefixtures("only_when_woken")
def test_an_idle_worker_takes_what_waits_as_soon_as_the_queue_is_resumed(rig, gate):
    gate.open.set()
    rig.worker(gate)
    rig.broker.pause(QUEUE)
    rig.publish("d1")
    rig.publish("l1", lane="low")
    until(lambda: gate.ended == ["l1"])
    rig.broker.resume(QUEUE)
    until(lambda: gate.ended == ["l1", "d1"])


@pytest.mark.usefixtures("only_when_woken")
def test_a_worker_that_knows_of_the_pause_takes_nothing_of_an_emptied_redis(rig, gate):
    gate.open.set()
    paused = {QUEUE}
    rig.worker(gate, paused=lambda: frozenset(paused))
    rig.publish("d1", "d2")
    rig.publish("l1", lane="low")
    until(lambda: gate.ended == ["l1"])
    # It waits at the server for other lanes now; the end of the pause ends that wait too.
    paused.clear()
    until(lambda: gate.ended == ["l1", "d1", "d2"])
