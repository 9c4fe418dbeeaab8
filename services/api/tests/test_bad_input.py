from __future__ import annotations

import json
import re
import socket
import threading
from typing import Any

import pytest
import sqlalchemy as sa

from sluice_api import bodies, problems
from sluice_core.adapters.db.engine import read
from sluice_core.adapters.db.schema import jobs, outbox

GOOD = "https://media.example/film"

BAD_LINKS = [
    ("", "unsupported_url"),
    ("   ", "unsupported_url"),
    ("not a link", "unsupported_url"),
    ("http://", "unsupported_url"),
    ("file:///etc/passwd", "unsupported_url"),
    ("ftp://media.example/a", "unsupported_url"),
    ("javascript:alert(1)", "unsupported_url"),
    ("data:text/html,x", "unsupported_url"),
    ("-o/tmp/x", "unsupported_url"),
    ("--exec=rm", "unsupported_url"),
    ("https://media.example/" + "a" * 10_000, "unsupported_url"),
    ("https://user:secret@media.example/", "unsupported_url"),
    ("https://\u2603\ufe0f..example/", "unsupported_url"),
    ("https://media.example/a\r\nb", "unsupported_url"),
    ("http://127.0.0.1/", "blocked_address"),
    ("http://localhost:8080/", "blocked_address"),
    ("http://sub.localhost/", "blocked_address"),
    ("http://2130706433/", "blocked_address"),
    ("http://0x7f.1/", "blocked_address"),
    ("http://0177.0.0.1/", "blocked_address"),
    ("http://[::1]/", "blocked_address"),
    ("http://[::ffff:127.0.0.1]/", "blocked_address"),
    ("http://10.0.0.1/", "blocked_address"),
    ("http://192.168.1.1/", "blocked_address"),
    ("http://169.254.169.254/latest/meta-data", "blocked_address"),
    ("http://\uff11\uff12\uff17.0.0.1/", "blocked_address"),
]

BAD_BODIES: list[tuple[Any, str]] = [
    ({}, "invalid_request"),
    ([], "invalid_request"),
    ("text", "invalid_request"),
    (7, "invalid_request"),
    ({"url": None}, "invalid_request"),
    ({"url": 7}, "invalid_request"),
    ({"url": [GOOD]}, "invalid_request"),
    ({"url": "https://media.example/\x00"}, "invalid_request"),
    ({"url": GOOD, "preset": "none-such"}, "unknown_preset"),
    ({"url": GOOD, "preset": 720}, "invalid_request"),
    ({"url": GOOD, "preset": "best\x00"}, "invalid_request"),
    ({"url": GOOD, "quality": "best"}, "invalid_request"),
    ({"url": GOOD, "priority": "urgent"}, "invalid_request"),
    ({"url": GOOD, "playlist": "some"}, "invalid_request"),
    ({"url": GOOD, "items": "; rm -rf /"}, "invalid_request"),
    ({"url": GOOD, "items": "0"}, "invalid_request"),
    ({"url": GOOD, "items": "5-3"}, "invalid_request"),
    ({"url": GOOD, "items": "1:3"}, "invalid_request"),
    ({"url": GOOD, "items": ""}, "invalid_request"),
    ({"url": GOOD, "subtitles": "en"}, "invalid_request"),
    ({"url": GOOD, "subtitles": ["--exec"] * 33}, "invalid_request"),
    ({"url": GOOD, "subtitles": ["a b"]}, "invalid_request"),
    ({"url": GOOD, "not_before": 1}, "invalid_request"),
    ({"url": GOOD, "not_before": "tomorrow"}, "invalid_request"),
    ({"url": GOOD, "not_before": "2030-01-01T00:00:00"}, "invalid_request"),
    ({"url": GOOD, "not_before": "9999-12-31T23:59:59-12:00"}, "invalid_request"),
    ({"url": GOOD, "force": "yes"}, "invalid_request"),
    ({"url": GOOD, "metadata": []}, "invalid_request"),
    ({"url": GOOD, "metadata": {"a": "\x00"}}, "invalid_request"),
    ({"url": GOOD, "metadata": {"a": 10**30}}, "invalid_request"),
    ({"url": GOOD, "metadata": {"a": "x" * 20_000}}, "invalid_request"),
    ({"url": GOOD, "callback_url": "http://127.0.0.1/hook"}, "blocked_address"),
    ({"url": GOOD, "callback_url": "mailto:me"}, "unsupported_url"),
]

