"""Waiting at a process' start for stores that start with it."""

from __future__ import annotations

import time
from collections.abc import Callable

import sqlalchemy as sa
import structlog

from sluice_core.adapters.db import details
from sluice_core.adapters.db.engine import read
from sluice_core.adapters.storage import Storage
from sluice_core.domain.errors import NotYetError

log = structlog.get_logger(__name__)

#: Seconds between two looks.
_PAUSE = 1.0


def patiently(check: Callable[[], None], patience: float) -> None:
    """Repeat a check while the store behind it is only away, or not yet set up.

    Args:
        check: returns once the store is fit for use.
        patience: seconds.

    Raises:
        ConfigError: it is wrong, or still not there after `patience` seconds.

    """
    deadline = time.monotonic() + patience
    said = ""
    while True:
        try:
            check()
        except NotYetError as exc:
            if time.monotonic() > deadline:
                raise
            # Once: a store that is away for good would fill the terminal.
            if str(exc) != said:
                said = str(exc)
                log.warning("waiting_for_store", reason=said)
            time.sleep(_PAUSE)
        else:
            return


def check_storage(storage: Storage, database: sa.Engine) -> None:
    """See that files can be stored, in the place where the database says that there are some.

    Raises:
        ConfigError: one sentence on what is wrong.

    """
    with read(database) as connection:
        used = details.any_files(connection)
    storage.check(used=used)
