"""Puts the API together."""

from __future__ import annotations

from importlib.metadata import version

from flask_openapi3.models.info import Info
from flask_openapi3.openapi import OpenAPI
from pydantic import ValidationError

from sluice_api import caller, measure, pages, problems, traces
from sluice_api.bodies import ApiRequest
from sluice_api.deps import Deps, open_deps
from sluice_api.models import BatchBody, Problem
from sluice_api.problems import Code
from sluice_api.routes import (
    audit,
    bulk,
    dead_letters,
    demand,
    events,
    explain,
    files,
    jobs,
    keys,
    operate,
    schedules,
    session,
    sites,
    stats,
    subscriptions,
    system,
)
from sluice_core.adapters.settings import Settings

#: Under this name the application keeps its `Deps`.
EXTENSION = "sluice"

_ABOUT = """Takes a link and gives back a finished media file.

Errors are `application/problem+json` (RFC 9457) with a `code`, one of {codes}; a link that is
refused has a code of the jobs' own, `unsupported_url` or `blocked_address`."""


def create_app(settings: Settings, deps: Deps | None = None) -> OpenAPI:
    """The WSGI application.

    Args:
        settings: of this process.
        deps: the stores; opened by `open_deps` when not given.

    Raises:
        ConfigError: one sentence on what is set wrongly.

    """
    deps = deps or open_deps(settings)
    app = _bare_app(settings)
    traces.install(app)
    problems.install(app)
    measure.install(app, deps)
    caller.install(app, deps)
    pages.install(app, deps)
    for module in (
        jobs,
        files,
        events,
        system,
        bulk,
        operate,
        stats,
        audit,
        keys,
        sites,
        session,
        demand,
        dead_letters,
        explain,
        schedules,
        subscriptions,
    ):
        app.register_api(module.build(deps))
    app.register_api(system.build_health(deps))
    app.extensions[EXTENSION] = deps
    return app


def _bare_app(settings: Settings) -> OpenAPI:
    app = _Api(
        "sluice_api",
        info=Info(
            title="Sluice",
            version=version("sluice-api"),
            description=_ABOUT.format(codes=", ".join(f"`{c}`" for c in Code)),
        ),
        security_schemes={"key": {"type": "http", "scheme": "bearer"}},
        openapi_extensions={"security": [{"key": []}]},
        validation_error_status=422,
        validation_error_model=Problem,
        validation_error_callback=_validation_problem,
        doc_ui=False,
        static_folder=None,
    )
    app.request_class = ApiRequest
    app.config["MAX_CONTENT_LENGTH"] = settings.http.max_body
    app.json.sort_keys = False  # type: ignore[attr-defined]  # Flask's own provider has it
    app.json.ensure_ascii = False  # type: ignore[attr-defined]  # as above
    app.url_map.strict_slashes = False
    return app


class _Api(OpenAPI):
    """Documents of each operation that whatever it does not list is a problem."""

    def generate_spec_json(self) -> None:
        super().generate_spec_json()  # type: ignore[no-untyped-call]  # the library has none
        batch = self.spec_json["paths"]["/v1/jobs:batch"]["post"]
        batch["requestBody"]["content"] = BatchBody.content
        for path in self.spec_json["paths"].values():
            for operation in path.values():
                # The library's own entry tells of a list, as `application/json`.
                del operation["responses"][self.validation_error_status]
                operation["responses"]["default"] = _PROBLEM


_PROBLEM = {
    "description": "What is wrong (RFC 9457)",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def _validation_problem(exc: ValidationError) -> object:
    return problems.of_validation(exc).response()
