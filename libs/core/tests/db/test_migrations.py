"""The migrations lead to the tables that the code speaks of, once, whoever runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from sluice_core.adapters.db import migrate
from sluice_core.adapters.db.engine import check, open_engine, read, write
from sluice_core.adapters.db.migrate import upgrade
from sluice_core.adapters.db.schema import REVISION, metadata
from sluice_testing.database import until_blocked
from sluice_testing.factories import make_job


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'new.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


def is_told_by_the_models(_thing: object, name: str | None, kind: str, *_: object) -> bool:
    """All but PostgreSQL's own indexes over expressions."""
    return not (kind == "index" and (name or "").startswith("job_search_"))


def test_the_tables_are_those_of_the_code(engine: sa.Engine) -> None:
    with read(engine) as c:
        context = MigrationContext.configure(
            c,
            opts={
                "compare_type": True,
                "compare_server_default": True,
                "include_object": is_told_by_the_models,
            },
        )
        assert compare_metadata(context, metadata) == []


def test_the_code_names_the_newest_migration() -> None:
    config = Config()
    folder = Path(migrate.__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder))
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [REVISION]
    # The check for an older schema compares them as texts.
    revisions = [s.revision for s in script.walk_revisions()]
    assert revisions == sorted(revisions, reverse=True)


def test_twice_is_once_and_keeps_what_is_there(empty_url: str) -> None:
    engine = open_engine(empty_url)
    upgrade(engine)
    with write(engine) as c:
        job = make_job(c)
    upgrade(engine)
    with read(engine) as c:
        found = c.execute(sa.text("SELECT id FROM jobs")).scalars().all()
    assert found == [job.id]
    engine.dispose()


def test_three_processes_at_once(empty_url: str) -> None:
    code = (
        "import sys;"
        "from sluice_core.adapters.db.engine import open_engine;"
        "from sluice_core.adapters.db.migrate import upgrade;"
        "engine = open_engine(sys.argv[1], patience=60);"
        "print('ready', flush=True); sys.stdin.readline();"
        "upgrade(engine)"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code, empty_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        ended = [child.communicate("go\n", timeout=180) for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert [
        (child.returncode, errors) for child, (_, errors) in zip(children, ended, strict=True)
    ] == [(0, "")] * 3
    engine = open_engine(empty_url)
    check(engine)
    engine.dispose()


def test_a_second_migration_waits_for_the_first(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(postgres_url)
    real = command.upgrade
    code = (
        "import sys;"
        "from sluice_core.adapters.db.engine import open_engine;"
        "from sluice_core.adapters.db.migrate import upgrade;"
        "upgrade(open_engine(sys.argv[1], patience=60))"
    )
    children: list[subprocess.Popen[bytes]] = []

    def and_be_slow(config: Config, revision: str) -> None:
        real(config, revision)
        children.append(subprocess.Popen([sys.executable, "-c", code, postgres_url]))
        until_blocked(engine)

    monkeypatch.setattr(command, "upgrade", and_be_slow)
    try:
        upgrade(engine)
        assert [child.wait(180) for child in children] == [0]
    finally:
        for child in children:
            child.kill()
            child.wait()
    check(engine)
    engine.dispose()


def test_a_migration_that_fails_leaves_nothing(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(empty_url)
    real = command.upgrade

    def break_after(config: Config, revision: str) -> None:
        real(config, revision)
        raise RuntimeError("power")

    monkeypatch.setattr(command, "upgrade", break_after)
    with pytest.raises(RuntimeError, match="power"):
        upgrade(engine)
    with read(engine) as c:
        assert sa.inspect(c).get_table_names() == []
    monkeypatch.undo()
    upgrade(engine)
    check(engine)
    engine.dispose()
