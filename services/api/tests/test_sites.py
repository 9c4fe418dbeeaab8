"""Sites over HTTP: what they are shown goes in, is sealed, and never comes out."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient

from sluice_core.adapters.db import sites
from sluice_core.adapters.db.access import Scope
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.seal import Sealer, new_key
from sluice_core.domain.sites import Login

MakeApp = Callable[..., Flask]
MakeKey = Callable[..., dict[str, str]]
KEY = new_key()
SECRET = "never-to-be-given-back"  # noqa: S105  # a word to look for
LATER = int(time.time()) + 86_400
#: One database is enough where no statement of its own is under test.
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def app(make_app: MakeApp) -> Flask:
    return make_app(SLUICE_SITE_SECRETS_KEY=KEY)


def cookies(*domains: str, expires: int = LATER, value: str = SECRET) -> str:
    return "\n".join(f"{d}\tFALSE\t/\tTRUE\t{expires}\tsession\t{value}" for d in domains)


def put(client: FlaskClient, host: str = "example.com", **given: Any) -> dict[str, Any]:
    answer = client.post("/v1/sites", json={"host": host, **given})
    assert answer.status_code == 200, answer.text
    written: dict[str, Any] = answer.get_json()
    return written


def rows(engine: sa.Engine) -> list[sites.Kept]:
    with read(engine) as connection:
        return sites.all_sites(connection)


def test_it_is_written_shown_replaced_and_removed(client: FlaskClient, engine: sa.Engine) -> None:
    made = put(client, "Example.com", cookies=cookies("example.com", "a.example.com", "other.org"))
    told = {"host": "example.com", "cookies": 2, "password": False, "readable": True}
    assert {name: made[name] for name in told} == told
    assert (made["foreign"], made["expired"], made["used_at"]) == (1, 0, None)
    assert made["expires_at"].endswith("Z")
    [row] = rows(engine)
    assert Login.loads(Sealer([KEY]).open(row.sealed)).cookies.count(SECRET) == 2  # type: ignore[union-attr]  # it has some
    again = put(client, username="me", password=SECRET)
    assert (again["cookies"], again["password"], again["expires_at"]) == (0, True, None)
    assert again["created_at"] == made["created_at"]
    [row] = rows(engine)
    opened = Login.loads(Sealer([KEY]).open(row.sealed))
    assert opened == Login("example.com", None, "me", SECRET)
    [listed] = client.get("/v1/sites").get_json()["sites"]
    assert listed == client.get("/v1/sites/EXAMPLE.com").get_json()
    assert client.delete("/v1/sites/example.com").get_json() == {
        "host": "example.com",
        "removed": True,
    }
    assert rows(engine) == []
    for method in (client.get, client.delete):
        assert method("/v1/sites/example.com").status_code == 404


def test_nothing_of_it_is_told_or_lies_open(client: FlaskClient, engine: sa.Engine) -> None:
    put(client, cookies=cookies("example.com"), username="its-user", password=f"{SECRET}2")
    told = [client.get(path).text for path in ("/v1/sites", "/v1/sites/example.com", "/v1/audit")]
    with read(engine) as connection:
        kept = [repr(connection.execute(sa.text(f"SELECT * FROM {t}")).all())  # noqa: S608  # ours
                for t in sa.inspect(connection).get_table_names()]  # fmt: skip
    assert "example.com" in "".join(kept)
    for word in (SECRET, "its-user"):
        assert word not in "".join(told + kept)


def test_each_change_leaves_a_trail(client: FlaskClient) -> None:
    put(client, cookies=cookies("example.com"))
    client.post("/v1/sites:reseal")
    client.delete("/v1/sites/example.com")
    entries = client.get("/v1/audit", query_string={"action": "site"}).get_json()["entries"]
    assert [(e["action"], e["target"], e["detail"]) for e in reversed(entries)] == [
        ("site.set", "example.com", {"cookies": 1, "password": False}),
        ("site.reseal", None, {"done": 1, "unreadable": 0}),
        ("site.remove", "example.com", None),
    ]


@on_sqlite
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"host": "example.com"},
        {"host": "example.com:443", "username": "a", "password": SECRET},
        {"host": "https://example.com/", "username": "a", "password": SECRET},
        {"host": "com", "cookies": cookies("com")},
        {"host": "co.uk", "cookies": cookies("a.co.uk")},
        {"host": "github.io", "username": "a", "password": SECRET},
        {"host": "example.com", "username": SECRET},
        {"host": "example.com", "password": SECRET},
        {"host": "example.com", "cookies": SECRET},
        {"host": "example.com", "cookies": cookies("example.org")},
        {"host": "example.com", "cookies": cookies("example.com", expires=1)},
        {"host": "example.com", "cookies": cookies("example.com", value=f"{SECRET};")},
        {"host": "example.com", "cookies": [SECRET]},
        {"host": "example.com", "passwort": SECRET},
        {"host": "example.com", "username": "a", "password": SECRET * 100},
    ],
)
def test_bad_input_is_named_and_not_repeated(client: FlaskClient, body: dict[str, Any]) -> None:
    answer = client.post("/v1/sites", json=body)
    assert answer.status_code == 422
    assert answer.get_json()["code"] == "invalid_request"
    assert answer.get_json()["detail"].endswith(".")
    assert SECRET not in answer.text
    assert client.get("/v1/sites").get_json() == {"sites": []}


@on_sqlite
def test_names_without_a_dot_are_fine(client: FlaskClient) -> None:
    assert put(client, "nas", username="me", password="")["host"] == "nas"


def test_only_operators(make_app: MakeApp, make_key: MakeKey) -> None:
    client = make_app(SLUICE_API_KEYS_REQUIRED="true", SLUICE_SITE_SECRETS_KEY=KEY).test_client()
    body = {"host": "example.com", "username": "a", "password": SECRET}
    calls = [("POST", "/v1/sites", body), ("GET", "/v1/sites", None),
             ("GET", "/v1/sites/example.com", None), ("POST", "/v1/sites:reseal", None),
             ("DELETE", "/v1/sites/example.com", None)]  # fmt: skip
    for headers, status in (
        ({}, 401),
        (make_key(Scope.SUBMIT, Scope.READ), 403),
        (make_key(Scope.OPERATE), 200),
    ):
        for method, path, json in calls:
            answer = client.open(path, method=method, json=json, headers=headers)
            assert answer.status_code == status, (method, path)


@on_sqlite
def test_without_a_key_nothing_is_kept(make_app: MakeApp, engine: sa.Engine) -> None:
    answer = (
        make_app()
        .test_client()
        .post("/v1/sites", json={"host": "example.com", "username": "a", "password": SECRET})
    )
    assert (answer.status_code, answer.get_json()["code"]) == (409, "conflict")
    assert "SLUICE_SITE_SECRETS_KEY" in answer.get_json()["detail"]
    assert rows(engine) == []


def test_another_key_takes_over(make_app: MakeApp, engine: sa.Engine) -> None:
    other = new_key()
    put(make_app(SLUICE_SITE_SECRETS_KEY=KEY).test_client(), username="a", password=SECRET)
    wrong = make_app(SLUICE_SITE_SECRETS_KEY=other).test_client()
    assert wrong.get("/v1/sites/example.com").get_json()["readable"] is False
    told = wrong.post("/v1/sites:reseal").get_json()
    assert told == {"done": 0, "unreadable": ["example.com"]}
    both = make_app(SLUICE_SITE_SECRETS_KEY=f"{other},{KEY}").test_client()
    assert both.post("/v1/sites:reseal").get_json() == {"done": 1, "unreadable": []}
    assert wrong.get("/v1/sites/example.com").get_json()["readable"] is True
    [row] = rows(engine)
    assert Login.loads(Sealer([other]).open(row.sealed)).password == SECRET


def test_sites_are_capped(
    client: FlaskClient, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites, "CAP", 3)
    for number in range(3):
        put(client, f"a{number}.example", username="a", password=SECRET)
    body = {"host": "b.example", "username": "a", "password": SECRET}
    answer = client.post("/v1/sites", json=body)
    assert (answer.status_code, answer.get_json()["code"]) == (409, "conflict")
    # One that is there may still change.
    put(client, "a1.example", username="b", password=SECRET)
    assert len(rows(engine)) == 3


def test_a_use_is_noted(client: FlaskClient, engine: sa.Engine) -> None:
    put(client, username="a", password=SECRET)
    with write(engine) as connection:
        sites.note_use(connection, ["example.com"], now=1_800_000_000.0)
    shown = client.get("/v1/sites/example.com").get_json()
    assert shown["used_at"].startswith("2027-01-15T08:00:00")
    assert put(client, username="b", password=SECRET)["used_at"] == shown["used_at"]
