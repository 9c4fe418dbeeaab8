# ruff: noqa: ARG005  # the callback has a fixed signature
"""A worker process for tests: `worker_process.py URL ACTOR SECONDS [CLOCK_AHEAD]`.

Says `boot`, then `begin <job>` and `end <job>` on stdout; drains at SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import time
from threading import Event

from sluice_core.adapters.redis import connect_broker, connect_waker
from sluice_core.domain.lanes import Actor
from sluice_core.runtime.broker import SluiceBroker, StageWorker, declare_actor
from sluice_core.runtime.broker.middleware.shutdown import DrainNotice


def say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


def main(url: str, actor_name: str, seconds: float, clock_ahead: float) -> None:
    actual = time.time
    time.time = lambda: actual() + clock_ahead

    def run(job: str) -> None:
        say("begin", job)
        time.sleep(seconds)
        say("end", job)

    actor, drain_event, ended = Actor(actor_name), Event(), Event()
    broker = SluiceBroker(connect_broker(url), middleware=[DrainNotice(drain_event)])
    declare_actor(broker, actor, run)
    worker = StageWorker(
        broker,
        actor,
        threads=1,
        waker=connect_waker(url),
        on_dead_letter=lambda raw, reason: say("dead", reason),
        drain_event=drain_event,
    )
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    # Before the start: what waits already begins at once.
    say("boot")
    worker.start()
    ended.wait(120)
    worker.drain(10)
    worker.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
