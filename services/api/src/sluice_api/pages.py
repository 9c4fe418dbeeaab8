"""The page for people and the docs: files of this package, nothing from elsewhere."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from flask import Flask, Response, jsonify, send_from_directory
from flask_openapi3.openapi import OpenAPI

from sluice_api.deps import Deps
from sluice_api.prefix import of_request
from sluice_core.domain.errors import ConfigError

_STATIC = Path(__file__).parent / "static"

#: What the page may load and do: its own files only.
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
#: Swagger UI writes style attributes and has pictures in its style sheet.
_DOCS_POLICY = _PAGE_POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")

#: Headers of every answer that does not bring its own.
_GUARDS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
_JSON_GUARDS = {**_GUARDS, "Cache-Control": "no-store"}


def install(app: OpenAPI, deps: Deps) -> None:
    """Add `/`, `/static/…`, `/docs`, `/openapi.json` and the headers of every answer."""
    swagger = _swagger_folder()

    @app.route("/")
    def page() -> Response:
        return _file(_STATIC, "index.html", _PAGE_POLICY)

    @app.route("/static/<path:name>")
    def static_file(name: str) -> Response:
        return _file(_STATIC, name, _PAGE_POLICY)

    @app.route("/docs")
    def docs() -> Response:
        return _file(_STATIC, "docs.html", _DOCS_POLICY)

    @app.route("/docs/<path:name>")
    def docs_file(name: str) -> Response:
        return _file(swagger, name, _DOCS_POLICY)

    @app.route("/openapi.json")
    def openapi() -> Response:
        return jsonify({**app.api_doc, "servers": [{"url": of_request() or "/"}]})

    @app.route("/config.json")
    def config() -> Response:
        """What the page must know before it has a key."""
        return jsonify({"keys_required": deps.settings.http.keys_required})

    _add_headers(app)


def _swagger_folder() -> Path:
    """The wheel's files of Swagger UI.

    Raises:
        ConfigError: the wheel is not installed.

    """
    found = importlib.util.find_spec("flask_openapi3_swagger")
    if found is None or found.origin is None:
        raise ConfigError("The package flask-openapi3-swagger is not installed.")
    return Path(found.origin).parent / "templates" / "swagger"


def _file(folder: Path, name: str, policy: str) -> Response:
    response = send_from_directory(folder, name)
    response.headers["Content-Security-Policy"] = policy
    # Asked again each time, answered by 304: a new release is there at once.
    response.headers["Cache-Control"] = "no-cache"
    return response


def _add_headers(app: Flask) -> None:
    @app.after_request
    def _guard(response: Response) -> Response:
        headers = response.headers
        # `setdefault` raises and catches an error for each that is not there.
        present = {name.lower() for name, _ in headers}
        wanted = _GUARDS
        if response.mimetype in ("application/json", "application/problem+json"):
            wanted = _JSON_GUARDS
        for name, value in wanted.items():
            if name.lower() not in present:
                headers.add(name, value)
        return response
