"""A machine's own authority, named by `SSL_CERT_FILE`, holds for media children too."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sluice_core.adapters import settings
from sluice_core.runtime.children import ForkServer, child_environment

MEDIA = b"\x00\x00\x00\x20ftypisom" + b"\x00" * 5000


class Site(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "video/mp4")
        self.send_header("Content-Length", str(len(MEDIA)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(MEDIA)

    do_HEAD = do_GET  # noqa: N815  # the stdlib's name

    def log_message(self, *_):
        pass


@pytest.fixture
def site(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # handshakes that clients refuse
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"https://127.0.0.1:{server.server_port}/film.mp4"
        server.shutdown()
        thread.join()


def test_own_authority(child, site, certificate, tmp_path):
    named = settings.certificates({"SSL_CERT_FILE": str(certificate[0]), "HOME": "/root"})
    assert named == {"SSL_CERT_FILE": str(certificate[0])}
    env = child_environment(home=tmp_path, base=named)
    with ForkServer(module="sluice_core.adapters.ytdlp.child", env=env, cwd=tmp_path) as server:
        child.server = server
        egress = {"allow": ["127.0.0.0/8"], "own_certificates": True}
        [event] = child.ask({"kind": "extract", "url": site, "egress": egress})
        assert event["event"] == "media"


def test_unknown_authority(child, site):
    assert child.code(child.extract, site) == "network"
