"""The baseline of submits: a Flask route that stores nothing, on the API's own kind of server.

`python -m tests.bench.bare` serves it on `SLUICE_HTTP_PORT`.
"""

from __future__ import annotations

from gevent import monkey

if __name__ == "__main__":
    # As the API does it, before anything else is imported.
    monkey.patch_all()

from typing import Any

from flask import Flask, Response, jsonify, request

from sluice_api.serve import listen
from sluice_api.server import Server
from sluice_core.adapters import settings


def app() -> Flask:
    """Reads JSON, answers with it."""
    bare = Flask("bare")

    @bare.post("/v1/jobs")
    def submit() -> tuple[Response, int]:
        return jsonify(request.get_json()), 202

    @bare.get("/livez")
    def livez() -> str:
        return "ok"

    return bare


class BareServer(Server):
    """The API's server without the API."""

    def load_config(self) -> None:
        super().load_config()
        # Its own worker and its end know of streams.
        self.cfg.set("worker_class", "gevent")
        self.cfg.set("worker_exit", lambda _server, _worker: None)

    def load(self) -> Any:
        return app()


if __name__ == "__main__":
    loaded = settings.load()
    BareServer(loaded, listen(loaded.http.http_host, loaded.http.http_port)).run()
