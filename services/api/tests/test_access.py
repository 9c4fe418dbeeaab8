from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask

from sluice_api.app import EXTENSION
from sluice_api.caller import TICKET_LIFE, make_ticket
from sluice_core.adapters.db import access, runs
from sluice_core.adapters.db.access import Scope
from sluice_core.adapters.db.engine import read, write
from sluice_core.domain.lanes import Actor
from sluice_testing import factories

MakeApp = Callable[..., Flask]
MakeKey = Callable[..., dict[str, str]]
OPEN = {"/", "/livez", "/readyz", "/metrics", "/openapi.json", "/config.json", "/docs"}
#: Signing in needs the key in its body; signing out needs nothing.
SESSION = {("POST", "/v1/session"), ("DELETE", "/v1/session")}
LINK = {"url": "https://media.example/film"}


@pytest.fixture
def app(make_app: MakeApp) -> Flask:
    return make_app(SLUICE_HTTP_HOST="0.0.0.0")  # noqa: S104  # the setting under test


def test_keys_are_shown_once_and_kept_as_hashes(engine: sa.Engine) -> None:
    with write(engine) as connection:
        text, key = access.create(connection, name="n", scopes=[Scope.READ], now=1.0)
        other, _ = access.create(connection, name="n", scopes=[Scope.READ], now=1.0)
    assert text != other
    assert len(text) > 43
    with read(engine) as connection:
        rows = connection.execute(sa.text("SELECT * FROM api_keys")).all()
        assert access.lookup(connection, text) == key
        assert access.lookup(connection, text[:-1]) is None
    assert text not in repr(rows)
    with write(engine) as connection:
        assert access.revoke(connection, key.id, now=2.0)
        assert not access.revoke(connection, key.id, now=3.0)
        assert access.lookup(connection, text) is None
        assert [k.revoked_at for k in access.list_keys(connection)] == [2.0, None]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
class TestKeys:
    def test_every_address_wants_a_key_but_for_probes_page_and_docs(self, app: Flask) -> None:
        client = app.test_client()
        for rule in app.url_map.iter_rules():
            path = rule.rule.replace("<string:id>", "0" * 26)
            path = path.replace("<string:name>", "a").replace("<path:name>", "a")
            for method in (rule.methods or set()) - {"OPTIONS"}:
                with client.open(path, method=method) as response:
                    status = response.status_code
                is_open = path in OPEN or path.startswith(("/static/", "/docs/"))
                is_open |= (method, path) in SESSION
                assert (status != 401) is is_open, (method, path, status)

    def test_a_wrong_or_revoked_key_opens_nothing(self, app: Flask, make_key: MakeKey) -> None:
        client = app.test_client()
        good = make_key(Scope.READ)
        assert client.get("/v1/jobs", headers=good).status_code == 200
        for text in ("", "x", "sluice_" + "a" * 43, "\u00e9"):
            headers = {"Authorization": f"Bearer {text}"}
            response = client.get("/v1/jobs", headers=headers)
            assert response.status_code == 401
            assert response.get_json()["code"] == "unauthorized"
            assert response.headers["WWW-Authenticate"] == "Bearer"

    def test_scopes(self, app: Flask, make_key: MakeKey) -> None:
        client = app.test_client()
        reader, sender = make_key(Scope.READ), make_key(Scope.SUBMIT)
        operator = make_key(Scope.OPERATE)
        assert client.post("/v1/jobs", json=LINK, headers=reader).status_code == 403
        assert client.post("/v1/jobs", json=LINK, headers=sender).status_code == 202
        assert client.get("/v1/jobs", headers=sender).status_code == 403
        for path in ("/v1/queues", "/v1/workers"):
            assert client.get(path, headers=reader).status_code == 403
            assert client.get(path, headers=operator).status_code == 200
        assert client.post("/v1/jobs", json=LINK, headers=operator).status_code == 202

    def test_nobody_sees_the_jobs_of_another_key(self, app: Flask, make_key: MakeKey) -> None:
        client = app.test_client()
        mine, other = make_key(Scope.SUBMIT, Scope.READ), make_key(Scope.SUBMIT, Scope.READ)
        operator = make_key(Scope.OPERATE)
        job = client.post("/v1/jobs", json=LINK, headers=mine).get_json()
        path = job["links"]["self"]
        # Equal requests of two submitters are two jobs.
        assert client.post("/v1/jobs", json=LINK, headers=other).get_json()["id"] != job["id"]
        for method, what in [
            ("GET", ""), ("GET", "/attempts"), ("GET", "/events"), ("POST", "/cancel"),
            ("POST", "/retry"), ("DELETE", ""), ("GET", "/files/a"),
        ]:  # fmt: skip
            response = client.open(path + what, method=method, headers=other)
            assert response.status_code == 404, (method, what)
        assert job["id"] not in client.get("/v1/jobs", headers=other).text
        assert job["id"] in client.get("/v1/jobs", headers=mine).text
        assert client.get(path, headers=operator).status_code == 200
        assert client.post(path + "/cancel", headers=operator).status_code == 202

    def test_a_ticket_opens_one_file_for_a_while(
        self, app: Flask, make_key: MakeKey, engine: sa.Engine
    ) -> None:
        client = app.test_client()
        mine = make_key(Scope.SUBMIT, Scope.READ)
        job, file = finished_job(app, client, engine, mine)
        assert client.get(file["url"]).status_code == 401
        link = client.post(file["url"] + "/link", headers=mine).get_json()["url"]
        assert client.get(link).data == b"abc"
        assert client.get(link.replace("a.mp4", "b.mp4")).status_code == 401
        assert client.get(link[:-1] + ("0" if link[-1] != "0" else "1")).status_code == 401
        assert client.delete(f"{job['links']['self']}?{link.partition('?')[2]}").status_code == 401
        with write(engine) as connection:
            (key,) = access.list_keys(connection)
            stale = make_ticket(key, f"/v1/jobs/{job['id']}/files/a.mp4", int(time.time()) - 1)
            assert client.get(f"{file['url']}?ticket={stale}").status_code == 401
            access.revoke(connection, key.id, now=2.0)
        assert client.get(link).status_code == 401
        assert TICKET_LIFE > 3600


