import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sluice_core.adapters.egress import BlockedAddressError, EgressGuard, blocked_in
from sluice_core.domain.errors import ConfigError
from sluice_testing.waiting import fastest

# A guard can't be taken away again, so each test guards a process of its own.
_CHILD = """
import json, socket, sys, urllib.request
from sluice_core.adapters.egress import EgressGuard, blocked_in
settings, action = json.loads(sys.argv[1]), sys.argv[2]
EgressGuard(allow=settings["allow"], proxy=settings["proxy"]).install()
try:
    exec(action)
    print("reached")
except OSError as exc:
    print("blocked" if blocked_in(exc) else repr(exc))
"""


def guarded(action, *, allow=(), proxy=None):
    settings = json.dumps({"allow": list(allow), "proxy": proxy})
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, settings, action],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout.strip() or done.stderr


@pytest.fixture
def listener():
    """Count the connections to a loopback port; what is refused must not be seen here at all."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.path)
            target = self.path.partition("?to=")[2]
            self.send_response(302 if target else 200)
            if target:
                self.send_header("Location", target)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        server.seen = seen
        yield server
        server.shutdown()
        thread.join()


SPELLINGS = ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0177.1", "127.1", "0"]


@pytest.mark.parametrize("host", SPELLINGS)
def test_loopback_is_unreachable_in_every_spelling(listener, host):
    port = listener.server_port
    assert guarded(f"urllib.request.urlopen('http://{host}:{port}/')") == "blocked"
    assert guarded(f"socket.create_connection(({host!r}, {port}), 5)") == "blocked"
    assert not listener.seen


ACTIONS = {
    "connect": "socket.socket().connect(('127.0.0.1', {port}))",
    "connect by name": "socket.socket().connect(('localhost', {port}))",
    "connect_ex": "socket.socket().connect_ex(('127.0.0.1', {port}))",
    "below the Python class": "import _socket; _socket.socket().connect(('127.0.0.1', {port}))",
    "mapped": "socket.socket(socket.AF_INET6).connect(('::ffff:127.0.0.1', {port}))",
    "loopback of IPv6": "socket.socket(socket.AF_INET6).connect(('::1', {port}))",
    "metadata": "socket.socket().connect(('169.254.169.254', 80))",
    "datagram": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))",
    "message": "socket.socket(type=socket.SOCK_DGRAM).sendmsg([b'x'], [], 0, ('127.0.0.1', 9))",
    "unix socket": "socket.socket(socket.AF_UNIX).connect('/run/docker.sock')",
    "abstract unix socket": "socket.socket(socket.AF_UNIX).connect(chr(0) + 'x')",
}


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
def test_every_way_out_is_guarded(listener, action):
    assert guarded(action.format(port=listener.server_port)) == "blocked"


def test_redirect_to_an_address_that_is_not_allowed(listener):
    port = listener.server_port
    with socket.create_server(("127.0.0.2", 0)) as inside:
        target = f"http://127.0.0.2:{inside.getsockname()[1]}/"
        action = f"urllib.request.urlopen('http://127.0.0.1:{port}/?to={target}')"
        assert guarded(action, allow=[f"127.0.0.1:{port}"]) == "blocked"
        inside.settimeout(0)
        with pytest.raises(BlockingIOError):
            inside.accept()
    assert len(listener.seen) == 1


def test_name_that_resolves_differently_the_second_time(listener):
    action = f"""
answers = iter(["93.184.215.14", "127.0.0.1"])
real = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **more: real(next(answers), *rest, **more)
assert socket.getaddrinfo("rebind.example", 80)[0][4][0] == "93.184.215.14"
urllib.request.urlopen("http://rebind.example:{listener.server_port}/")
"""
    assert guarded(action) == "blocked"
    assert not listener.seen


def test_allowed_address_is_reached_on_its_port_alone(listener):
    port = listener.server_port
    action = f"urllib.request.urlopen('http://127.0.0.1:{port}/')"
    assert guarded(action, allow=[f"127.0.0.1:{port}"]) == "reached"
    assert guarded(action, allow=["127.0.0.0/8"]) == "reached"
    assert guarded(action, allow=[f"127.0.0.1:{port + 1}"]) == "blocked"


def test_an_allowed_name_opens_the_addresses_that_it_has_on_its_port_alone(listener):
    port = listener.server_port
    by_name = f"socket.create_connection(('localhost', {port}), 5)"
    by_address = f"socket.create_connection(('127.0.0.1', {port}), 5)"
    assert guarded(by_name, allow=[f"localhost:{port}"]) == "reached"
    assert guarded(by_address, allow=[f"localhost:{port}"]) == "reached"
    assert guarded(by_name, allow=[f"localhost:{port + 1}"]) == "blocked"
    assert guarded(by_name, allow=[f"no-such-name.invalid:{port}"]) == "blocked"
    elsewhere = f"socket.create_connection(('127.0.0.2', {port}), 5)"
    assert guarded(elsewhere, allow=[f"localhost:{port}"]) == "blocked"


def test_with_a_proxy_nothing_else_is_reached(listener):
    port = listener.server_port
    proxy = f"http://localhost:{port}"
    assert guarded(f"socket.create_connection(('127.0.0.1', {port}))", proxy=proxy) == "reached"
    other = "socket.create_connection(('93.184.215.14', 80), 5)"
    assert guarded(other, proxy=proxy, allow=["93.184.215.14"]) == "blocked"


@pytest.mark.parametrize("proxy", ["proxy:3128", "socks5://proxy:1080", "http://proxy", "http://"])
def test_proxy_that_can_not_be_read(proxy):
    with pytest.raises(ConfigError, match="EGRESS_PROXY"):
        EgressGuard(proxy=proxy)


def test_connection_without_installing_the_guard(listener):
    port = listener.server_port
    with pytest.raises(BlockedAddressError):
        EgressGuard().create_connection("localhost", port, timeout=5)
    guard = EgressGuard(allow=["127.0.0.1"])
    with contextlib.closing(guard.create_connection("localhost", port, timeout=5)) as sock:
        assert sock.getpeername() == ("127.0.0.1", port)


def test_refusal_is_found_behind_other_errors():
    refusal = BlockedAddressError("x")
    wrapped = RuntimeError("outer")
    wrapped.__cause__ = OSError("middle", refusal)
    assert blocked_in(wrapped) is refusal
    assert blocked_in(RuntimeError("outer")) is None


def test_many_silent_addresses_take_no_longer_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = server.getsockname()[1]
        for _ in range(4):
            # Once its queue is full, nobody who knocks is answered.
            filler = stack.enter_context(socket.socket())
            filler.settimeout(0)
            filler.connect_ex(("127.0.0.1", port))
        address = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: [address] * 40)
        guard = EgressGuard(allow=[f"127.0.0.1:{port}"])

        def seconds() -> float:
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                guard.create_connection("many.example", port, timeout=0.5)
            return time.monotonic() - began

        # 20 s, if each had as long as one.
        assert fastest(seconds, below=5) < 5
