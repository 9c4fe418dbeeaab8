"""Reading request bodies: JSON as it should be, or a problem that says why not."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, NoReturn

import gevent
from flask import Request
from gunicorn.http.errors import ParseException

from sluice_api import values
from sluice_api.problems import Code, ProblemError
from sluice_api.turns import Turns

#: Seconds without a byte after which the rest of a body is not waited for.
SILENCE = 30.0
#: Seconds that a whole body may take, however steadily it drips: 10 MiB come at 0.7 Mbit/s.
WHOLE = 120.0

#: Lines of a batch, empty ones among them: a body has room for ten million.
MAX_LINES = 100_000

_JSON_LINES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")


class ApiRequest(Request):
    """A request whose JSON is read by our own rules, whoever asks for it."""

    def get_data(self, *args: Any, **options: Any) -> Any:
        """The body.

        A client that falls silent in it is answered 400, one that drips 408: neither holds a place
        for ever. One whose chunks are none is answered 400, too.
        """
        # Only while reading: whoever plays a file may stop taking it for as long as they like.
        connection = self.environ.get("gunicorn.socket")
        if connection is None:
            return super().get_data(*args, **options)
        usual = connection.gettimeout()
        connection.settimeout(SILENCE)
        try:
            with gevent.Timeout(WHOLE, _too_slow()):
                return super().get_data(*args, **options)
        except ParseException as exc:
            # Nobody knows where the next request begins.
            raise ProblemError(
                400,
                Code.INVALID_REQUEST,
                "The body's chunks can't be read.",
                headers={"Connection": "close"},
            ) from exc
        finally:
            connection.settimeout(usual)

    def get_json(self, force: bool = False, silent: bool = False, cache: bool = True) -> Any:  # noqa: FBT001, FBT002  # Flask's signature
        """The decoded body; never quiet about a broken one, unlike its parent."""
        del force, silent, cache
        if not self.is_json:
            raise ProblemError(
                415,
                Code.UNSUPPORTED_MEDIA_TYPE,
                "Send JSON with Content-Type: application/json.",
            )
        value = decode(self.get_data())
        if isinstance(value, str):
            # The validating library would take a text for JSON inside JSON.
            raise ProblemError(422, Code.INVALID_REQUEST, "body: an object is needed.")
        return value


def _too_slow() -> ProblemError:
    return ProblemError(408, Code.BODY_TOO_SLOW, f"The body did not arrive within {WHOLE:.0f} s.")


def decode(data: bytes | str) -> Any:
    """A JSON value.

    Raises:
        ProblemError: 400, it is not JSON; 422, it has too many values.

    """
    try:
        text = values.text_of(data) if isinstance(data, bytes) else data
        if values.are_too_many(text):
            raise ProblemError(
                422,
                Code.INVALID_REQUEST,
                f"The body has more than {values.MAX_VALUES} values; send it in parts.",
            )
        return json.loads(text, parse_constant=_no_number, parse_int=values.whole_number)
    except (ValueError, RecursionError) as exc:
        why = (
            f"line {exc.lineno}, column {exc.colno}"
            if isinstance(exc, json.JSONDecodeError)
            else ""
        )
        where = f" ({why})" if why else ""
        raise ProblemError(400, Code.INVALID_REQUEST, f"The body is not JSON{where}.") from exc


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")


def batch_lines(request: Request) -> Iterator[tuple[int, Any]]:
    """(number from 1, decoded line or the problem with it) of a batch in any of its forms.

    Raises:
        ProblemError: the body as a whole can't be read.

    """
    if request.mimetype in _JSON_LINES:
        yield from _json_lines(request.get_data())
        return
    body = request.get_json()
    entries = body.get("jobs") if isinstance(body, dict) and set(body) == {"jobs"} else body
    if not isinstance(entries, list):
        raise ProblemError(422, Code.INVALID_REQUEST, 'Send {"jobs": [...]}, a list, or NDJSON.')
    yield from enumerate(entries, 1)


def _json_lines(data: bytes) -> Iterator[tuple[int, Any]]:
    turns = Turns()
    for number, raw in enumerate(io.BytesIO(data), 1):
        if number > MAX_LINES:
            raise ProblemError(
                422,
                Code.INVALID_REQUEST,
                f"A batch has at most {MAX_LINES} lines, empty ones among them.",
            )
        line = raw.strip()
        if not line:
            turns.give()
            continue
        if line[:1] not in b'{["':
            # A plain link needs no quotes.
            yield number, line.decode("utf-8", "replace")
            continue
        try:
            yield number, decode(line)
        except ProblemError as exc:
            is_json = exc.status != HTTPStatus.BAD_REQUEST
            yield number, exc if is_json else ProblemError(400, exc.code, "This line is not JSON.")
