"""Everything that goes wrong in a request, told as RFC 9457 `application/problem+json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from http import HTTPStatus
from typing import Any, NoReturn

import structlog
from flask import Flask, Response, request
from pydantic import ValidationError
from werkzeug.exceptions import HTTPException

from sluice_api.models import ID, IDS, LANGUAGE, PARENT
from sluice_core.adapters import tracing
from sluice_core.domain.errors import (
    BrokerAwayError,
    SluiceError,
    StoreAwayError,
    StoreFullError,
)

log = structlog.get_logger(__name__)

#: Seconds after which a client may try again when a store is away.
RETRY_AFTER = 5


#: Characters of a field's name that are told.
MAX_NAME = 100


class Code(StrEnum):
    """What is wrong with a request; the codes of jobs are another set."""

    #: The body, a parameter or a header is not as documented.
    INVALID_REQUEST = "invalid_request"
    #: There is no such preset; see `GET /v1/presets`.
    UNKNOWN_PRESET = "unknown_preset"
    #: The body is larger than this server takes.
    BODY_TOO_LARGE = "body_too_large"
    #: The body did not arrive in time: it came in drips.
    BODY_TOO_SLOW = "body_too_slow"
    #: The body is not JSON by its Content-Type.
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    #: Nothing is there, or nothing that this key may see.
    NOT_FOUND = "not_found"
    #: The address is right, the method is not.
    METHOD_NOT_ALLOWED = "method_not_allowed"
    #: The job's state does not allow this.
    CONFLICT = "conflict"
    #: The part that was asked for lies outside the file.
    RANGE_NOT_SATISFIABLE = "range_not_satisfiable"
    #: An API key is needed, or this one is not (or no longer) known.
    UNAUTHORIZED = "unauthorized"
    #: The key's scopes do not cover this, or a foreign page sent the request.
    FORBIDDEN = "forbidden"
    #: This Idempotency-Key was used with another body.
    IDEMPOTENCY_MISMATCH = "idempotency_mismatch"
    #: As many jobs are under way as this installation takes: try again later.
    TOO_MANY_JOBS = "too_many_jobs"
    #: This API key has as many jobs under way as it may: try again later.
    QUOTA_EXCEEDED = "quota_exceeded"
    #: This API key sent too many requests within a minute: try again later.
    TOO_MANY_REQUESTS = "too_many_requests"
    #: A store is away, or all stream places are taken: try again later.
    UNAVAILABLE = "unavailable"
    #: A fault of ours; the log says more.
    INTERNAL = "internal"


class ProblemError(Exception):
    """A request that can't be served, with the answer to it.

    Args:
        status: HTTP status.
        code: of `Code`, or of the jobs' codes for a link that is refused.
        detail: one sentence for people.
        headers: further headers of the answer.
        extra: further members of the answer's body.

    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})
        super().__init__(detail)

    def response(self) -> Response:
        body = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": str(self.code),
            "detail": self.detail,
            **self.extra,
        }
        present = tracing.current()
        if present is not None:
            body["trace_id"] = present.trace_id
        text = json.dumps(body, ensure_ascii=False)
        return Response(
            # What a client sent may come back in the sentence, and need not be valid text.
            text.encode("utf-8", "replace"),
            self.status,
            headers=self.headers,
            content_type="application/problem+json",
        )


def not_found(what: str = "There is nothing at this address.") -> NoReturn:
    raise ProblemError(404, Code.NOT_FOUND, what)


def invalid(detail: str, *, status: int = 422) -> NoReturn:
    raise ProblemError(status, Code.INVALID_REQUEST, detail)


def of_validation(exc: ValidationError) -> ProblemError:
    """Names each wrong field, the first one in the sentence."""
    errors = [
        {"field": ".".join(map(_told, e["loc"])) or "body", "message": words(e["msg"])}
        for e in exc.errors(include_url=False, include_input=False, include_context=False)[:20]
    ]
    first = errors[0]
    sentence = f"{first['field']}: {first['message']}."
    return ProblemError(422, Code.INVALID_REQUEST, sentence, extra={"errors": errors})


def _told(name: object) -> str:
    """A part of a field's way; clients make names up, too."""
    text = str(name)
    return text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 1]}…"