def finished_job(app: Flask, client: Any, engine: sa.Engine, headers: dict[str, str]) -> Any:
    job = client.post("/v1/jobs", json=LINK, headers=headers).get_json()
    with write(engine) as connection:
        run = factories.last_run(connection, job["id"], now=time.time())
        file = factories.artifact(run, "a.mp4")
        runs.succeed(
            connection, run, files=[file], fields={}, expires_at=time.time() + 60, now=time.time()
        )
    storage = app.extensions[EXTENSION].storage
    source = app.extensions[EXTENSION].settings.store.data_dir / "source"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_bytes(b"abc")
    storage.put(file.key, source)
    assert run.job.stage is Actor.TRANSCODE
    return job, client.get(job["links"]["self"], headers=headers).get_json()["files"][0]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
class TestLoopback:
    @pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "[::1]:1", "sub.localhost"])
    def test_no_key_is_needed(self, make_app: MakeApp, host: str) -> None:
        client = make_app().test_client()
        assert client.get("/v1/jobs", headers={"Host": host}).status_code == 200

    @pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", ""])
    def test_a_name_that_leads_here_by_a_trick_is_refused(
        self, make_app: MakeApp, host: str
    ) -> None:
        client = make_app().test_client()
        for path in ("/", "/v1/jobs", "/livez"):
            assert client.get(path, headers={"Host": host}).status_code == 403

    @pytest.mark.parametrize(
        "headers",
        [
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://localhost:9999"},
            {"Sec-Fetch-Site": "cross-site"},
        ],
    )
    def test_other_sites_pages_can_change_nothing(
        self, make_app: MakeApp, headers: dict[str, str]
    ) -> None:
        client = make_app().test_client()
        response = client.post("/v1/jobs", json=LINK, headers={"Host": "localhost", **headers})
        assert response.status_code == 403
        assert client.get("/v1/jobs").get_json()["jobs"] == []
        own = {"Host": "localhost:8080", "Origin": "http://localhost:8080"}
        assert client.post("/v1/jobs", json=LINK, headers=own).status_code == 202
