"""Playlists lead players to the files beside them, whatever let the player in."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urljoin

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient

from sluice_api import playlists
from sluice_api.app import EXTENSION
from sluice_core.adapters.db import runs
from sluice_core.adapters.db.access import Scope
from sluice_core.adapters.db.engine import write
from sluice_core.domain.job import PLAYLIST
from sluice_testing import factories

MakeApp = Callable[..., Flask]
MakeKey = Callable[..., dict[str, str]]

TYPE = "application/vnd.apple.mpegurl"
MASTER = """\
#EXTM3U
#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="a",NAME="URI=",URI="audio.m3u8",CHANNELS="2"

#EXT-X-STREAM-INF:BANDWIDTH=1
360p.m3u8
"""
MEDIA = """\
#EXTM3U
#EXT-X-MAP:URI="360p.mp4",BYTERANGE="829@0"
#EXTINF:6.0,
360p.mp4
https://elsewhere.example/x.mp4
"""
FILES = {
    "master.m3u8": (PLAYLIST, TYPE, MASTER),
    "360p.m3u8": (PLAYLIST, TYPE, MEDIA),
    "audio.m3u8": (PLAYLIST, TYPE, MEDIA),
    "360p.mp4": ("video", "video/mp4", "abc"),
}


def test_a_query_goes_behind_each_link_and_nothing_else() -> None:
    assert playlists.carry(MASTER, lambda name: f"?{len(name)}") == MASTER.replace(
        "audio.m3u8", "audio.m3u8?10"
    ).replace("360p.m3u8", "360p.m3u8?9")
    assert playlists.carry(MASTER, lambda _: "") == MASTER


def links(text: str) -> list[str]:
    return re.findall(r'[:,]URI="([^"]+)"', text) + re.findall(r"^[^#\n].*", text, re.MULTILINE)


def package(app: Flask, engine: sa.Engine, headers: dict[str, str]) -> str:
    """The address of a finished job's master playlist."""
    client = app.test_client()
    asked = {"url": "https://media.example/film"}
    job = client.post("/v1/jobs", json=asked, headers=headers).get_json()
    now = time.time()
    storage = app.extensions[EXTENSION].storage
    source = app.extensions[EXTENSION].settings.store.data_dir / "source"
    source.parent.mkdir(parents=True, exist_ok=True)
    with write(engine) as connection:
        run = factories.last_run(connection, job["id"], now=now)
        files = []
        for name, (kind, content_type, text) in FILES.items():
            source.unlink(missing_ok=True)
            source.write_text(text)
            file = factories.artifact(run, name)
            files.append(replace(file, kind=kind, content_type=content_type, bytes=len(text)))
            storage.put(files[-1].key, source)
        runs.succeed(connection, run, files=files, fields={}, expires_at=now + 60, now=now)
    return f"/v1/jobs/{job['id']}/files/master.m3u8"


def walk(client: FlaskClient, url: str) -> dict[str, Any]:
    """What comes when every link that leads to this server is followed, by address."""
    found: dict[str, Any] = {}
    left = [url]
    while left:
        at = left.pop()
        if at in found or at.startswith("https://elsewhere"):
            continue
        found[at] = client.get(at)
        if found[at].content_type == TYPE:
            left += [urljoin(at, link) for link in links(found[at].text)]
    return found


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
class TestPlaylists:
    def test_as_it_is_stored(self, app: Flask, engine: sa.Engine) -> None:
        client = app.test_client()
        response = client.get(package(app, engine, {}))
        assert (response.status_code, response.text) == (200, MASTER)
        assert response.content_type == TYPE
        found = walk(client, response.request.path)
        assert len(found) == 4
        assert {answer.status_code for answer in found.values()} == {200}

    def test_a_player_of_a_page_is_led_to_files_that_may_be_shown(
        self, app: Flask, engine: sa.Engine
    ) -> None:
        found = walk(app.test_client(), package(app, engine, {}) + "?inline=1")
        assert len(found) == 4
        for url, answer in found.items():
            assert url.endswith("?inline=1")
            assert answer.headers["Content-Disposition"].startswith("inline;")

    def test_a_ticket_leads_to_all_files_and_no_further(
        self, make_app: MakeApp, make_key: MakeKey, engine: sa.Engine
    ) -> None:
        app = make_app(SLUICE_HTTP_HOST="0.0.0.0")  # noqa: S104  # keys are needed
        client, mine = app.test_client(), make_key(Scope.SUBMIT, Scope.READ)
        url = package(app, engine, mine)
        link = client.post(f"{url}/link", headers=mine).get_json()["url"]
        found = walk(client, link)
        assert {answer.status_code for answer in found.values()} == {200}
        assert len(found) == 4
        media = next(answer.text for at, answer in found.items() if "360p.m3u8" in at)
        assert "https://elsewhere.example/x.mp4\n" in media
        # Each ticket is for its own file, and ends when the one that led here does.
        assert len({at.partition("ticket=")[2] for at in found}) == 4
        assert len({at.partition("ticket=")[2].split(".")[1] for at in found}) == 1
        spoiled = client.get(url + "?ticket=" + "x" * 40, headers=mine)
        assert (spoiled.status_code, spoiled.text) == (200, MASTER)

    def test_a_known_one_is_not_sent_again(self, app: Flask, engine: sa.Engine) -> None:
        client, url = app.test_client(), package(app, engine, {})
        for address in (url, f"{url}?inline=1"):
            etag = client.get(address).headers["ETag"]
            assert client.get(address, headers={"If-None-Match": etag}).status_code == 304
            head = client.head(address)
            assert (head.status_code, head.data) == (200, b"")

    def test_one_that_is_too_large_is_sent_as_it_is(
        self, app: Flask, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client, url = app.test_client(), package(app, engine, {})
        monkeypatch.setattr(playlists, "MAX_BYTES", len(MASTER))
        assert client.get(f"{url}?inline=1").text != MASTER
        monkeypatch.setattr(playlists, "MAX_BYTES", len(MASTER) - 1)
        assert client.get(f"{url}?inline=1").text == MASTER

    def test_one_that_is_gone_is_a_404(self, app: Flask, engine: sa.Engine) -> None:
        client, url = app.test_client(), package(app, engine, {})
        storage = app.extensions[EXTENSION].storage
        for key in list(storage.keys(f"files/{url.split('/')[3]}/")):
            storage.delete(key)
        for address in (url, f"{url}?inline=1"):
            assert client.get(address).status_code == 404
