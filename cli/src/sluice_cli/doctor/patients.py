"""The three jobs of an examination: submitted, followed to their end, and removed."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from sluice_cli.client.api import Api, RefusedError
from sluice_cli.client.follow import TERMINAL
from sluice_cli.exits import Exit, Stop

#: Seconds that the delayed job is to wait.
DELAY = 5.0
#: Seconds between two looks.
POLL = 0.3


class Patients:
    """Jobs by role: `good`, `bad` and `delayed`.

    Args:
        api: of the server that is examined.
        good: link that can be fetched.
        bad: link that fails for a reason that may pass.
        site: `address:port` of the sample site, when the links lead there.

    """

    def __init__(self, api: Api, *, good: str, bad: str, site: str | None) -> None:
        self._api = api
        self._good, self._bad, self._site = good, bad, site
        self.ids: dict[str, str] = {}
        #: Unix seconds, by the server's clock, before which the delayed one must not run.
        self.not_before = 0.0

    def admit(self) -> None:
        """Submit all three.

        Raises:
            Stop: the server may not reach the sample site.

        """
        first = self._submit("good", self._good)
        # The server's clock alone counts: this machine's may differ from it.
        start = datetime.fromisoformat(first["created_at"]) + timedelta(seconds=DELAY)
        self.not_before = start.timestamp()
        self._submit("bad", self._bad)
        self._submit("delayed", self._good, not_before=start.isoformat())

    def _submit(self, role: str, link: str, **fields: Any) -> dict[str, Any]:
        body = {"url": link, "preset": "original", "force": True, **fields}
        body["metadata"] = {"doctor": role}
        try:
            job, _ = self._api.submit(body, idempotency_key=str(uuid.uuid4()))
        except RefusedError as exc:
            if exc.code != "blocked_address" or self._site is None:
                raise
            port = self._site.rpartition(":")[2]
            raise Stop(
                Exit.WRONG_USE,
                f"this server may not reach the sample site: start it with"
                f" SLUICE_EGRESS_ALLOW={self._site} and give --site-port {port},"
                f" or give --good LINK.",
            ) from exc
        self.ids[role] = job["id"]
        return job

    def wait(self, timeout: float) -> dict[str, dict[str, Any]]:
        """The jobs by role, ended or as they are after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            jobs = {role: self._api.job(job_id) for role, job_id in self.ids.items()}
            ended = all(job["status"] in TERMINAL for job in jobs.values())
            if ended or time.monotonic() > deadline:
                return jobs
            time.sleep(POLL)

    def attempts(self, role: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._of(role, "attempts")["attempts"]
        return found

    def messages_left(self, patience: float) -> int:
        """How many messages are on their way for jobs that have ended.

        A worker tells the broker of its run a moment after everybody can see how that ended: what
        is there at first may go within `patience` seconds.
        """
        deadline = time.monotonic() + patience
        while left := sum(len(self._of(role, "explain")["messages"]) for role in self.ids):
            if time.monotonic() > deadline:
                break
            time.sleep(POLL)
        return left

    def letters(self, role: str) -> list[dict[str, Any]]:
        page = self._api.get("v1/dead-letters", {"job": self.ids[role]})
        found: list[dict[str, Any]] = page["dead_letters"]
        return found

    def discharge(self) -> list[str]:
        """Remove jobs and dead letters; returns what is left of them."""
        for role in self.ids:
            for letter in self.letters(role):
                self._api.remove(f"v1/dead-letters/{letter['id']}")
        for job_id in self.ids.values():
            self._gone(job_id, remove=True)
        return [job_id for job_id in self.ids.values() if not self._gone(job_id)]

    def _of(self, role: str, what: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._api.get(f"v1/jobs/{quote(self.ids[role])}/{what}")
        return found

    def _gone(self, job_id: str, *, remove: bool = False) -> bool:
        try:
            if remove:
                self._api.delete(job_id)
            else:
                self._api.job(job_id)
        except RefusedError as exc:
            if exc.code != "not_found":
                raise
            return True
        return False
