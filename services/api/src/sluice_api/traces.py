"""Each request belongs to a trace: that of its `traceparent`, or a new one."""

from __future__ import annotations

from flask import Flask, Response, request

from sluice_core.adapters import tracing
from sluice_core.domain.trace import HEADER


def install(app: Flask) -> None:
    """Enter the trace before anything else looks at the request, and tell it with each answer."""

    @app.before_request
    def _enter() -> None:
        tracing.enter(request.headers.get(HEADER))

    @app.after_request
    def _tell(response: Response) -> Response:
        present = tracing.current()
        if present is not None:
            response.headers[HEADER] = present.header
        return response
