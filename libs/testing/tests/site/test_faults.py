"""Each fault is on the wire what its name says, and only as long as asked."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from sluice_testing.site.wire import MAX_SILENCE
from sluice_testing.waiting import PATIENCE, until

PATH = "/mp4/small.mp4"


@pytest.mark.parametrize("status", [401, 403, 404, 410, 416, 429, 500, 503])
def test_fail(sample_site, get, status):
    got = get(sample_site.url(f"{PATH}?fail={status}&retry_after=7"))
    assert got.status == status
    assert got.headers["Retry-After"] == "7"
    assert sample_site.stats(PATH).statuses == (status,)


def test_times_and_skip_count_by_name(sample_site, get):
    url = sample_site.url(f"{PATH}?fail=500&times=2&skip=1&id=a")
    assert [get(url).status for _ in range(5)] == [200, 500, 500, 200, 200]
    other = sample_site.url(f"{PATH}?fail=500&times=1&id=b")
    assert [get(other).status for _ in range(2)] == [500, 200]


@contextmanager
def slow_client(site, target: str) -> Iterator[socket.socket]:
    """A client with a small receive buffer, so that the site's own fills at once."""
    parts = urlsplit(site.url())
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.settimeout(PATIENCE)
        client.connect((parts.hostname, parts.port))
        client.sendall(f"GET {target} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
        yield client


def read_all(client: socket.socket) -> tuple[bytes, str]:
    """Everything that comes, and whether a close or a reset ended it."""
    data = b""
    try:
        while piece := client.recv(65536):
            data += piece
    except ConnectionResetError:
        return data, "reset"
    return data, "close"


def steady(site, path: str) -> int:
    """Bytes booked for a path once they no longer grow."""

    def unchanging() -> int | None:
        before = site.stats(path).bytes
        time.sleep(0.5)
        return before if site.stats(path).bytes == before else None

    return until(unchanging)


def test_reset_comes_after_exactly_so_many_bytes(sample_site):
    path = "/big/5000000.mp4"
    with slow_client(sample_site, f"{path}?reset=2000000") as client:
        # All is in buffers, much of it in the site's: a reset now would throw that away.
        steady(sample_site, path)
        data, ended_by = read_all(client)
    assert ended_by == "reset"
    assert len(data.partition(b"\r\n\r\n")[2]) == 2_000_000
    assert sample_site.stats(path).bytes == 2_000_000


def test_who_has_the_bytes_finds_them_booked(sample_site, get, monkeypatch):
    sent = os.sendfile

    def losing_its_turn(*args):
        count = sent(*args)
        time.sleep(0.2)
        return count

    monkeypatch.setattr(os, "sendfile", losing_its_turn)
    path = "/hls/ts/v1-000.ts"
    assert len(get(sample_site.url(path)).body) == sample_site.stats(path).bytes > 0


def test_short_body_ends_without_an_error(sample_site, get):
    got = get(sample_site.url(f"{PATH}?short=5000"))
    assert got.error is None
    assert len(got.body) == 5000
    assert int(got.headers["Content-Length"]) == sample_site.size(PATH)


def test_a_cut_counts_within_each_response(sample_site, get):
    got = get(sample_site.url(f"{PATH}?short=5000"), headers={"Range": "bytes=5000-"})
    assert (got.status, len(got.body)) == (206, 5000)
    whole = get(sample_site.url(f"{PATH}?short=999999999"))
    assert len(whole.body) == sample_site.size(PATH)


@pytest.mark.parametrize("after", [0, 4000])
def test_stall_is_silence_on_an_open_connection(sample_site, get, after):
    got = get(sample_site.url(f"{PATH}?stall={after}"), silence=2.0)
    assert got.status == 200
    assert isinstance(got.error, TimeoutError)
    assert len(got.body) == after


def test_a_client_that_leaves_a_stall_is_noticed_at_once(sample_site):
    url = sample_site.url(f"{PATH}?stall=100")
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)
    connection.request("GET", f"{PATH}?stall=100")
    response = connection.getresponse()
    assert response.read(100)
    stats = sample_site.stats(PATH)
    assert (stats.active, stats.connected) == (1, 1)
    response.close()
    connection.close()
    # Not only when the site gives up its silence.
    until(lambda: not sample_site.stats(PATH).connected, timeout=MAX_SILENCE / 2)
    (exchange,) = sample_site.stats(PATH).exchanges
    assert exchange.ended_at is not None


def test_throttle_is_per_connection(sample_site, get):
    url = sample_site.url("/clips/1/a.mp4?bytes=400000&throttle=400000")

    def quickest() -> float:
        with ThreadPoolExecutor(3) as pool:
            results = list(pool.map(get, [url] * 3))
        assert [len(got.body) for got in results] == [400_000] * 3
        assert min(got.seconds for got in results) > 0.8
        return min(got.seconds for got in results)

    # By turns, none would have been done before 2.4 s.
    until(lambda: quickest() < 2, why="they had to share it")


