"""Tells submitters of the ends of their jobs, and never changes a job."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from sluice_core.adapters import callback_http, tracing
from sluice_core.adapters.callback_http import CallbackFailedError
from sluice_core.adapters.db import callbacks
from sluice_core.adapters.db.callbacks import Callback
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.egress import EgressGuard
from sluice_core.domain import trace
from sluice_core.domain.callback import (
    ID_HEADER,
    SIGNATURE_HEADER,
    callback_id,
    next_try,
    signature,
)
from sluice_core.domain.lanes import Actor
from sluice_core.runtime.broker import StageWorker, declare_actor
from sluice_core.runtime.deps import StageDeps, open_waker
from sluice_core.runtime.worker import keep_letter

log = structlog.get_logger(__name__)

#: Callbacks sent at once; each waits for somebody else's server.
THREADS = 4
#: A status of this hundred says that the receiver took it.
_TAKEN = 2
#: The receiver says that it will never take any.
_GONE = 410


@dataclass(frozen=True, slots=True)
class _Failure:
    reason: str
    #: Trying again is of no use.
    final: bool = False
    retry_after: float | None = None


def notifier(deps: StageDeps, *, paused: Callable[[], frozenset[str]] = frozenset) -> StageWorker:
    """The worker of the `notify` queues; `paused`: queues of which it takes nothing.

    Raises:
        ConfigError: EGRESS_ALLOW can't be read.

    """
    courier = Courier(deps, EgressGuard(allow=deps.settings.egress.allow))

    def notify(job: str, epoch: int, traceparent: str | None = None) -> None:
        del traceparent
        courier.deliver(job, epoch)

    declare_actor(deps.broker, Actor.NOTIFY, notify)
    return StageWorker(
        deps.broker,
        Actor.NOTIFY,
        threads=THREADS,
        waker=open_waker(deps),
        on_dead_letter=partial(keep_letter, deps),
        paused=paused,
        drain_event=deps.drain,
        worker_id=deps.worker_id,
    )


@dataclass(frozen=True, slots=True)
class Courier:
    """Sends callbacks.

    Args:
        deps: the stores and settings.
        guard: judges the addresses.
        timeouts: see `callback_http.post`.

    """

    deps: StageDeps
    guard: EgressGuard
    timeouts: tuple[float, float, float] = callback_http.TIMEOUTS

    def deliver(self, job_id: str, epoch: int) -> None:
        """Send one callback and store what came of it.

        Raises:
            StoreAwayError: nobody knows; the message comes again, the receiver may be told twice.

        """
        with read(self.deps.engine) as connection:
            callback = callbacks.find(connection, job_id, epoch)
        if callback is None or callback.outcome == "sent":
            with write(self.deps.engine) as connection:
                callbacks.drop_orders(connection, job_id, epoch)
            return
        if callback.outcome == "gave_up":
            callback = self._revived(callback, epoch)
        failure = self._send(callback)
        if failure is None:
            with write(self.deps.engine) as connection:
                callbacks.sent(connection, callback, now=self.deps.clock())
            log.info("callback_sent", job=job_id, state=callback.state, tries=callback.tries + 1)
            return
        self._store_failure(callback, failure)

    def _revived(self, callback: Callback, epoch: int) -> Callback:
        with write(self.deps.engine) as connection:
            # The message may name the job as it is now, not as it was.
            callbacks.drop_orders(connection, callback.job_id, epoch)
            callbacks.revive(connection, callback, now=self.deps.clock())
            found = callbacks.find(connection, callback.job_id, callback.epoch)
        return found or callback

    def _send(self, callback: Callback) -> _Failure | None:
        body = json.dumps(callback.body, ensure_ascii=False).encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Sluice",
            ID_HEADER: callback_id(callback.job_id, callback.state),
        }
        present = tracing.current()
        if present is not None:
            headers[trace.HEADER] = present.header
        secret = self.deps.settings.scheduler.callback_secret
        if secret:
            headers[SIGNATURE_HEADER] = signature(secret, body, self.deps.clock())
        try:
            answer = callback_http.post(
                callback.url,
                body,
                headers,
                guard=self.guard,
                proxy=self.deps.settings.egress.egress_proxy or None,
                timeouts=self.timeouts,
            )
        except CallbackFailedError as exc:
            return _Failure(str(exc), final=exc.blocked)
        if answer.status // 100 == _TAKEN:
            return None
        return _Failure(
            f"the receiver answered {answer.status}",
            final=answer.status == _GONE,
            retry_after=answer.retry_after,
        )

    def _store_failure(self, callback: Callback, failure: _Failure) -> None:
        now = self.deps.clock()
        due_at = None
        if not failure.final:
            due_at = next_try(
                tries=callback.tries + 1,
                ended_at=callback.created_at,
                now=now,
                rng=self.deps.rng,
                retry_after=failure.retry_after,
            )
        with write(self.deps.engine) as connection:
            callbacks.failed(connection, callback, failure.reason, due_at=due_at, now=now)
        log.warning(
            "callback_failed",
            job=callback.job_id,
            state=callback.state,
            reason=failure.reason,
            tries=callback.tries + 1,
            again_at=due_at,
        )
