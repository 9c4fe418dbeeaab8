"""What a child takes along to the site of its job's link, and to no other."""

from __future__ import annotations

from typing import Any

from sluice_core.adapters.db import sites
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.seal import Sealer, SealError
from sluice_core.domain.errors import SluiceError, StoreAwayError
from sluice_core.domain.sites import Login, host_of, merged_cookies, sites_above
from sluice_core.runtime.deps import StageDeps
from sluice_core.runtime.run import Run, stored


def login_request(run: Run) -> dict[str, Any]:
    """`login` of a request, see `sluice_core.adapters.ytdlp`; empty when nothing is kept.

    Asked before each child, so that a change holds from the next one on.

    Raises:
        SluiceError: `login_required`, what is kept can't be opened. Without it the site would give
            something else, or less, and nobody would know why.

    """
    deps = run.deps
    hosts = sites_above(host_of(run.job.request.url))
    kept = stored(deps, lambda connection: sites.of_hosts(connection, hosts), begin=read)
    if not kept:
        return {}
    logins = [_opened(deps, row) for row in kept]
    _note_use(deps, kept)
    passwords = [
        {"host": login.host, "username": login.username, "password": login.password}
        for login in logins
        if login.username is not None
    ]
    return {"login": {"cookies": merged_cookies(logins), "passwords": passwords}}


def _opened(deps: StageDeps, row: sites.Kept) -> Login:
    try:
        login = Login.loads(Sealer(deps.settings.sites.keys).open(row.sealed))
    except SealError as exc:
        raise SluiceError(
            f"what is kept for {row.host} can't be opened with SLUICE_SITE_SECRETS_KEY: {exc}",
            code="login_required",
        ) from exc
    if login.host != row.host:
        # Whoever may write rows could send it elsewhere.
        raise SluiceError(
            f"what is kept for {row.host} was sealed for another host", code="login_required"
        )
    return login


def _note_use(deps: StageDeps, kept: list[sites.Kept]) -> None:
    now = deps.clock()
    old = [row.host for row in kept if (row.used_at or 0.0) <= now - sites.USE_NOTED]
    if not old:
        return
    try:
        with write(deps.engine) as connection:
            sites.note_use(connection, old, now=now)
    except StoreAwayError:
        # No figure is worth a wait.
        deps.running.note_store(away=True)
