"""What sites are shown: a row a host, its content sealed; nothing here opens it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from sluice_core.adapters.db.schema import sites
from sluice_core.adapters.db.upsert import insert_into
from sluice_core.domain.errors import ConfigError

#: Sites that something is kept for.
CAP = 1_000
#: Seconds within which a further use is not worth a write.
USE_NOTED = 60.0


@dataclass(frozen=True, slots=True)
class Kept:
    """What is known of a site's row without opening it. Times are Unix seconds."""

    host: str
    sealed: str = field(repr=False)
    #: How many cookies.
    cookies: int
    #: When the first of them ends; None: with its session.
    expires_at: float | None
    #: Whether there is a user name with a password.
    password: bool
    created_at: float
    updated_at: float
    used_at: float | None = None


def put(connection: sa.Connection, new: Kept) -> Kept:
    """Write a host's row in place of the one that is there.

    Returns:
        the row, with the time of its first writing and of its last use.

    Raises:
        ConfigError: there are as many sites as there may be.

    """
    known = sa.select(sites.c.host)
    if connection.execute(known.where(sites.c.host == new.host)).first() is None:
        _refuse_beyond_cap(connection)
    values = {
        "sealed": new.sealed,
        "cookies": new.cookies,
        "expires_at": new.expires_at,
        "password": new.password,
        "updated_at": new.updated_at,
    }
    insert = insert_into(connection, sites).values(
        host=new.host, created_at=new.created_at, **values
    )
    written = connection.execute(
        insert.on_conflict_do_update(index_elements=[sites.c.host], set_=values).returning(sites)
    ).one()
    return Kept(**written._mapping)  # noqa: SLF001  # SQLAlchemy's documented way to read by name


def _refuse_beyond_cap(connection: sa.Connection) -> None:
    full = sa.select(sites.c.host).offset(CAP - 1).limit(1)
    if connection.execute(full).first() is not None:
        raise ConfigError(f"There are already {CAP} sites; remove some first.")


def remove(connection: sa.Connection, host: str) -> bool:
    """Forget a host; False when nothing was kept for it."""
    return connection.execute(sa.delete(sites).where(sites.c.host == host)).rowcount == 1


def all_sites(connection: sa.Connection) -> list[Kept]:
    """Every row, by host."""
    return _rows(connection, sa.select(sites).order_by(sites.c.host))


def hosts(connection: sa.Connection) -> list[str]:
    """All hosts that something is kept for, in order."""
    return list(connection.execute(sa.select(sites.c.host).order_by(sites.c.host)).scalars())


def of_hosts(connection: sa.Connection, named: Sequence[str]) -> list[Kept]:
    """The rows of these hosts."""
    return _rows(connection, sa.select(sites).where(sites.c.host.in_(named)))


def reseal(connection: sa.Connection, host: str, *, old: str, new: str) -> bool:
    """Put the same content under another key; False when it was changed meanwhile."""
    change = sa.update(sites).where(sites.c.host == host, sites.c.sealed == old).values(sealed=new)
    return connection.execute(change).rowcount == 1


def note_use(connection: sa.Connection, hosts: Sequence[str], *, now: float) -> None:
    """Say that these were shown to their sites now."""
    connection.execute(sa.update(sites).where(sites.c.host.in_(hosts)).values(used_at=now))


def _rows(connection: sa.Connection, query: sa.Select[tuple[object, ...]]) -> list[Kept]:
    return [Kept(**row._mapping) for row in connection.execute(query)]  # noqa: SLF001  # as above
