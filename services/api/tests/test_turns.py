"""One request has the loop for a moment only, whatever its body is."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from sluice_api.models import MAX_BATCH
from sluice_api.values import MAX_VALUES
from sluice_testing.waiting import fastest

GOOD = "https://media.example/film"
SIZE = 10 * 1024 * 1024 - 200

#: The server, which notes what each turn of its loop takes: processor time of its one thread, in
#: seconds, to which a machine that is busy with others adds nothing. The first line is what
#: decoding a modest JSON text takes here.
_NOTING = """
from gevent import monkey
monkey.patch_all()
import json, os, time
import gevent
from sluice_api import serve, server

load = server.Server.load

def noting(self):
    app = load(self)
    out = open(os.environ["TURNS"], "w", buffering=1)
    text = "[" + "[]," * 100_000 + "[]]"
    took = []
    for _ in range(5):
        begun = time.thread_time()
        json.loads(text)
        took.append(time.thread_time() - begun)
    print(sorted(took)[2], file=out)
    state = [time.thread_time()]
    def turn():
        now = time.thread_time()
        if now - state[0] > 0.005:
            print(now - state[0], file=out)
        state[0] = time.thread_time()
    watcher = gevent.get_hub().loop.check()
    watcher.start(turn)
    self.watcher = watcher
    return app