def test_many_throttled_connections_at_once(sample_site, get):
    url = sample_site.url("/clips/1/a.mp4?bytes=300000&throttle=300000")
    started = time.monotonic()
    with ThreadPoolExecutor(150) as pool:
        results = list(pool.map(lambda _: get(url), range(150)))
    assert {len(got.body) for got in results} == {300_000}
    # One after the other would take 150 s.
    assert time.monotonic() - started < 75


def test_latency_and_slow_headers(sample_site, get):
    assert get(sample_site.url(f"{PATH}?latency=0.4")).first_byte > 0.39
    assert get(sample_site.url(f"{PATH}?slow_headers=0.4")).first_byte > 0.39


def test_bodies_without_content_length(sample_site, get):
    whole = get(sample_site.url(PATH)).body
    chunked = get(sample_site.url(f"{PATH}?length=chunked"))
    assert chunked.headers["Transfer-Encoding"] == "chunked"
    closed = get(sample_site.url(f"{PATH}?length=close"))
    assert "Transfer-Encoding" not in closed.headers
    for got in (chunked, closed):
        assert "Content-Length" not in got.headers
        assert got.error is None
        assert got.body == whole
    cut = get(sample_site.url(f"{PATH}?length=chunked&short=70000"))
    assert len(cut.body) == 70_000
    assert isinstance(cut.error, http.client.IncompleteRead)


def test_ranges(sample_site, get):
    url, size = sample_site.url(PATH), sample_site.size(PATH)
    whole = get(url).body
    for header, piece in [
        ("bytes=0-0", whole[:1]),
        ("bytes=100-", whole[100:]),
        ("bytes=-7", whole[-7:]),
        (f"bytes=10-{size + 99}", whole[10:]),
    ]:
        got = get(url, headers={"Range": header})
        assert (got.status, got.body) == (206, piece)
    beyond = get(url, headers={"Range": f"bytes={size}-"})
    assert (beyond.status, beyond.headers["Content-Range"]) == (416, f"bytes */{size}")
    refused = get(f"{url}?ranges=no", headers={"Range": "bytes=100-"})
    assert (refused.status, refused.body) == (200, whole)
    assert "Accept-Ranges" not in refused.headers


def test_if_range_with_a_stale_tag_gets_the_whole(sample_site, get):
    url = sample_site.url(PATH)
    tag = get(url).headers["ETag"]
    fresh = get(url, headers={"Range": "bytes=9-", "If-Range": tag})
    stale = get(url, headers={"Range": "bytes=9-", "If-Range": '"other"'})
    assert (fresh.status, stale.status) == (206, 200)


@pytest.mark.parametrize("path", [PATH, "/big/1000000.mp4", "/clips/4/a.mp4?bytes=1000000"])
def test_change_gives_other_content_from_the_nth_request(sample_site, get, path):
    url = sample_site.url(f"{path}{'&' if '?' in path else '?'}change=3")
    first, second, third = (get(url) for _ in range(3))
    assert first.body == second.body != third.body
    assert first.headers["ETag"] == second.headers["ETag"] != third.headers["ETag"]


def test_redirects(sample_site, get):
    to_file = get(sample_site.url(f"{PATH}?redirect=file:///etc/passwd&status=307"))
    assert (to_file.status, to_file.headers["Location"]) == (307, "file:///etc/passwd")
    hop = get(sample_site.url("/redirect/2?to=http://10.0.0.1/x"))
    assert hop.headers["Location"] == "/redirect/1?to=http%3A%2F%2F10.0.0.1%2Fx"
    last = get(sample_site.url(hop.headers["Location"]))
    assert last.headers["Location"] == "http://10.0.0.1/x"
    loop = get(sample_site.url("/redirect/loop"))
    assert loop.headers["Location"].startswith("/redirect/loop?")


def test_html_and_type(sample_site, get):
    page = get(sample_site.url(f"{PATH}?html=1"))
    assert page.headers["Content-Type"].startswith("text/html")
    assert page.body.startswith(b"<!DOCTYPE html>")
    lie = get(sample_site.url(f"{PATH}?type=text/plain"))
    assert lie.headers["Content-Type"] == "text/plain"
    assert len(lie.body) == sample_site.size(PATH)
    assert get(sample_site.url("/broken/html.mp4")).headers["Content-Type"] == "video/mp4"
    assert get(sample_site.url("/broken/empty.mp4")).body == b""


def test_bomb_unpacks_to_a_thousand_times_its_size(sample_site, get):
    got = get(sample_site.url("/hostile/bomb?mb=64"))
    assert got.headers["Content-Encoding"] == "gzip"
    unpacked = zlib.decompress(got.body, 16 + zlib.MAX_WBITS)
    assert 60 << 20 < len(unpacked) <= 64 << 20
    assert len(got.body) < len(unpacked) / 500


