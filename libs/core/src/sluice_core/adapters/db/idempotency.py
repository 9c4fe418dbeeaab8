"""Answers already given: the same `Idempotency-Key` means the same job for a day."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import sqlalchemy as sa

from sluice_core.adapters.db.schema import idempotency_keys, jobs
from sluice_core.adapters.db.upsert import insert_or_ignore

#: Seconds that a key is remembered.
KEPT = 86_400.0


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a key stands for."""

    job_id: str
    body_hash: str


def key_of(api_key_id: str | None, header: str, line: int | None = None) -> str:
    """The stored form of a header's value: never shared between API keys, nor between lines."""
    return digest([api_key_id, header, line])


def digest(parts: object) -> str:
    """SHA-256 of JSON values, the same whatever order their keys came in; hexadecimal."""
    text = json.dumps(parts, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def find(connection: sa.Connection, key: str, *, now: float) -> Remembered | None:
    """What the key stands for; a job that was deleted stands for nothing any more."""
    query = (
        sa.select(idempotency_keys)
        .join(jobs, jobs.c.id == idempotency_keys.c.job_id)
        .where(
            idempotency_keys.c.key == key,
            idempotency_keys.c.created_at > now - KEPT,
            jobs.c.deleted_at.is_(None),
        )
    )
    row = connection.execute(query).first()
    return Remembered(row.job_id, row.body_hash) if row else None


def remember(
    connection: sa.Connection, key: str, *, body_hash: str, job_id: str, now: float
) -> bool:
    """Store a key after `find` gave nothing; False when another request was faster just now."""
    # What `find` did not give is out of date: too old, or of a deleted job.
    stale = sa.or_(
        idempotency_keys.c.created_at <= now - KEPT,
        ~sa.exists().where(jobs.c.id == idempotency_keys.c.job_id, jobs.c.deleted_at.is_(None)),
    )
    connection.execute(sa.delete(idempotency_keys).where(idempotency_keys.c.key == key, stale))
    insert = (
        insert_or_ignore(connection, idempotency_keys)
        .values(key=key, body_hash=body_hash, job_id=job_id, created_at=now)
        .returning(idempotency_keys.c.key)
    )
    return connection.execute(insert).first() is not None


def purge(connection: sa.Connection, *, now: float) -> int:
    """Forget keys past their time; returns how many."""
    old = sa.delete(idempotency_keys).where(idempotency_keys.c.created_at <= now - KEPT)
    return connection.execute(old).rowcount