#: What people are told in place of the validating library's words.
_SAID = {
    f"String should match pattern '{ID}'": (
        "this is no id: those have 26 digits and capital letters"
    ),
    f"String should match pattern '{IDS}'": "ids are needed, with commas and no blanks between",
    f"String should match pattern '{PARENT}'": "the id of a job, or none, is needed",
    f"String should match pattern '{LANGUAGE}'": "a language such as en or pt-BR is needed",
    "Extra inputs are not permitted": "nothing of this name is known",
}


#: How the library begins where something else stands in place of an object.
_NO_OBJECT = "Input should be a valid dictionary"


def words(message: str) -> str:
    """What people are told of a wrong field, for the validating library's message."""
    if message.startswith(_NO_OBJECT):
        return "an object is needed"
    return _SAID.get(message, message.removeprefix("Value error, ").rstrip("."))


def of_job_error(exc: SluiceError, *, field: str = "url") -> ProblemError:
    """A link that is refused before there is a job; the code is one of the jobs' own."""
    what = "The link" if field == "url" else f"The {field}"
    extra: dict[str, Any] = {"errors": [{"field": field, "message": exc.message}]}
    if field == "url" or exc.code == "blocked_address":
        extra["help"] = exc.help
    return ProblemError(422, exc.code, f"{what} was refused: {exc.message}.", extra=extra)


def unavailable(detail: str) -> ProblemError:
    return ProblemError(503, Code.UNAVAILABLE, detail, headers={"Retry-After": str(RETRY_AFTER)})


def install(app: Flask) -> None:
    """Answer every exception with a problem; none shows internals."""

    @app.errorhandler(ProblemError)
    def _problem(exc: ProblemError) -> Response:
        return exc.response()

    @app.errorhandler(StoreAwayError)
    def _store_away(exc: StoreAwayError) -> Response:
        log.warning("store_away", error=str(exc))
        if isinstance(exc, StoreFullError):
            return unavailable("The database's disk is full: nothing can be kept.").response()
        return unavailable("The database does not answer; try again soon.").response()

    @app.errorhandler(BrokerAwayError)
    def _broker_away(exc: BrokerAwayError) -> Response:
        log.warning("broker_away", error=str(exc))
        return unavailable("Redis does not answer; try again soon.").response()

    @app.errorhandler(SluiceError)
    def _storage_away(exc: SluiceError) -> Response:
        log.warning("storage_away", code=exc.code, error=exc.message)
        return unavailable("The storage does not answer rightly; try again soon.").response()

    @app.errorhandler(HTTPException)
    def _http(exc: HTTPException) -> Response:
        return _of_http(exc)

    @app.errorhandler(Exception)
    def _unexpected(exc: Exception) -> Response:
        log.error("request_failed", method=request.method, path=request.path, exc_info=exc)
        return ProblemError(500, Code.INTERNAL, "Something unexpected went wrong.").response()


_HTTP_CODES = {
    400: (Code.INVALID_REQUEST, "The request can't be read."),
    404: (Code.NOT_FOUND, "There is nothing at this address."),
    405: (Code.METHOD_NOT_ALLOWED, "This address does not take this method."),
    413: (Code.BODY_TOO_LARGE, "The body is larger than this server takes."),
    415: (Code.UNSUPPORTED_MEDIA_TYPE, "Send JSON with Content-Type: application/json."),
    416: (Code.RANGE_NOT_SATISFIABLE, "The part that was asked for lies outside the file."),
}
_KEPT_HEADERS = ("Allow", "Content-Range", "Location")


def _of_http(exc: HTTPException) -> Response:
    status = exc.code or 500
    if status < HTTPStatus.BAD_REQUEST:
        # A redirect to the address that was meant; nothing is wrong.
        return Response(status=status, headers=[("Location", str(getattr(exc, "new_url", "")))])
    code, sentence = _HTTP_CODES.get(status, (Code.INVALID_REQUEST, HTTPStatus(status).phrase))
    # The connection's rest may hold what was not read of a refused body.
    headers = {k: v for k, v in exc.get_headers() if k in _KEPT_HEADERS}
    return ProblemError(status, code, sentence, headers=headers).response()
