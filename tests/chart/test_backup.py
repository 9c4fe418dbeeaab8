"""`docs/kubernetes.md`, "Back up and restore": what its commands do inside the trial's pods."""

from __future__ import annotations

import os
import re
import subprocess
from urllib.parse import parse_qs, urlsplit

import sqlalchemy as sa

from sluice_core.adapters.db.engine import open_engine
from sluice_core.adapters.db.migrate import upgrade
from sluice_testing.factories import make_job
from tests.chart.objects import containers, env
from tests.chart.render import ROOT, render

PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
#: Of each command for a pod the program that runs there, and its arguments.
INSIDE = dict(re.findall(r"exec (?:-i )?deployment/sluice-\w+ -- (\w+) (.*)$", PAGE, re.MULTILINE))


def inside(program, database):
    """The command with the names of this machine's database."""
    command = f"{program} {INSIDE[program]}".replace("-U sluice", "-U postgres")
    named = re.sub(r"(-Fc|-d) sluice\b", rf"\1 {database}", command)
    assert named != command
    return named


def jobs(engine):
    with engine.connect() as connection:
        return set(connection.execute(sa.text("SELECT id FROM jobs")).scalars())


def test_a_dump_brings_back_what_there_was(postgres_server, postgres_url, tmp_path):
    parts = urlsplit(postgres_url)
    database, [socket] = parts.path[1:], parse_qs(parts.query)["host"]
    path = f"{postgres_server.programs}:{os.environ['PATH']}"

    def run(program):
        subprocess.run(
            ["sh", "-ec", inside(program, database)],
            env={"PATH": path, "PGHOST": socket},
            cwd=tmp_path,
            check=True,
            timeout=120,
        )

    engine = open_engine(postgres_url)
    try:
        upgrade(engine)
        with engine.begin() as connection:
            make_job(connection)
        before = jobs(engine)
        run("pg_dump")
        with engine.begin() as connection:
            make_job(connection)
        assert len(jobs(engine)) == 2
        run("pg_restore")
        assert jobs(engine) == before
        # What a release finds after it: tables that it knows.
        upgrade(engine)
    finally:
        engine.dispose()


def test_redis_is_emptied_with_the_password_of_its_pod():
    [password] = re.findall(r'-a "\$(\w+)" FLUSHALL', INSIDE["sh"])
    [redis] = [c for name, _, c in containers(render("minimal")) if name == "sluice-redis"]
    assert password in env(redis)
    assert redis["args"][-2:] == ["--requirepass", f"$({password})"]
