"""What a child takes along to the sites of its job's link, and to no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sluice_core.adapters.db import sites
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.seal import Sealer, SealError
from sluice_core.domain.errors import SluiceError, StoreAwayError
from sluice_core.domain.sites import Login, host_of, merged_cookies, sites_above
from sluice_core.runtime.deps import StageDeps
from sluice_core.runtime.run import Run, stored

#: Where the whole link stands in a stored entry or description, when it is shown masked.
SEALED = "sealed_link"


@dataclass(frozen=True, slots=True)
class Sites:
    """What is kept for sites, from one run's side."""

    #: The link to ask, whole.
    link: str
    #: What the child gets of it, by the link and by where it led; the nearest first.
    given: tuple[str, ...]
    #: The others that something is kept for.
    others: tuple[str, ...]


def sites_of(run: Run, landed: Sequence[str] = ()) -> Sites:
    """Which sites a run may show what is kept for them.

    Args:
        run: a run.
        landed: sites that its link was seen to lead to.

    Raises:
        SluiceError: `login_required`, the run's link can't be opened.

    """
    link = whole_link(run)
    named = dict.fromkeys((*sites_above(host_of(link)), *landed))
    kept = stored(run.deps, sites.hosts, begin=read)
    return Sites(
        link,
        tuple(host for host in named if host in kept),
        tuple(host for host in kept if host not in named),
    )


def login_request(run: Run, hosts: Sequence[str]) -> dict[str, Any]:
    """`login` of a request, see `sluice_core.adapters.ytdlp`; empty when nothing is kept.

    Asked before each child, so that a change holds from the next one on.

    Raises:
        SluiceError: `login_required`, what is kept can't be opened. Without it the site would give
            something else, or less, and nobody would know why.

    """
    if not hosts:
        return {}
    deps = run.deps
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


def whole_link(run: Run) -> str:
    """The job's link as it is asked; people see another one where it holds a word of a site's.

    Raises:
        SluiceError: `login_required`, it can't be opened.

    """
    return opened_link(run.deps, run.job.entry or {}) or run.job.request.url


def opened_link(deps: StageDeps, stored_in: Mapping[str, Any]) -> str | None:
    """The whole link of a stored entry or description; None where what it shows is whole.

    Raises:
        SluiceError: `login_required`, it can't be opened.

    """
    sealed = stored_in.get(SEALED)
    if sealed is None:
        return None
    try:
        return Sealer(deps.settings.sites.keys).open(sealed).decode()
    except SealError as exc:
        raise SluiceError(
            f"the link can't be opened with SLUICE_SITE_SECRETS_KEY: {exc}", code="login_required"
        ) from exc


def sealed_link(deps: StageDeps, event: Mapping[str, Any]) -> dict[str, str]:
    """What to store beside the link of a child's event, where that is masked."""
    link = event.get("sealable")
    if link is None:
        return {}
    return {SEALED: Sealer(deps.settings.sites.keys).seal(link.encode())}


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
