from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient

from sluice_api.app import EXTENSION
from sluice_core.adapters.db import runs, schema
from sluice_core.adapters.db.engine import write
from sluice_core.domain.job import Artifact
from sluice_core.domain.lanes import Actor
from sluice_testing import factories

CONTENT = bytes(range(256)) * 10_000  # 2.56 MB: several pieces
SHA = hashlib.sha256(CONTENT).hexdigest()
ETAG = f'"{SHA}"'
NAMES = ["film.mp4", "影片 🎬 “x”.mp4", "مقطع.mp4", 'a"b;c%2f\\d.mp4', "x" * 200 + ".mp4"]


@dataclass(frozen=True)
class Stored:
    client: FlaskClient
    job_id: str
    path: Path

    def url(self, name: str = "film.mp4") -> str:
        return f"/v1/jobs/{self.job_id}/files/{quote(name, safe='')}"

    def get(self, name: str = "film.mp4", query: str = "", **headers: str) -> Any:
        sent = {key.replace("_", "-"): value for key, value in headers.items()}
        return self.client.get(self.url(name) + query, headers=sent)


@pytest.fixture
def stored(app: Flask, engine: sa.Engine, tmp_path: Path) -> Stored:
    """A done job with files of many names, and one that is a page."""
    source = tmp_path / "content"
    source.write_bytes(CONTENT)
    now = time.time()
    kinds = dict.fromkeys(NAMES, ("video", "video/mp4"))
    kinds |= {"a.html": ("other", "text/html"), "a.svg": ("image", "image/svg+xml")}
    with write(engine) as connection:
        run = factories.run_at(connection, Actor.TRANSCODE, now=now)
        files = [
            Artifact(name, kind, f"files/{run.job.id}/t.1/{n}", len(CONTENT), SHA, content_type)
            for n, (name, (kind, content_type)) in enumerate(kinds.items())
        ]
        runs.succeed(connection, run, files=files, fields={}, expires_at=now + 60, now=now)
    storage = app.extensions[EXTENSION].storage
    for file in files:
        storage.put(file.key, source)
    return Stored(app.test_client(), run.job.id, source)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
class TestFiles:
    def test_a_file_comes_whole(self, stored: Stored) -> None:
        response = stored.get()
        assert response.status_code == 200
        assert response.data == CONTENT
        assert response.headers["ETag"] == ETAG
        assert response.headers["Accept-Ranges"] == "bytes"
        assert response.headers["Content-Length"] == str(len(CONTENT))
        assert response.headers["Content-Type"] == "video/mp4"
        assert response.headers["X-Content-Type-Options"] == "nosniff"

    @pytest.mark.parametrize("left", [None, 1000, len(CONTENT) + 1])
    def test_a_file_that_somebody_removed_or_cut_is_no_file_and_is_fetched_anew(
        self, app: Flask, stored: Stored, engine: sa.Engine, left: int | None
    ) -> None:
        with write(engine) as connection:
            jobs = schema.jobs
            of_it = jobs.c.id == stored.job_id
            connection.execute(sa.update(jobs).where(of_it).values(dedup_key="as asked"))
            key = connection.execute(
                sa.select(schema.artifacts.c.key).where(schema.artifacts.c.name == "film.mp4")
            ).scalar_one()
        assert stored.get().status_code == 200
        storage = app.extensions[EXTENSION].storage
        storage.delete(key)
        if left is not None:
            other = stored.path.with_name("other")
            other.write_bytes(b"x" * left)
            storage.put(key, other)
        for answer in (stored.get(), stored.get(Range="bytes=0-9")):
            assert answer.status_code == 404
            assert "Hand in the link again" in answer.get_json()["detail"]
        with write(engine) as connection:
            assert connection.execute(sa.select(jobs.c.dedup_key).where(of_it)).scalar() is None
        assert stored.get("مقطع.mp4").status_code == 200

    def test_head_tells_without_sending(self, stored: Stored) -> None:
        response = stored.client.head(stored.url())
        assert (response.status_code, response.data) == (200, b"")
        assert response.headers["Content-Length"] == str(len(CONTENT))

    @pytest.mark.parametrize(
        ("asked", "first", "last"),
        [
            ("bytes=0-0", 0, 0),
            ("bytes=0-99", 0, 99),
            ("bytes=1048570-1048590", 1_048_570, 1_048_590),
            ("bytes=2559000-", 2_559_000, 2_559_999),
            ("bytes=-10", 2_559_990, 2_559_999),
            ("bytes=5-99999999", 5, 2_559_999),
        ],
    )
    def test_parts(self, stored: Stored, asked: str, first: int, last: int) -> None:
        response = stored.get(Range=asked)
        assert response.status_code == 206
        assert response.data == CONTENT[first : last + 1]
        assert response.headers["Content-Range"] == f"bytes {first}-{last}/{len(CONTENT)}"

    def test_a_part_outside_is_refused(self, stored: Stored) -> None:
        response = stored.get(Range="bytes=9999999-")
        assert response.status_code == 416
        assert response.headers["Content-Range"] == f"bytes */{len(CONTENT)}"
        assert response.get_json()["code"] == "range_not_satisfiable"

    def test_many_parts_at_once_give_the_whole(self, stored: Stored) -> None:
        response = stored.get(Range="bytes=0-1,5-6")
        assert (response.status_code, response.data) == (200, CONTENT)

    def test_a_known_file_is_not_sent_again(self, stored: Stored) -> None:
        assert stored.get(If_None_Match=ETAG).status_code == 304
        assert stored.get(If_None_Match='"other"').status_code == 200

    def test_a_part_of_another_file_is_not_mixed_in(self, stored: Stored) -> None:
        assert stored.get(Range="bytes=0-9", If_Range=ETAG).status_code == 206
        whole = stored.get(Range="bytes=0-9", If_Range='"other"')
        assert (whole.status_code, whole.data) == (200, CONTENT)

    @pytest.mark.parametrize("name", NAMES)
    def test_any_name(self, stored: Stored, name: str) -> None:
        response = stored.get(name)
        assert response.status_code == 200
        disposition = response.headers["Content-Disposition"]
        assert disposition.startswith("attachment;")
        assert disposition.isascii()
        assert f"filename*=UTF-8''{quote(name, safe='!#$&+-.^_`|~')}" in disposition

    def test_only_media_is_shown_and_only_when_asked(self, stored: Stored) -> None:
        shown = stored.get(query="?inline=1").headers["Content-Disposition"]
        assert shown.startswith("inline;")
        for name in ("a.html", "a.svg"):
            headers = stored.get(name, "?inline=1").headers
            assert headers["Content-Disposition"].startswith("attachment;")
            assert "sandbox" in headers["Content-Security-Policy"]

    @pytest.mark.parametrize("name", ["none.mp4", "../film.mp4", "/etc/passwd", "film.mp4\x00"])
    def test_nothing_else_is_served(self, stored: Stored, name: str) -> None:
        assert stored.get(name).status_code in (404, 422)

    def test_a_swept_file_is_a_404(self, app: Flask, stored: Stored) -> None:
        storage = app.extensions[EXTENSION].storage
        for key in list(storage.keys(f"files/{stored.job_id}/")):
            storage.delete(key)
        assert stored.get().status_code == 404

    def test_the_job_names_its_files(self, stored: Stored) -> None:
        job = stored.client.get(f"/v1/jobs/{stored.job_id}").get_json()
        for file in job["files"]:
            assert stored.client.get(file["url"]).status_code == 200
