"""The contract's HTTP calls, with every trouble told as one of two errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import quote, urljoin, urlsplit

import httpx

from sluice_cli.client.sse import Event, parse

#: Seconds to connect, and to wait for an answer.
CONNECT, ANSWER = 5.0, 30.0
#: Seconds of silence after which a stream is given up: three of the server's comments.
STREAM_SILENCE = 45.0
#: Seconds for a server to ask its stores, one after the other, each of which may hang.
HEALTH = 60.0
#: Rows asked for at once.
PAGE = 200


class UnreachableError(Exception):
    """The server does not answer, or answers that it can't now."""


class RefusedError(Exception):
    """The server says no: what was asked is wrong or not allowed."""

    def __init__(self, message: str, *, code: str, status: int) -> None:
        self.code = code
        self.status = status
        super().__init__(message)


class Api:
    """One server. Use as a context manager."""

    def __init__(self, base_url: str, *, key: str | None = None) -> None:
        self.base_url = base_url.rstrip("/") + "/"
        self._auth = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(
            timeout=httpx.Timeout(ANSWER, connect=CONNECT), follow_redirects=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        return self._call("GET", path, params=params)

    def health(self) -> dict[str, str]:
        """What each of the server's stores answers: `ok`, or one sentence on what is wrong."""
        with _mapped():
            response = self._client.get(
                urljoin(self.base_url, "readyz"), timeout=httpx.Timeout(HEALTH, connect=CONNECT)
            )
        told = _decoded(response)
        if not isinstance(told, dict) or not isinstance(told.get("parts"), dict):
            # From what stands before it, or from the server, but about something else.
            _raise_for(response)
        parts: dict[str, str] = told["parts"]
        return parts

    def submit(
        self, body: Mapping[str, Any], *, idempotency_key: str
    ) -> tuple[dict[str, Any], bool]:
        """Hand in one link. The key makes a repeated call after a lost answer harmless.

        Returns:
            the job, and whether it was made by this: the same request may have one already.

        """
        response = self._send(
            "POST", "v1/jobs", json=dict(body), headers={"Idempotency-Key": idempotency_key}
        )
        return _decoded(response), response.status_code == httpx.codes.ACCEPTED

    def job(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"v1/jobs/{quote(job_id, safe='')}")
        return found

    def jobs(self, *, limit: int | None = None, **params: Any) -> Iterator[dict[str, Any]]:
        """Jobs that match, at most `limit`."""
        return self.listed("v1/jobs", "jobs", limit=limit, **params)

    def listed(
        self, path: str, name: str, *, limit: int | None = None, **params: Any
    ) -> Iterator[dict[str, Any]]:
        """The rows below `name` in the answers, page by page, at most `limit`."""
        asked = {key: value for key, value in params.items() if value is not None}
        left = limit
        while left is None or left > 0:
            page = self.get(path, {**asked, "limit": min(PAGE, left or PAGE)})
            items = page[name]
            yield from items
            left = None if left is None else left - len(items)
            if not page.get("next_cursor") or not items:
                return
            asked["cursor"] = page["next_cursor"]

    def act(self, job_id: str, what: str) -> Any:
        """`cancel` or `retry`."""
        return self._call("POST", f"v1/jobs/{quote(job_id, safe='')}/{what}")

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._call("POST", path, body=body)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._call("PATCH", path, body=body)

    def remove(self, path: str) -> None:
        self._call("DELETE", path)

    def delete(self, job_id: str) -> None:
        self._call("DELETE", f"v1/jobs/{quote(job_id, safe='')}")

    def events(self, job_ids: list[str], *, last_id: str | None) -> Iterator[Event]:
        """The server's events of these jobs (none: of all), until it or the network ends them."""
        single = f"v1/jobs/{quote(job_ids[0], safe='')}/events" if len(job_ids) == 1 else ""
        params = {} if single or not job_ids else {"ids": ",".join(job_ids)}
        headers = {"Accept": "text/event-stream"}
        if last_id is not None:
            headers["Last-Event-ID"] = last_id
        timeout = httpx.Timeout(STREAM_SILENCE, connect=CONNECT)
        with self.stream(
            single or "v1/events", headers=headers, params=params, timeout=timeout
        ) as (response):
            yield from parse(response.iter_lines())

    @contextmanager
    def stream(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        params: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | None = None,
    ) -> Iterator[httpx.Response]:
        """A GET whose body is read as it comes; errors while reading are mapped as well."""
        target = urljoin(self.base_url, url)
        with (
            _mapped(),
            self._client.stream(
                "GET",
                target,
                params=dict(params) if params else None,
                headers={**self._auth_for(target), **headers},
                timeout=timeout or self._client.timeout,
            ) as response,
        ):
            if response.is_error:
                response.read()
                _raise_for(response)
            yield response

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        sent = {} if body is None else {"json": dict(body)}
        response = self._send(method, path, params=dict(params) if params else None, **sent)
        return _decoded(response) if response.content else None

    def _send(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> httpx.Response:
        target = urljoin(self.base_url, path)
        with _mapped():
            response = self._client.request(
                method, target, headers={**self._auth, **(headers or {})}, **options
            )
        if response.is_error:
            _raise_for(response)
        return response

    def _auth_for(self, target: str) -> dict[str, str]:
        """The key is for this server alone: a file's address may lead elsewhere."""
        ours, theirs = urlsplit(self.base_url), urlsplit(target)
        same = (ours.scheme, ours.netloc) == (theirs.scheme, theirs.netloc)
        return self._auth if same else {}


@contextmanager
def _mapped() -> Iterator[None]:
    try:
        yield
    except httpx.InvalidURL as exc:
        raise RefusedError(str(exc), code="invalid_request", status=0) from exc
    except (httpx.TransportError, httpx.TooManyRedirects, httpx.DecodingError) as exc:
        raise UnreachableError(str(exc) or type(exc).__name__) from exc


def _decoded(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError as exc:
        raise UnreachableError("what answers there is not Sluice") from exc


def _raise_for(response: httpx.Response) -> None:
    """Problem details (RFC 9457) in words; anything else by its status alone."""
    try:
        problem = json.loads(response.text)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {}
    words = str(problem.get("detail") or problem.get("title") or f"HTTP {response.status_code}")
    if response.is_server_error:
        raise UnreachableError(words)
    if problem.get("help"):
        words = f"{words} {problem['help']}"
    code = str(problem.get("code") or "refused")
    raise RefusedError(words, code=code, status=response.status_code)
