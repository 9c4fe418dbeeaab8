"""Following jobs to their end: by events, by asking again when there are none."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from sluice_cli.client.api import Api, RefusedError, UnreachableError

TERMINAL = frozenset({"SUCCESS", "PARTIAL", "FAILED", "CANCELED"})
#: Seconds without any answer after which the server counts as unreachable.
PATIENCE = 60.0
#: Seconds between two rounds when events don't come.
POLL = 1.0
#: Ids that fit into one address; more are followed by asking.
MAX_IDS = 100


class Follower:
    """The newest word on each of some jobs."""

    def __init__(self, api: Api, job_ids: list[str]) -> None:
        self._api = api
        self._ids = job_ids
        self._last_id: str | None = None
        self._heard = time.monotonic()
        self._events_work = len(job_ids) <= MAX_IDS
        #: id -> job as last heard.
        self.jobs: dict[str, dict[str, Any]] = {}

    @property
    def active(self) -> list[str]:
        """Jobs not known to have ended."""
        return [i for i in self._ids if self.jobs.get(i, {}).get("status") not in TERMINAL]

    def updates(self) -> Iterator[dict[str, Any]]:
        """Each job whenever something was heard of it, until all have ended.

        Raises:
            UnreachableError: nothing was heard for `PATIENCE` seconds.
            RefusedError: the server says no, e.g. a job was deleted meanwhile.

        """
        while True:
            yield from self._ask()
            if not self.active:
                return
            if self._events_work:
                yield from self._listen()
            if self.active:
                time.sleep(POLL)

    def _ask(self) -> Iterator[dict[str, Any]]:
        for job_id in self.active:
            try:
                self.jobs[job_id] = self._api.job(job_id)
            except UnreachableError:
                self._check_patience()
                return
            self._heard = time.monotonic()
            yield self.jobs[job_id]

    def _listen(self) -> Iterator[dict[str, Any]]:
        try:
            for event in self._api.events(self.active, last_id=self._last_id):
                self._heard = time.monotonic()
                self._last_id = event.id or self._last_id
                job = self._merged(event.kind, event.data)
                if job is not None:
                    yield job
                if not self.active:
                    return
        except UnreachableError:
            # Cut, or too busy for a stream: asking tells which.
            return
        except RefusedError:
            # An old server or a proxy without streams.
            self._events_work = False

    def _merged(self, kind: str, data: str) -> dict[str, Any] | None:
        if kind not in ("job", "progress"):
            return None
        heard = json.loads(data)
        known = self.jobs.get(heard.get("id"))
        if known is None or known["status"] in TERMINAL:
            return None
        self.jobs[heard["id"]] = {**known, **heard}
        return self.jobs[heard["id"]]

    def _check_patience(self) -> None:
        if time.monotonic() - self._heard > PATIENCE:
            raise UnreachableError(f"no answer for {PATIENCE:g} s")
