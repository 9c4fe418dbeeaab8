"""What a worker says of itself in Redis, for people who look at the pool."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import redis as redis_library
import structlog

from sluice_core.adapters import redis, versions
from sluice_core.domain.errors import BrokerAwayError
from sluice_core.domain.keys import worker as worker_key
from sluice_core.domain.lanes import Actor
from sluice_core.runtime.broker.middleware.recycle import resident_memory

log = structlog.get_logger(__name__)

#: Seconds after which what a worker said of itself is forgotten.
TTL = 15


@dataclass(slots=True)
class Presence:
    """One worker's; a Redis that is away is told nothing, and nobody minds."""

    signals: redis_library.Redis
    stage: Actor
    worker_id: str
    #: Unix seconds.
    clock: Callable[[], float]
    #: As in `versions.of_packages`.
    ytdlp: Path | None = None
    since: float = 0.0

    def show(self, jobs: Sequence[str], *, standby: str, draining: bool) -> None:
        """Say what it does now; to be said again within `TTL` seconds.

        Args:
            jobs: ids of what it runs.
            standby: name of the autoscaler's mark if it may go now; empty otherwise.
            draining: it takes nothing more.

        """
        self.since = self.since or self.clock()
        key = worker_key(self.worker_id)
        try:
            with redis.call():
                pipe = self.signals.pipeline(transaction=False)
                pipe.hset(
                    key,
                    mapping={
                        "stage": self.stage.value,
                        "since": self.since,
                        "pid": os.getpid(),
                        "jobs": " ".join(jobs),
                        "standby": standby,
                        "draining": int(draining),
                        "memory": resident_memory(),
                        "versions": json.dumps(self._versions()),
                    },
                )
                pipe.expire(key, TTL)
                pipe.execute()
        except BrokerAwayError as exc:
            log.debug("presence_lost", error=str(exc))

    def _versions(self) -> dict[str, str]:
        ffmpeg = versions.of_ffmpeg() if self.stage is Actor.TRANSCODE else None
        return {**versions.of_packages(self.ytdlp), **({"ffmpeg": ffmpeg} if ffmpeg else {})}