server.Server.load = noting
serve.main()
"""
#: Times the modest text that one turn may take; what is shut out took 40 times and more.
MOST = 12


@dataclass(frozen=True)
class Watched:
    url: str
    notes: Path

    def send(self, path: str, body: bytes, kind: str = "application/json") -> httpx.Response:
        return httpx.post(
            self.url + path, content=body, headers={"Content-Type": kind}, timeout=120
        )

    def count(self) -> int:
        """How many turns were noted."""
        return len(self._noted())

    def longest(self, seen: int) -> float:
        """Of the turns behind those that were noted before, in times of the modest text."""
        modest, *turns = self._noted()
        return max(turns[seen - 1 :], default=0.0) / modest

    def _noted(self) -> list[float]:
        return [float(line) for line in self.notes.read_text().splitlines()]


@pytest.fixture
def watched(serve: Callable[..., Any], tmp_path: Path) -> Watched:
    notes = tmp_path / "turns"
    return Watched(serve(("-c", _NOTING), TURNS=str(notes)).url, notes)


def filled(one: bytes, *, before: bytes = b"[", after: bytes = b"0]", size: int = SIZE) -> bytes:
    return before + one * ((size - len(before) - len(after)) // len(one)) + after


def object_of(names: int) -> bytes:
    return b"{" + b",".join(b'"a%d":0' % n for n in range(names)) + b"}"


JSON, LINES = "application/json", "application/x-ndjson"
BATCH = "/v1/jobs:batch"
URL = b'"url":"' + GOOD.encode() + b'",'
#: Ninety complaints.
BAD = object_of(90)

#: Where to, what, and the answer.
HOSTILE: dict[str, tuple[str, str, bytes, int]] = {
    "one text": ("/v1/jobs", JSON, filled(b"a", before=b'{"url":"', after=b'"}'), 422),
    "escapes": ("/v1/jobs", JSON, filled(b"\\n", before=b'{"url":"', after=b'"}'), 422),
    "code points": ("/v1/jobs", JSON, filled(b"\\u00e9", before=b'{"url":"', after=b'"}'), 422),
    "half pairs": ("/v1/jobs", JSON, filled(b"\xed\xa0\x80", before=b'{"url":"', after=b'"}'), 422),
    "half pairs in a line": (BATCH, LINES, b"\xed\xa0\x80" * (SIZE // 3), 422),
    "a name": ("/v1/jobs", JSON, filled(b"a", before=b'{"', after=b'":0}'), 422),
    "depth": ("/v1/jobs", JSON, filled(b"[", after=b""), 422),
    "lists": ("/v1/jobs", JSON, filled(b"[],"), 422),
    "lists in a batch": (BATCH, JSON, filled(b"[],"), 422),
    "lists in a line": (BATCH, LINES, filled(b"[],"), 422),
    "texts": (BATCH, JSON, filled(b'"",'), 422),
    "commas in a text": (BATCH, JSON, filled(b",", before=b'["', after=b'"]'), 422),
    "objects": (BATCH, JSON, filled(b"{},"), 422),
    "numbers": (BATCH, JSON, filled(b"1,"), 422),
    "digits": ("/v1/jobs", JSON, filled(b"9", before=b"", after=b""), 400),
    "digits behind a point": ("/v1/jobs", JSON, filled(b"9", before=b"0.", after=b""), 422),
    "long numbers": (BATCH, JSON, filled(b"9" * 4300 + b","), 422),
    "names": ("/v1/jobs", JSON, object_of(800_000), 422),
    "as many names as are read": ("/v1/jobs", JSON, object_of(MAX_VALUES // 2 - 10), 422),
    "names in metadata": (
        "/v1/jobs", JSON, b"{" + URL + b'"metadata":' + object_of(140_000) + b"}", 422,
    ),
    "names in a filter": ("/v1/jobs:cancel", JSON, b'{"filter":' + object_of(140_000) + b"}", 422),
    "states": (
        "/v1/jobs:cancel", JSON, filled(b'"a",', before=b'{"filter":{"status":[', after=b'"a"]}}',
                                        size=1_100_000), 422,
    ),
    "languages": (
        "/v1/jobs", JSON, filled(b'"a b",', before=b"{" + URL + b'"subtitles":[', after=b'""]}',
                                 size=1_700_000), 422,
    ),
    "bad objects": (BATCH, JSON, b"[" + b",".join([BAD] * 2_000) + b"]", 422),
    "bad lines": (BATCH, LINES, (BAD + b"\n") * 9_000, 422),
    "bad links": (BATCH, JSON, json.dumps(["x"] * MAX_BATCH).encode(), 422),
    "strange hosts": (BATCH, LINES, ("http://" + "\u00df" * 2000 + "/\n").encode() * 2500, 422),
    "no lines": (BATCH, LINES, b"\n" * SIZE, 422),
    "tiny lines": (BATCH, LINES, b"a\n" * (SIZE // 2), 422),
    "empty lines": (BATCH, LINES, b" \n" * (SIZE // 2), 422),
    "a line without end": (BATCH, LINES, b"a" * SIZE, 422),
    "a form": ("/v1/jobs", "multipart/form-data; boundary=x", b"--x\r\n" * (SIZE // 5), 415),
    "cookies": (
        "/v1/sites", JSON,
        json.dumps({"host": "media.example",
                    "cookies": "a.b\tTRUE\t/\tTRUE\t0\tn\tv\n" * 83_000}).encode(), 422,
    ),
    "blank cookies": (
        "/v1/sites", JSON,
        json.dumps({"host": "media.example", "cookies": "\n" * 2_000_000}).encode(), 422,
    ),
    "too many cookies": (
        "/v1/sites", JSON,
        json.dumps({"host": "media.example", "cookies": "\t\n" * 2_400_000}).encode(), 422,
    ),
}  # fmt: skip


def test_no_body_has_the_loop_for_long(watched: Watched) -> None:
    longest = {}
    for name, (path, kind, body, status) in HOSTILE.items():
        assert len(body) < SIZE + 200, name

        def send(path: str = path, kind: str = kind, body: bytes = body) -> float:
            seen = watched.count()
            answer = watched.send(path, body, kind)
            assert answer.status_code == status, (name, answer.text[:300])  # noqa: B023  # run now
            assert len(answer.json()["detail"]) < 400, name  # noqa: B023  # run now
            return watched.longest(seen)

        longest[name] = fastest(send, below=MOST, tries=4)
    assert max(longest.values()) < MOST, longest


def test_chunks_of_a_byte_are_taken_apart_in_turns(watched: Watched) -> None:
    address = urlsplit(watched.url)
    head = (
        b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )

    def send() -> float:
        seen = watched.count()
        with socket.create_connection((address.hostname, address.port), timeout=120) as client:
            client.sendall(head + b"1\r\n[\r\n" * 300_000 + b"0\r\n\r\n")
            answer = b"".join(iter(lambda: client.recv(4096), b""))
        assert answer.startswith(b"HTTP/1.1 400 ")
        return watched.longest(seen)

    assert fastest(send, below=MOST, tries=4) < MOST
