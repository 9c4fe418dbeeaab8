"""Which of what is kept a run may show to the site of its link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from sluice_core.adapters.db import sites
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.schema import sites as table
from sluice_core.adapters.seal import Sealer, new_key
from sluice_core.domain.lanes import Actor
from sluice_core.domain.sites import Login, read_cookies
from sluice_core.runtime.run import Finished, Outcome, Run
from sluice_core.runtime.sites import login_request, sealed_link, sites_of, whole_link

KEY = new_key()
NOW = 1_800_000_000.0


@pytest.fixture
def rig(new_rig: Callable[..., Any], engine: sa.Engine, redis_url: str) -> Any:
    return new_rig(engine, redis_url, SLUICE_SITE_SECRETS_KEY=KEY)


def keep(engine: sa.Engine, host: str, *, cookie: str = "", key: str = KEY) -> None:
    text = None
    if cookie:
        line = f"{host}\tTRUE\t/\tFALSE\t0\tsession\t{cookie}"
        text = read_cookies(line, host, now=NOW).text
    login = Login(host, text, f"user-of-{host}", "word")
    row = sites.Kept(host, Sealer([key]).seal(login.dumps()), 1, None, True, NOW, NOW)  # noqa: FBT003  # as the row has it
    with write(engine) as connection:
        sites.put(connection, row)


def shown(rig: Any, url: str, *, runs: int = 1, landed: Sequence[str] = ()) -> list[dict[str, Any]]:
    """What the child of each run of a job gets; the job's failure in its place."""
    found: list[dict[str, Any]] = []

    def handle(run: Run) -> Outcome:
        found.extend(login_request(run, sites_of(run, landed).given) for _ in range(runs))
        return Finished([])

    job, message = rig.job_at(Actor.PARSE, url=url)
    rig.run(handle, message, Actor.PARSE)
    failed = rig.now(job).error
    return found or [{"code": failed.code, "class": failed.error_class, "message": failed.message}]


def hosts(login: dict[str, Any]) -> set[str]:
    return {password["host"] for password in login.get("login", {}).get("passwords", ())}


#: Link, and hosts of what its run takes.
TAKEN = [
    ("https://example.com/film", {"example.com"}),
    ("https://example.com:8443/film", {"example.com"}),
    ("https://www.example.com/film", {"example.com", "www.example.com"}),
    ("https://evil-example.com/film", set()),
    ("https://example.com.evil.net/film", set()),
    ("https://xn--bcher-kva.example/film", {"xn--bcher-kva.example"}),
    ("http://127.0.0.1:8080/film", {"127.0.0.1"}),
    ("http://127.0.0.2/film", set()),
]


def test_a_run_takes_what_is_of_its_link_and_above(rig: Any, engine: sa.Engine) -> None:
    for host in ("example.com", "www.example.com", "xn--bcher-kva.example", "127.0.0.1", "b.org"):
        keep(engine, host, cookie=f"cookie-of-{host}")
    for url, expected in TAKEN:
        [login] = shown(rig, url)
        assert hosts(login) == expected, url
        cookies = login.get("login", {}).get("cookies") or ""
        assert {line.split("cookie-of-")[1] for line in cookies.splitlines()[1:]} == expected, url


def test_where_the_link_led_counts_as_well(rig: Any, engine: sa.Engine) -> None:
    for host in ("example.com", "b.org", "c.org"):
        keep(engine, host)
    assert shown(rig, "https://short.example/1") == [{}]
    [login] = shown(rig, "https://short.example/1", landed=["b.org"])
    assert hosts(login) == {"b.org"}
    [login] = shown(rig, "https://example.com/1", landed=["b.org", "gone.org"])
    assert hosts(login) == {"example.com", "b.org"}


def test_the_link_of_an_entry_is_opened_for_its_run_alone(
    new_rig: Callable[..., Any], rig: Any, engine: sa.Engine, redis_url: str
) -> None:
    keep(engine, "example.com")
    whole, masked = "https://example.com/word-of-a-site/1", "https://example.com/***/1"
    other = new_rig(engine, redis_url, SLUICE_SITE_SECRETS_KEY=new_key())
    links: list[str] = []

    def handle(run: Run) -> Outcome:
        links.extend((run.job.request.url, whole_link(run), *sites_of(run).given))
        return Finished([])

    for one in (rig, other):
        sealed = sealed_link(rig.deps(), {"sealable": whole})
        job, message = one.job_at(Actor.PARSE, url=masked, entry=sealed)
        assert "word-of-a-site" not in repr(one.now(job))
        one.run(handle, message, Actor.PARSE)
    assert links == [masked, whole, "example.com"]
    assert other.now(job).error.code == "login_required"


def test_a_use_is_noted_once_a_minute_and_a_removal_holds_from_the_next_child(
    rig: Any, engine: sa.Engine
) -> None:
    keep(engine, "example.com")
    keep(engine, "other.example")
    statements: list[str] = []
    sa.event.listen(engine, "before_cursor_execute", lambda *a: statements.append(a[2]))
    first, second = shown(rig, "https://example.com/film", runs=2)
    assert hosts(first) == hosts(second) == {"example.com"}
    assert sum("UPDATE sites" in statement for statement in statements) == 1
    with read(engine) as connection:
        used = {row.host: row.used_at for row in sites.all_sites(connection)}
    assert used["example.com"] is not None
    assert used["other.example"] is None
    with write(engine) as connection:
        assert sites.remove(connection, "example.com")
    assert shown(rig, "https://example.com/film") == [{}]


def test_what_no_key_opens_waits_for_a_person(
    new_rig: Callable[..., Any], rig: Any, engine: sa.Engine, redis_url: str
) -> None:
    keep(engine, "example.com", key=new_key())
    for one in (rig, new_rig(engine, redis_url)):
        [told] = shown(one, "https://example.com/film")
        assert (told["code"], told["class"]) == ("login_required", "manual")
        assert "what is kept for example.com can't be opened" in told["message"]


def test_a_row_that_was_moved_to_another_host_opens_nothing(rig: Any, engine: sa.Engine) -> None:
    keep(engine, "example.com")
    with write(engine) as connection:
        connection.execute(sa.update(table).values(host="evil.example"))
    [told] = shown(rig, "https://evil.example/film")
    assert told["code"] == "login_required"
    assert "sealed for another host" in told["message"]