@pytest.mark.parametrize("kind", ["html", "mp4"])
def test_endless_bodies_go_on(sample_site, kind):
    path = f"/hostile/endless.{kind}"
    connection = http.client.HTTPConnection(urlsplit(sample_site.url()).netloc, timeout=PATIENCE)
    connection.request("GET", path)
    response = connection.getresponse()
    assert len(response.read(20_000_000)) == 20_000_000
    response.close()
    connection.close()


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("/hostile/hls-private.m3u8", "http://10.255.255.1/segment.ts"),
        ("/hostile/hls-file.m3u8", "file:///etc/passwd"),
        ("/hostile/master-file.m3u8", "file:///etc/passwd"),
        ("/hostile/key-file.m3u8", 'URI="file:///etc/passwd"'),
        ("/hostile/dash-private.mpd", "http://10.255.255.1/segment.ts"),
        ("/hostile/page-private?target=http://127.0.0.1:1/x.mp4", "http://127.0.0.1:1/x.mp4"),
    ],
)
def test_hostile_manifests_point_inside(sample_site, get, path, inside):
    assert inside in get(sample_site.url(path)).body.decode()


def test_live_moves_on_and_never_ends(sample_site, get):
    body = get(sample_site.url("/hls/live.m3u8")).body.decode()
    assert "#EXT-X-ENDLIST" not in body
    until(lambda: get(sample_site.url("/hls/live.m3u8")).body.decode() != body)


def test_control_rules_by_pattern_and_the_query_on_top(sample_site, get):
    sample_site.control("/hls/ts/*.ts", fail=503)
    assert get(sample_site.url("/hls/ts/v0-001.ts")).status == 503
    assert get(sample_site.url("/hls/ts/v0-001.ts?fail=410")).status == 410
    assert get(sample_site.url("/hls/ts/master.m3u8")).status == 200
    sample_site.control("/hls/ts/*.ts")
    assert get(sample_site.url("/hls/ts/v0-001.ts")).status == 200
    with pytest.raises(ValueError, match="throttle"):
        sample_site.control("/x", throttle=0)


def test_wrong_parameters_are_told(sample_site, get):
    assert get(sample_site.url(f"{PATH}?fail=many")).status == 400
    assert get(sample_site.url("/no/such/thing.mp4")).status == 404
    assert get(sample_site.url("/mp4/../mp4/.hidden")).status == 404


def test_control_and_stats_over_http(sample_site, get):
    def call(method: str, path: str, body: dict | None = None) -> dict:
        connection = http.client.HTTPConnection(
            urlsplit(sample_site.url()).netloc, timeout=PATIENCE
        )
        connection.request(method, path, json.dumps(body or {}))
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
        assert response.status == (400 if "error" in answer else 200)
        return answer

    call("POST", "/_control", {"path": PATH, "fail": 503, "times": 1})
    assert [get(sample_site.url(PATH)).status for _ in range(2)] == [503, 200]
    assert call("GET", f"/_stats?path={PATH}")["statuses"] == [503, 200]
    assert call("GET", "/_stats")[PATH]["requests"] == 2
    call("POST", "/_control", {"path": PATH, "fail": 500})
    call("DELETE", "/_control")
    assert get(sample_site.url(PATH)).status == 200
    call("POST", "/_reset")
    assert call("GET", "/_stats") == {}
    assert "error" in call("POST", "/_control", {"fail": 500})


def test_stats_tell_ranges_and_bytes_by_exact_link(sample_site, get):
    get(sample_site.url(PATH), headers={"Range": "bytes=0-99"})
    get(sample_site.url(f"{PATH}?x=1"))
    stats = sample_site.stats(PATH)
    assert (stats.requests, stats.bytes) == (2, 100 + sample_site.size(PATH))
    assert stats.ranges == ("bytes=0-99",)
    assert sample_site.stats(f"{PATH}?x=1").requests == 1
    assert sample_site.stats("/never").requests == 0


def test_bytes_of_a_throttled_client_are_nearly_what_it_took(sample_site):
    path = "/big/50000000.mp4"
    with slow_client(sample_site, f"{path}?throttle=20000000") as client:
        read = 0
        while read < 1_000_000:
            read += len(client.recv(65536))
        assert read - 1000 <= steady(sample_site, path) <= read + 600_000


def test_cut_ends_open_connections(sample_site, get):
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(get, sample_site.url(f"{PATH}?stall=0"))
        until(lambda: sample_site.stats(PATH).active)
        assert sample_site.cut("/other") == 0
        assert sample_site.cut(PATH) == 1
        assert waiting.result(PATIENCE).body == b""
