import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sluice_core.adapters.binaries import deno_path
from sluice_core.adapters.ytdlp import MAX_EVENT
from sluice_core.domain.errors import SluiceError
from sluice_core.runtime.children import (
    ForkServer,
    ForkSpec,
    child_environment,
    error_from_event,
    run,
)

ALLOW = ("127.0.0.0/8",)


@pytest.fixture(scope="session")
def ytdlp_server(tmp_path_factory):
    """One for all tests of a process: its imports take a second."""
    folder = tmp_path_factory.mktemp("ytdlp")
    env = child_environment(home=folder, programs=[deno_path().parent], base={})
    env["PYTHONPATH"] = str(Path(__file__).parent)
    with ForkServer(module="hasty_child", env=env, cwd=folder) as server:
        yield server


class Child:
    """Sends requests to children in one scratch folder."""

    def __init__(self, server, scratch):
        self.server = server
        self.scratch = scratch
        self.events = []
        self.pid = None
        self.result = None

    def ask(self, request, *, allow=ALLOW, stop=lambda: None):
        self.events = []
        spec = ForkSpec(
            server=self.server,
            request={"egress": {"allow": list(allow)}, **request},
            scratch=self.scratch,
        )
        self.result = run(
            spec,
            on_line=lambda line: self.events.append(json.loads(line)),
            on_start=lambda pid, _started: setattr(self, "pid", pid),
            stop=stop,
            deadline_s=240,
            max_line=MAX_EVENT,
        )
        if self.events and self.events[-1]["event"] == "error":
            raise error_from_event(self.events[-1])
        if self.result.reason == "exited":
            assert self.result.exit_code == 0, self.result.stderr_tail
        return self.events

    def extract(self, url, **request):
        more = {name: request.pop(name) for name in ("allow", "stop") if name in request}
        return self.ask({"kind": "extract", "url": url, **request}, **more)

    def info(self, url, **request):
        """The description of a single media."""
        events = self.extract(url, **request)
        assert [event["event"] for event in events] == ["media"]
        return events[0]["info"]

    def fetch(self, info, format_id=None, **request):
        """Fetch into the scratch folder and return the file."""
        more = {name: request.pop(name) for name in ("allow", "stop") if name in request}
        format_id = format_id or info["formats"][0]["format_id"]
        dest = self.scratch / "track.media"
        request = {"info": info, "format_id": format_id, "dest": str(dest), **request}
        self.ask({"kind": "fetch", **request}, **more)
        return dest

    def code(self, action, *args, **kwargs):
        """The code that an action fails with."""
        with pytest.raises(SluiceError) as failure:
            action(*args, **kwargs)
        return failure.value.code

    def of_kind(self, kind):
        return [event for event in self.events if event["event"] == kind]


@pytest.fixture
def child(ytdlp_server, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return Child(ytdlp_server, scratch)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@pytest.fixture(name="sha256")
def _sha256():
    return sha256


MEDIA = b"\x00\x00\x00\x20ftypisom" + b"\x00" * 5000


@pytest.fixture
def proxy():
    """A proxy that plays every host of the world itself; keeps what it was asked and sent."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            headers.append(self.headers)
            self.send_response(200)
            self.send_header("Content-Type", "video/mp4")
            self.send_header("Content-Length", str(len(MEDIA)))
            self.end_headers()
            self.wfile.write(MEDIA)

        do_HEAD = do_GET  # noqa: N815  # the stdlib's name

        def log_message(self, *_):
            pass

    asked, headers = [], []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        server.asked, server.headers, server.media = asked, headers, MEDIA
        yield server
        server.shutdown()
        thread.join()
