"""An API whose machine's clock is wrong writes and compares moments as all others do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from sluice_core.adapters.db import access, outbox
from sluice_core.adapters.db.engine import open_engine, read, write
from sluice_testing.postgres import PostgresServer
from sluice_testing.wrong_clock import wrong_clock

#: Seconds that a busy machine may take, far less than what the clocks are wrong by.
SLOW = 120.0


@pytest.fixture
def shared(postgres_server: PostgresServer) -> Iterator[tuple[str, sa.Engine]]:
    """A database that machines share, and an engine of it."""
    name = postgres_server.new_database(migrated=True)
    engine = open_engine(postgres_server.url(name))
    yield postgres_server.url(name), engine
    engine.dispose()
    postgres_server.drop(name)


@pytest.mark.parametrize("ahead", [600.0, -600.0, 3600.0])
def test_the_first_submit_goes_by_the_database_s_clock(
    serve: Callable[..., Any], shared: tuple[str, sa.Engine], tmp_path: Path, ahead: float
) -> None:
    url, engine = shared
    served = serve(SLUICE_DATABASE_URL=url, **wrong_clock(tmp_path, ahead))
    now = time.time()
    # What is past there and not here, or the other way round.
    later = datetime.fromtimestamp(now + 300, UTC).isoformat()
    body = {"url": "https://media.example/1", "not_before": later}
    answer = httpx.post(f"{served.url}/v1/jobs", json=body, timeout=60)
    assert answer.status_code == 202, answer.text
    shown = answer.json()
    assert abs(datetime.fromisoformat(shown["created_at"]).timestamp() - now) < SLOW
    with read(engine) as c:
        [row] = outbox.of_job(c, shown["id"])
    assert row.due_at == pytest.approx(now + 300, abs=1)
    assert abs(row.created_at - now) < SLOW


def test_a_browser_s_sign_in_holds_with_another_api(
    serve: Callable[..., Any], shared: tuple[str, sa.Engine], tmp_path: Path
) -> None:
    """One API a month ahead, whose cookies would be over for it, or never for the others."""
    url, engine = shared
    settings = {"SLUICE_DATABASE_URL": url, "SLUICE_API_KEYS_REQUIRED": "true"}
    right = serve(**settings)
    wrong = serve(**settings, **wrong_clock(tmp_path, 31 * 86_400.0))
    with write(engine) as c:
        text, _ = access.create(c, name="me", scopes=[access.Scope.READ], now=time.time())
    signed = httpx.post(f"{right.url}/v1/session", json={"key": text}, timeout=60)
    assert signed.is_success, signed.text
    for served in (right, wrong):
        answer = httpx.get(f"{served.url}/v1/jobs", cookies=dict(signed.cookies), timeout=60)
        assert answer.status_code == 200, answer.text