BAD_TEXTS: list[tuple[bytes, int]] = [
    (b"", 400),
    (b"{", 400),
    (b"{'url': 'x'}", 400),
    (b"\xff\xfe\x00", 400),
    (b'{"url": NaN}', 400),
    (b"null", 422),
    (b"[" * 100_000, 400),
    (b"9" * 5_000, 400),
    (b'{"url": "https://media.example/\\ud800"}', 422),
    (b'{"url": "' + GOOD.encode() + b'", "metadata": {"a": 1e400}}', 422),
    (b'{"url": "' + GOOD.encode() + b'", "metadata": {"a": ["\\ud800"]}}', 422),
    (b'{"url": "' + GOOD.encode() + b'", "metadata": {"\\ud800": 1}}', 422),
    (b'{"url": "' + GOOD.encode() + b'", "metadata": ' + b'{"a":' * 40 + b"1" + b"}" * 41, 422),
]


def nothing_stored(engine: sa.Engine) -> bool:
    with read(engine) as connection:
        counts = [
            connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            for table in (jobs, outbox)
        ]
    return counts == [0, 0]


def assert_problem(response: Any, code: str | None = None) -> None:
    assert 400 <= response.status_code < 500, response.text
    assert response.content_type == "application/problem+json"
    problem = response.get_json()
    assert problem["status"] == response.status_code
    assert len(problem["detail"]) > 10
    assert "Traceback" not in response.text
    if code:
        assert problem["code"] == code


@pytest.mark.parametrize(("link", "code"), BAD_LINKS, ids=lambda v: str(v)[:40].encode().hex()[:20])
def test_bad_links_are_refused_and_leave_nothing(shared: Any, link: str, code: str) -> None:
    response = shared.client.post("/v1/jobs", json={"url": link})
    assert_problem(response, code)
    assert nothing_stored(shared.engine)


@pytest.mark.parametrize(("body", "code"), BAD_BODIES, ids=lambda v: repr(v)[-40:])
def test_bad_bodies_are_refused_and_leave_nothing(shared: Any, body: Any, code: str) -> None:
    assert_problem(shared.client.post("/v1/jobs", json=body), code)
    assert nothing_stored(shared.engine)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"items": "some"}, "items: places in the list such as 1-3,7 are needed, the first is 1."),
        ({"metadata": []}, "metadata: an object is needed."),
        ({"callback_url": "http://"}, "The callback_url was refused: the link has no host name."),
        ({"subtitles": ["e n"]}, "subtitles.0: a language such as en or pt-BR is needed."),
        ({"subtitels": ["en"]}, "subtitels: nothing of this name is known."),
    ],
)
def test_what_is_wrong_is_told_in_words(shared: Any, body: Any, said: str) -> None:
    answer = shared.client.post("/v1/jobs", json={"url": GOOD, **body})
    assert answer.get_json()["detail"] == said


def test_a_body_that_is_no_object_is_told_so(shared: Any) -> None:
    answer = shared.client.post("/v1/jobs", json=[])
    assert answer.get_json()["detail"] == "body: an object is needed."


def test_no_pattern_is_told_to_people(shared: Any) -> None:
    document = shared.client.get("/openapi.json").get_data(as_text=True)
    patterns = set(re.findall(r'"pattern": ?("(?:[^"\\\\]|\\\\.)*")', document))
    assert len(patterns) >= 3
    for pattern in map(json.loads, patterns):
        said = problems.words(f"String should match pattern '{pattern}'")
        assert "pattern" not in said, pattern


def test_a_callback_that_is_refused_is_named(shared: Any) -> None:
    body = {"url": GOOD, "callback_url": "http://10.0.0.1/hook"}
    problem = shared.client.post("/v1/jobs", json=body).get_json()
    assert [error["field"] for error in problem["errors"]] == ["callback_url"]
    assert "SLUICE_EGRESS_ALLOW" in problem["help"]


