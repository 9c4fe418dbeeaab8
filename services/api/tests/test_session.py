"""A browser's session, the limits of a key, and what one key can't get at of another's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient

from sluice_api import session
from sluice_core.adapters.db import access
from sluice_core.adapters.db.access import KeyLimits, Scope
from sluice_core.adapters.db.engine import read, write
from sluice_testing.redis import RedisServer

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

MakeApp = Callable[..., Flask]
LINK = {"url": "https://media.example/film"}
PAGE = {session.PAGE_HEADER: "1"}


@pytest.fixture
def new_key(engine: sa.Engine) -> Callable[..., str]:
    """A key's text."""

    def make(*scopes: Scope, **limits: int) -> str:
        with write(engine) as connection:
            text, _ = access.create(
                connection, name="k", scopes=scopes, now=1.0, limits=KeyLimits(**limits)
            )
        return text

    return make


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


@pytest.fixture
def app(make_app: MakeApp) -> Flask:
    return make_app(SLUICE_API_KEYS_REQUIRED="true")


@on_sqlite
class TestSession:
    @pytest.fixture
    def text(self, new_key: Callable[..., str]) -> str:
        return new_key(Scope.SUBMIT, Scope.READ)

    @pytest.fixture
    def signed_in(self, app: Flask, text: str) -> FlaskClient:
        client = app.test_client()
        assert client.post("/v1/session", json={"key": text}).status_code == 200
        return client

    def test_no_script_can_read_the_cookie_and_it_does_not_hold_the_key(
        self, app: Flask, text: str
    ) -> None:
        client = app.test_client()
        answer = client.post("/v1/session", json={"key": text})
        assert answer.get_json()["scopes"] == ["read", "submit"]
        cookie = answer.headers["Set-Cookie"]
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
        assert "Secure" not in cookie
        assert text not in cookie
        assert access.hash_of(text) not in cookie
        secure = client.post(
            "/v1/session", json={"key": text}, headers={"X-Forwarded-Proto": "https"}
        )
        assert "; Secure" in secure.headers["Set-Cookie"]

    def test_it_opens_what_the_key_opens_until_signed_out(self, signed_in: FlaskClient) -> None:
        assert signed_in.get("/v1/jobs").status_code == 200
        assert signed_in.get("/v1/queues").status_code == 403
        assert signed_in.get("/v1/session").get_json()["name"] == "k"
        assert signed_in.post("/v1/jobs", json=LINK, headers=PAGE).status_code == 202
        assert signed_in.delete("/v1/session").status_code == 200
        assert signed_in.get("/v1/jobs").status_code == 401

    @pytest.mark.parametrize(
        "headers",
        [{}, {**PAGE, "Sec-Fetch-Site": "cross-site"}, {**PAGE, "Sec-Fetch-Site": "same-site"}],
    )
    def test_pages_elsewhere_can_change_nothing_with_it(
        self, signed_in: FlaskClient, headers: dict[str, str]
    ) -> None:
        job = "/v1/jobs/" + "0" * 26
        for method, path in [("POST", "/v1/jobs"), ("POST", "/v1/jobs:cancel"), ("DELETE", job)]:
            answer = signed_in.open(path, method=method, json=LINK, headers=headers)
            assert (answer.status_code, answer.get_json()["code"]) == (403, "forbidden")
        assert signed_in.get("/v1/jobs").get_json()["jobs"] == []

    def test_what_was_not_made_by_us_opens_nothing(
        self, app: Flask, signed_in: FlaskClient, engine: sa.Engine
    ) -> None:
        cookie = signed_in.get_cookie(session.COOKIE)
        assert cookie is not None
        key_id, expires_at, signature = cookie.value.split(".")
        later = str(int(expires_at) + 60)
        past = str(int(time.time()) - 1)
        for value in ("", "x", f"{key_id}.{later}.{signature}", f"{key_id}.{past}.{signature}",
                      f"{key_id}.{expires_at}.{'0' * 64}", f"{'0' * 26}.{expires_at}.{signature}",
                      f"{key_id}.{'9' * 40}.{signature}", f"{key_id}.{expires_at}.é"):  # fmt: skip
            client = app.test_client()
            client.set_cookie(session.COOKIE, value)
            assert client.get("/v1/jobs").status_code == 401, value
        with read(engine) as connection:
            [key] = access.list_keys(connection)
        with write(engine) as connection:
            access.revoke(connection, key.id, now=2.0)
        assert signed_in.get("/v1/jobs").status_code == 401

    @pytest.mark.parametrize("body", [{}, {"key": ""}, {"key": 1}, {"key": "x", "more": 1}])
    def test_bad_requests(self, app: Flask, body: dict[str, object]) -> None:
        assert app.test_client().post("/v1/session", json=body).status_code == 422

    def test_a_wrong_key_gives_no_cookie(self, app: Flask) -> None:
        answer = app.test_client().post("/v1/session", json={"key": "sluice_wrong"})
        assert (answer.status_code, answer.get_json()["code"]) == (401, "unauthorized")
        assert "Set-Cookie" not in answer.headers


