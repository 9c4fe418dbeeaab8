"""API keys: random, shown once, stored as a hash."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db.schema import api_keys
from sluice_core.adapters.db.upsert import insert_or_ignore
from sluice_core.adapters.ids import is_id, new_id
from sluice_core.domain.errors import ConfigError

#: Lets people and secret scanners tell what a leaked text is.
KEY_PREFIX = "sluice_"
#: Open keys, and revoked ones that are remembered beside them.
MAX_KEYS = 1_000
#: Bytes of randomness in a key: guessing is hopeless, so no slow hash is needed.
KEY_BYTES = 32


class Scope(StrEnum):
    """What a key may do."""

    #: Hand in links, and cancel, retry and delete what it handed in.
    SUBMIT = "submit"
    #: See jobs and fetch files.
    READ = "read"
    #: See and move everybody's jobs, queues and workers.
    OPERATE = "operate"


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """A key's own limits; None: those of the settings, 0: none."""

    requests_per_minute: int | None = None
    #: Jobs under way, children included.
    max_active_jobs: int | None = None


USUAL_LIMITS = KeyLimits()


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as stored: without its text, which nobody can get back."""

    id: str
    name: str
    scopes: frozenset[Scope]
    #: SHA-256 of the key's text, in hex.
    hash: str
    created_at: float
    revoked_at: float | None = None
    limits: KeyLimits = USUAL_LIMITS


def create(
    connection: sa.Connection,
    *,
    name: str,
    scopes: Collection[Scope],
    now: float,
    limits: KeyLimits = USUAL_LIMITS,
) -> tuple[str, ApiKey]:
    """Write a new key.

    Returns:
        its text, to be shown this once, and its row.

    Raises:
        ValueError: no scope was given.
        ConfigError: there are as many open keys as there may be.

    """
    if not scopes:
        raise ValueError("a key without a scope opens nothing")
    text = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    key = _insert(connection, text, name=name, scopes=scopes, now=now, limits=limits)
    if key is None:
        raise RuntimeError("32 random bytes came twice")
    return text, key


def ensure(
    connection: sa.Connection, *, text: str, name: str, scopes: Collection[Scope], now: float
) -> bool:
    """Write a key whose text the operator chose; False when it is there, even if revoked.

    Raises:
        ConfigError: its text is too short to be a secret, or there is no place for more keys.

    """
    if len(text) < KEY_BYTES:
        raise ConfigError(f"SLUICE_BOOTSTRAP_KEY needs at least {KEY_BYTES} characters.")
    known = sa.select(api_keys.c.id).where(api_keys.c.hash == hash_of(text))
    if connection.execute(known).first() is not None:
        return False
    return _insert(connection, text, name=name, scopes=scopes, now=now) is not None


def _insert(
    connection: sa.Connection,
    text: str,
    *,
    name: str,
    scopes: Collection[Scope],
    now: float,
    limits: KeyLimits = USUAL_LIMITS,
) -> ApiKey | None:
    """The written key; None when another one with this text came first."""
    _make_room(connection)
    key = ApiKey(
        new_id(),
        name[:128],
        frozenset(scopes),
        hash_of(text),
        now,
        limits=limits,
    )
    written = connection.execute(
        insert_or_ignore(connection, api_keys)
        .values(
            id=key.id,
            name=key.name,
            hash=key.hash,
            scopes=" ".join(sorted(key.scopes)),
            requests_per_minute=limits.requests_per_minute,
            max_active_jobs=limits.max_active_jobs,
            created_at=now,
        )
        .returning(api_keys.c.id)
    ).first()
    return key if written is not None else None


def _make_room(connection: sa.Connection) -> None:
    """Refuse when all places are taken, and forget the oldest of too many revoked keys."""
    is_open = api_keys.c.revoked_at.is_(None)
    full = sa.select(api_keys.c.id).where(is_open).offset(MAX_KEYS - 1).limit(1)
    if connection.execute(full).first() is not None:
        raise ConfigError(f"There are already {MAX_KEYS} open keys; revoke some first.")
    newest_over = connection.execute(
        sa.select(api_keys.c.id)
        .where(~is_open)
        .order_by(api_keys.c.id.desc())
        .offset(MAX_KEYS)
        .limit(1)
    ).scalar()
    if newest_over is not None:
        connection.execute(sa.delete(api_keys).where(~is_open, api_keys.c.id <= newest_over))


def hash_of(text: str) -> str:
    """What is stored of a key's text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def list_keys(connection: sa.Connection) -> list[ApiKey]:
    """All keys, oldest first, revoked ones too."""
    return [_to_key(r) for r in connection.execute(sa.select(api_keys).order_by(api_keys.c.id))]


def revoke(connection: sa.Connection, key_id: str, *, now: float) -> bool:
    """Close a key for good; False when there is no such open key."""
    done = connection.execute(
        sa.update(api_keys)
        .where(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
        .values(revoked_at=now)
    )
    return done.rowcount == 1


def lookup(connection: sa.Connection, text: str) -> ApiKey | None:
    """The open key with this text, or None."""
    return _open_key(connection, api_keys.c.hash == hash_of(text))


def get_open(connection: sa.Connection, key_id: str) -> ApiKey | None:
    """The key with this id, or None when it was revoked or never was.

    Strangers name it, in tickets and cookies: not every database takes any text.
    """
    if not is_id(key_id):
        return None
    return _open_key(connection, api_keys.c.id == key_id)


def _open_key(connection: sa.Connection, which: sa.ColumnElement[bool]) -> ApiKey | None:
    query = sa.select(api_keys).where(which, api_keys.c.revoked_at.is_(None))
    row = connection.execute(query).first()
    return _to_key(row) if row else None


def _to_key(row: sa.Row[Any]) -> ApiKey:
    r = row._mapping  # noqa: SLF001  # SQLAlchemy's documented way to read by name
    scopes = frozenset(Scope(word) for word in r["scopes"].split())
    return ApiKey(
        r["id"],
        r["name"],
        scopes,
        r["hash"],
        r["created_at"],
        r["revoked_at"],
        KeyLimits(r["requests_per_minute"], r["max_active_jobs"]),
    )