@pytest.mark.parametrize(("text", "status"), BAD_TEXTS, ids=range(len(BAD_TEXTS)))
def test_what_is_no_json_is_refused(shared: Any, text: bytes, status: int) -> None:
    response = shared.client.post("/v1/jobs", data=text, content_type="application/json")
    assert response.status_code == status
    assert_problem(response, "invalid_request")
    assert nothing_stored(shared.engine)


def test_other_content_types_are_refused(shared: Any) -> None:
    response = shared.client.post(
        "/v1/jobs", data=json.dumps({"url": GOOD}), content_type="text/plain"
    )
    assert response.status_code == 415
    assert_problem(response, "unsupported_media_type")


def test_a_body_of_11_mb_is_refused(shared: Any) -> None:
    response = shared.client.post("/v1/jobs", json={"url": "x" * 11_000_000})
    assert response.status_code == 413
    assert_problem(response, "body_too_large")
    assert nothing_stored(shared.engine)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/../etc/passwd", 404, "not_found"),
        ("PUT", "/v1/jobs", 405, "method_not_allowed"),
        ("GET", "/v1/jobs/unknown", 422, "invalid_request"),
        ("GET", "/v1/jobs/" + "0" * 26, 404, "not_found"),
        ("POST", "/v1/jobs/" + "0" * 26 + "/cancel", 404, "not_found"),
        ("POST", "/v1/jobs/" + "0" * 26 + "/retry", 404, "not_found"),
        ("DELETE", "/v1/jobs/" + "0" * 26, 404, "not_found"),
        ("GET", "/v1/jobs/" + "0" * 26 + "/events", 404, "not_found"),
        ("GET", "/v1/jobs/" + "0" * 26 + "/attempts", 404, "not_found"),
        ("GET", "/v1/jobs/" + "0" * 26 + "/files/a.mp4", 404, "not_found"),
        ("GET", "/v1/jobs?limit=0", 422, "invalid_request"),
        ("GET", "/v1/jobs?limit=x", 422, "invalid_request"),
        ("GET", "/v1/jobs?status=NEW", 422, "invalid_request"),
        ("GET", "/v1/jobs?cursor=1", 422, "invalid_request"),
        ("GET", "/v1/jobs?since=yesterday", 422, "invalid_request"),
        ("GET", "/v1/jobs?q=%00", 422, "invalid_request"),
        ("GET", "/v1/jobs?colour=red", 422, "invalid_request"),
        ("GET", "/v1/events?ids=1,2", 422, "invalid_request"),
    ],
)
def test_bad_addresses_are_problems(
    shared: Any, method: str, path: str, status: int, code: str
) -> None:
    response = shared.client.open(path, method=method)
    assert response.status_code == status
    assert_problem(response, code)


def test_a_wrong_method_names_the_right_ones(shared: Any) -> None:
    assert "POST" in shared.client.put("/v1/jobs").headers["Allow"]


def test_a_fault_of_ours_shows_nothing_of_it(shared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_options: object) -> None:
        raise RuntimeError("secret inside")

    monkeypatch.setattr("sluice_api.routes.jobs.gather", broken)
    response = shared.client.get("/v1/jobs")
    assert response.status_code == 500
    assert response.get_json()["code"] == "internal"
    assert "secret" not in response.text


def test_what_is_no_id_is_told_in_words(client):
    for path in ("/v1/jobs/nope", "/v1/jobs?cursor=nope"):
        answer = client.get(path)
        assert answer.status_code == 422
        assert "this is no id" in answer.get_json()["detail"]


def test_a_client_that_falls_silent_in_its_body_is_not_waited_for(client, monkeypatch):
    monkeypatch.setattr(bodies, "SILENCE", 0.1)
    near, far = socket.socketpair()
    # Were the timeout not set, this would end the wait, with another answer.
    timer = threading.Timer(60, far.close)
    with near, far, near.makefile("rb", buffering=0) as body:
        far.sendall(b'{"url"')
        timer.start()
        answer = client.post(
            "/v1/jobs",
            content_type="application/json",
            environ_overrides={
                "wsgi.input": body,
                "CONTENT_LENGTH": "500",
                "gunicorn.socket": near,
            },
        )
        assert timer.is_alive()
        timer.cancel()
        assert answer.status_code == 400
        assert near.gettimeout() is None
