"""From a validated request to a job: one transaction, whatever else happens at the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import sqlalchemy as sa

from sluice_api.models import JobRequest
from sluice_api.problems import Code, ProblemError, of_job_error
from sluice_core.adapters.db import idempotency
from sluice_core.adapters.db import jobs as job_store
from sluice_core.adapters.db.jobs import NewJob
from sluice_core.adapters.db.outbox import OutboxRow
from sluice_core.domain.egress import AddressPolicy
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.job import Job, Request
from sluice_core.domain.presets import Preset
from sluice_core.domain.states import TERMINAL
from sluice_core.domain.urls import check_url

#: Rounds against other requests for the same thing; each round, one of them wins.
_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Order:
    """One request, checked, with what makes it the same as another one."""

    request: Request
    api_key_id: str | None
    force: bool = False
    #: Stored form of the Idempotency-Key, see `idempotency.key_of`.
    idempotency_key: str | None = None

    @property
    def fingerprint(self) -> str:
        """The same for the same whole request of the same submitter."""
        return idempotency.digest([self.api_key_id, _parts(self.request)])

    def with_key(self, key: str) -> Order:
        return replace(self, idempotency_key=key)

    @property
    def body_hash(self) -> str:
        return idempotency.digest([self.force, _parts(self.request)])


@dataclass(frozen=True, slots=True)
class Accepted:
    """The job that stands for an order."""

    job: Job
    #: To be published; None when the job was there before.
    message: OutboxRow | None = None
    #: The same request had a job already.
    existing: bool = False
    #: The same Idempotency-Key had this job already.
    replayed: bool = False


class LostRaceError(Exception):
    """Another request with the same key committed first: roll back and look again."""


def check(
    body: JobRequest,
    *,
    presets: Mapping[str, Preset],
    addresses: AddressPolicy,
    api_key_id: str | None,
) -> Order:
    """The order that a request means.

    Raises:
        ProblemError: the link, the callback or the preset is refused.

    """
    if body.preset not in presets:
        names = ", ".join(presets)
        raise ProblemError(
            422, Code.UNKNOWN_PRESET, f"There is no preset {body.preset!r}; there are {names}."
        )
    url = _checked_link("url", body.url, addresses)
    callback = body.callback_url
    if callback is not None:
        callback = _checked_link("callback_url", callback, addresses)
    return Order(body.to_request(url=url, callback_url=callback), api_key_id, body.force)


def _checked_link(field: str, link: str, addresses: AddressPolicy) -> str:
    try:
        return check_url(link, allowed=addresses.is_open)
    except SluiceError as exc:
        raise of_job_error(exc, field=field) from exc


def place(connection: sa.Connection, order: Order, *, now: float, retention: float) -> Accepted:
    """Write one order, or find the job that stands for it; to be run again on `LostRaceError`.

    Raises:
        ProblemError: its Idempotency-Key was used with another body.

    """
    key = order.idempotency_key
    if key is None:
        return place_many(connection, [order], now=now, retention=retention)[0]
    known = idempotency.find(connection, key, now=now)
    if known is not None:
        return _replay(connection, order, known)
    # A key of its own asks for a job of its own, even for a request that has one.
    placed = place_many(connection, [replace(order, force=True)], now=now, retention=retention)[0]
    stored = idempotency.remember(
        connection, key, body_hash=order.body_hash, job_id=placed.job.id, now=now
    )
    if not stored:
        raise LostRaceError
    return placed


def _replay(connection: sa.Connection, order: Order, known: idempotency.Remembered) -> Accepted:
    if known.body_hash != order.body_hash:
        raise ProblemError(
            422,
            Code.IDEMPOTENCY_MISMATCH,
            "This Idempotency-Key was used with another body within the last 24 hours.",
        )
    job = job_store.get(connection, known.job_id)
    if job is None:
        # Deleted since `find`: the next round takes the key for a new job.
        raise LostRaceError
    return Accepted(job, replayed=True)


def place_many(
    connection: sa.Connection, orders: Sequence[Order], *, now: float, retention: float
) -> list[Accepted]:
    """Write orders without Idempotency-Keys, in order; see `Accepted` for what was there."""
    found: dict[int, Accepted] = {}
    left = list(enumerate(orders))
    for round_ in range(_ROUNDS):
        # Who can't share a job, or keeps meeting one that ends meanwhile, gets one of its own.
        own = round_ == _ROUNDS - 1
        rows = job_store.insert_many(
            connection, [_new(order, own=own or (round_ > 0 and order.force)) for _, order in left],
            now=now,
        )  # fmt: skip
        for (at, order), (job, message) in zip(left, rows, strict=True):
            if job is not None:
                found[at] = Accepted(job, message)
            elif not order.force:
                existing = _existing(connection, order, now=now, retention=retention)
                if existing is not None:
                    found[at] = Accepted(existing, existing=True)
        left = [entry for entry in left if entry[0] not in found]
        if not left:
            break
    return [found[at] for at in range(len(orders))]


def _new(order: Order, *, own: bool) -> NewJob:
    return NewJob(
        request=order.request,
        dedup_key=None if own else order.fingerprint,
        api_key_id=order.api_key_id,
    )


def _existing(
    connection: sa.Connection, order: Order, *, now: float, retention: float
) -> Job | None:
    job = job_store.by_dedup_key(connection, order.fingerprint)
    if job is None or job.status not in TERMINAL or job.expires_at is None:
        return job
    job_store.extend_expiry(connection, job.id, now + retention)
    return job_store.get(connection, job.id)


_FIELDS = tuple(field.name for field in fields(Request))


def _parts(request: Request) -> list[object]:
    # Not `asdict`, whose deep copies are most of the work of a large batch.
    return [getattr(request, name) for name in _FIELDS]
