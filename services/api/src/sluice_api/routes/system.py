"""Presets and health."""

from __future__ import annotations

from collections.abc import Callable

import gevent
import sqlalchemy as sa
import structlog
from flask import Response, jsonify
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.tag import Tag
from sqlalchemy.exc import SQLAlchemyError

from sluice_api import models as m
from sluice_api.caller import need
from sluice_api.deps import Deps
from sluice_core.adapters.db import jobs as job_store
from sluice_core.adapters.db.access import Scope
from sluice_core.adapters.db.engine import is_read_only
from sluice_core.adapters.redis import call
from sluice_core.domain.errors import BrokerAwayError, ConfigError, NotYetError, StoreAwayError
from sluice_core.domain.lanes import STAGES, queues_of

log = structlog.get_logger(__name__)

#: Seconds until a storage is called away: its own tries, each with a limit, may take minutes, and
#: whoever asks wants to know before.
STORAGE_PATIENCE = 10.0

_TAG = Tag(name="system", description="What the installation does.")
_QUEUES = tuple(queue for actor in STAGES for queue in queues_of(actor))


def build(deps: Deps) -> APIBlueprint:
    api = APIBlueprint("system", __name__, url_prefix="/v1", abp_tags=[_TAG])

    @api.get("/presets", summary="What can be asked for", responses={200: m.PresetList})
    def presets() -> Response:
        need(Scope.READ)
        shown = [
            {"name": p.name, "title": p.title, "kind": p.kind.value} for p in deps.presets.values()
        ]
        return jsonify({"presets": shown, "default": "best"})

    return api


def build_health(deps: Deps) -> APIBlueprint:
    """Outside `/v1`: for probes, which have no key."""
    api = APIBlueprint("health", __name__, abp_tags=[_TAG])
    told: dict[str, str] = {}

    @api.get("/livez", summary="The process answers", responses={200: m.Health})
    def livez() -> Response:
        return jsonify({"ok": True, "parts": {}})

    @api.get("/readyz", summary="Its stores answer", responses={200: m.Health, 503: m.Health})
    def readyz(query: m.ReadyQuery) -> Response:
        """`?exclude=redis` for balancers: links are taken without it."""
        checks = {
            "database": lambda: deps.database.read(_check_database),
            "redis": lambda: _ping(deps),
            "storage": lambda: _check_storage(deps),
        }
        parts = {name: _told(checks[name]) for name in checks if name not in query.exclude}
        _log_changes(told, parts)
        ok = all(words == "ok" for words in parts.values())
        response = jsonify({"ok": ok, "parts": parts})
        response.status_code = 200 if ok else 503
        return response

    return api


def _log_changes(told: dict[str, str], parts: dict[str, str]) -> None:
    """One line for each store that is no longer as it was: a probe shows nobody its answer."""
    for name, words in parts.items():
        if told.get(name, "ok") != words:
            log.warning("not_ready" if words != "ok" else "ready_again", store=name, reason=words)
        told[name] = words


def _told(check: Callable[[], object]) -> str:
    """`ok`, or one sentence on what is wrong with a store."""
    try:
        check()
    except (StoreAwayError, BrokerAwayError, ConfigError) as exc:
        return str(exc) or "away"
    except SQLAlchemyError:
        return "The database has no tables yet; run `sluice migrate` first."
    return "ok"


def _ping(deps: Deps) -> None:
    with call():
        deps.signals.ping()


def _check_storage(deps: Deps) -> None:
    # Its own kind of exception, which no library takes for a fault that another try may mend.
    with gevent.Timeout(STORAGE_PATIENCE) as out_of_patience:
        try:
            deps.threads.run(deps.storage.check)
        except gevent.Timeout as exc:
            if exc is not out_of_patience:
                raise
            raise NotYetError(f"The storage did not answer within {STORAGE_PATIENCE:g} s.") from exc


def _check_database(connection: sa.Connection) -> None:
    # Also shows whether the tables are there.
    job_store.get(connection, "")
    if is_read_only(connection):
        raise StoreAwayError("The database takes no writes: it is read-only")