@on_sqlite
class TestLimits:
    def test_requests_of_a_minute(self, app: Flask, new_key: Callable[..., str]) -> None:
        client = app.test_client()
        few = bearer(new_key(Scope.READ, requests_per_minute=3))
        free = bearer(new_key(Scope.READ, requests_per_minute=0))
        assert [client.get("/v1/jobs", headers=few).status_code for _ in range(3)] == [200] * 3
        refused = client.get("/v1/presets", headers=few)
        assert (refused.status_code, refused.get_json()["code"]) == (429, "too_many_requests")
        assert 1 <= int(refused.headers["Retry-After"]) <= 60
        # Another key is not held up, and neither is one without a limit.
        other = bearer(new_key(Scope.READ))
        assert all(
            client.get("/v1/jobs", headers=h).status_code == 200 for h in (other, *[free] * 5)
        )

    def test_all_processes_count_together_and_each_alone_without_redis(
        self, make_app: MakeApp, own_redis: RedisServer, new_key: Callable[..., str]
    ) -> None:
        apps = [
            make_app(SLUICE_API_KEYS_REQUIRED="true", SLUICE_REDIS_URL=own_redis.url)
            for _ in range(2)
        ]
        one, two = (app.test_client() for app in apps)
        key = bearer(new_key(Scope.READ, requests_per_minute=4))
        codes = [client.get("/v1/jobs", headers=key).status_code for client in (one, two) * 3]
        assert codes == [200] * 4 + [429] * 2
        own_redis.stop()
        codes = [client.get("/v1/jobs", headers=key).status_code for client in (one, two) * 5]
        assert codes == [200] * 8 + [429] * 2
        page = one.get("/metrics").text
        assert "sluice_rate_limit_skipped_total 5.0" in page

    def test_operators_come_in_whatever_holds_for_all(
        self, make_app: MakeApp, new_key: Callable[..., str]
    ) -> None:
        app = make_app(SLUICE_API_KEYS_REQUIRED="true", SLUICE_KEY_REQUESTS_PER_MINUTE="2")
        client = app.test_client()
        boss, other = bearer(new_key(Scope.OPERATE)), bearer(new_key(Scope.READ))
        assert [client.get("/v1/jobs", headers=boss).status_code for _ in range(4)] == [200] * 4
        codes = [client.get("/v1/jobs", headers=other).status_code for _ in range(3)]
        assert codes == [200, 200, 429]

    def test_jobs_under_way(self, app: Flask, new_key: Callable[..., str]) -> None:
        client = app.test_client()
        few = bearer(new_key(Scope.SUBMIT, Scope.READ, max_active_jobs=2))
        other = bearer(new_key(Scope.SUBMIT, Scope.READ))
        jobs = [
            client.post("/v1/jobs", json={"url": f"https://a.example/{n}"}, headers=few)
            for n in range(3)
        ]
        assert [job.status_code for job in jobs] == [202, 202, 429]
        assert jobs[2].get_json()["code"] == "quota_exceeded"
        assert int(jobs[2].headers["Retry-After"]) > 0
        # The same request again makes no job, so it is answered.
        again = client.post("/v1/jobs", json={"url": "https://a.example/0"}, headers=few)
        assert again.status_code == 202
        links = {"jobs": [f"https://b.example/{n}" for n in range(3)]}
        batch = client.post("/v1/jobs:batch", json=links, headers=few)
        assert batch.status_code == 422
        assert {line["error"]["code"] for line in batch.get_json()["results"]} == {"quota_exceeded"}
        assert client.post("/v1/jobs:batch", json=links, headers=other).status_code == 202
        # Room comes back with an end, and a retry needs some too.
        first = jobs[0].get_json()
        assert client.post(first["links"]["cancel"], headers=few).status_code == 202
        again = client.post("/v1/jobs", json={"url": "https://a.example/9"}, headers=few)
        assert again.status_code == 202
        assert client.post(first["links"]["retry"], headers=few).status_code == 429
        shown = client.get(first["links"]["self"], headers=few).get_json()
        assert shown["status"] == "CANCELED"
        retried = client.post("/v1/jobs:retry", json={"filter": {"all": True}}, headers=few)
        assert retried.status_code == 429


