"""`/metrics`, on the API's port or one of its own, and the time that requests take."""

from __future__ import annotations

import time

from flask import Response, abort, g, request
from flask_openapi3.openapi import OpenAPI

from sluice_api.deps import Deps
from sluice_core.adapters.metrics import render
from sluice_core.adapters.settings import MetricsSettings
from sluice_core.domain.metrics import METRICS

#: What the port of its own shows.
_OWN_PORT = ("/metrics", "/livez", "/readyz")
_METHODS = METRICS["http_request_duration_seconds"].labels["method"]


def install(app: OpenAPI, deps: Deps) -> None:
    """Add the page and the clock; before anything that refuses requests, so that all are timed."""
    own = port(deps.settings.metrics)

    @app.before_request
    def _begin() -> Response | None:
        g.began = time.perf_counter()
        if not own:
            return None
        if request.environ.get("SERVER_PORT") != str(own):
            return abort(404) if request.path == "/metrics" else None
        if request.path not in _OWN_PORT:
            abort(404)
        # Prometheus comes by the pod's address: no check of names is meant for this.
        return _page() if request.path == "/metrics" else None

    @app.get(
        "/metrics",
        summary="Figures for Prometheus",
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    def metrics() -> Response:
        return _page()

    def _page() -> Response:
        accept = request.headers.get("Accept", "")
        body, content_type = render([deps.metrics.registry, deps.installation], accept)
        return Response(body, content_type=content_type, headers={"Cache-Control": "no-store"})

    @app.after_request
    def _observe(response: Response) -> Response:
        began = g.get("began")
        if began is not None:
            method = request.method if request.method in _METHODS else "other"
            route = request.url_rule.rule if request.url_rule else "unmatched"
            seconds = time.perf_counter() - began
            deps.metrics.request(route, method, response.status_code, seconds)
        return response


def port(settings: MetricsSettings) -> int:
    """The port of its own that the API has for this; 0: none."""
    return settings.api_metrics_port or settings.metrics_port
