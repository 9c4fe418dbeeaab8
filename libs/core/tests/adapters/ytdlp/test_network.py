"""The way out: a proxy as the only one, cookies to their own site alone."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from yt_dlp.networking import Request

from sluice_core.adapters.ytdlp.options import Network, base_params
from sluice_core.adapters.ytdlp.ydl import Downloader

MEDIA = b"\x00\x00\x00\x20ftypisom" + b"\x00" * 5000


@pytest.fixture
def proxy():
    """A proxy that plays every host of the world itself."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "video/mp4")
            self.send_header("Content-Length", str(len(MEDIA)))
            self.end_headers()
            self.wfile.write(MEDIA)

        do_HEAD = do_GET  # noqa: N815  # the stdlib's name

        def log_message(self, *_):
            pass

    asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        server.asked = asked
        yield server
        server.shutdown()
        thread.join()


def test_with_a_proxy_everything_goes_through_it(child, proxy):
    egress = {"allow": [], "proxy": f"http://127.0.0.1:{proxy.server_port}"}
    url = "http://media.example/film.mp4"
    info = child.ask({"kind": "extract", "url": url, "egress": egress})[0]["info"]
    dest = child.fetch(info, egress=egress)
    assert dest.read_bytes() == MEDIA
    assert set(proxy.asked) == {url}


def test_proxies_of_the_environment_are_not_used(proxy, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.server_port}")
    with Downloader(base_params(Path("/nowhere"), Network()), extractors=False) as ydl:
        assert not ydl.proxies.get("http")
        assert ydl.proxies.get("all") == "__noproxy__"


COOKIES = """# Netscape HTTP Cookie File
.example.com\tTRUE\t/\tFALSE\t0\tsession\tsecret
"""


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://example.com/a", "session=secret"),
        ("https://www.example.com/a", "session=secret"),
        ("https://example.org/a", None),
        ("https://notexample.com/a", None),
    ],
)
def test_cookies_go_to_their_own_site_alone(url, sent):
    params = base_params(Path("/nowhere"), Network())
    with Downloader(params, cookies=COOKIES, extractors=False) as ydl:
        assert ydl.cookiejar.get_cookie_header(Request(url).url) == sent