class TestIsolation:
    """The real server, asked with a key that owns nothing of what is there."""

    @pytest.fixture
    def served(self, serve: Callable[..., Any]) -> Any:
        return serve(SLUICE_API_KEYS_REQUIRED="true")

    @pytest.fixture
    def texts(self, served: Any, served_engine: sa.Engine) -> list[str]:
        """Two keys' texts, and an operator's."""
        del served
        scopes = [[Scope.SUBMIT, Scope.READ]] * 2 + [[Scope.OPERATE]]
        with write(served_engine) as connection:
            return [access.create(connection, name="k", scopes=s, now=1.0)[0] for s in scopes]

    def test_nothing_of_another_key_is_seen_or_touched(self, served: Any, texts: list[str]) -> None:
        """Every operation of the document."""
        owner, stranger, boss = map(bearer, texts)
        asked = 0
        with served.client() as client:
            theirs = self.made_by(client, owner)
            before = self.state(client, theirs, boss)
            for method, path in self.operations(client):
                kind = path.removeprefix("/v1/").partition("/")[0]
                real = path.replace("{id}", theirs.get(kind, "0" * 26)).replace("{name}", "a.mp4")
                body = {"filter": {"all": True}} if ":" in path else {}
                options = {} if method in ("GET", "DELETE") else {"json": body}
                with client.stream(method, real, headers=stranger, **options) as answer:
                    is_endless = answer.headers.get("Content-Type", "").startswith("text/event")
                    seen = next(answer.iter_text()) if is_endless else answer.read().decode()
                told = f"{method} {path}: {answer.status_code}"
                asked += 1
                assert answer.status_code < 500, told
                assert "theirs-mark" not in seen, told
                assert not any(one in seen for one in theirs.values()), told
                if "{id}" in path and kind in theirs:
                    assert answer.status_code in (404, 422), told
            assert self.state(client, theirs, boss) == before
        assert asked > 40

    def made_by(self, client: httpx.Client, owner: dict[str, str]) -> dict[str, str]:
        """First part of a path -> a thing of this key's."""
        bodies: dict[str, dict[str, Any]] = {
            "jobs": {**LINK, "metadata": {"mark": "theirs-mark"}},
            "schedules": {"name": "theirs-mark", "every_seconds": 3600, "job": LINK},
            "subscriptions": {"url": "https://media.example/feed", "name": "theirs-mark-2"},
        }
        return {
            kind: client.post(f"/v1/{kind}", json=body, headers=owner).json()["id"]
            for kind, body in bodies.items()
        }

    def operations(self, client: httpx.Client) -> Iterator[tuple[str, str]]:
        for path, methods in client.get("/openapi.json").json()["paths"].items():
            for method in set(methods) & {"get", "post", "patch", "put", "delete"}:
                yield method.upper(), path

    def state(
        self, client: httpx.Client, theirs: dict[str, str], boss: dict[str, str]
    ) -> list[object]:
        return [
            client.get(f"/v1/{kind}/{one}", headers=boss).json() for kind, one in theirs.items()
        ]

    def test_a_stream_opened_with_a_session_tells_of_ones_own_jobs_alone(
        self, served: Any, texts: list[str]
    ) -> None:
        with served.client() as client:
            assert client.post("/v1/session", json={"key": texts[0]}).status_code == 200
            with client.stream("GET", "/v1/events") as stream:
                assert stream.status_code == 200
                lines = stream.iter_lines()
                next(lines)
                for text, name in ((texts[1], "theirs"), (texts[0], "own")):
                    link = {"url": f"https://a.example/{name}"}
                    made = httpx.post(
                        f"{served.url}/v1/jobs", json=link, headers=bearer(text), timeout=60
                    )
                    assert made.status_code == 202
                seen = ""
                while "a.example/own" not in seen:
                    seen = next(line for line in lines if line.startswith("data: "))
                    assert "theirs" not in seen
