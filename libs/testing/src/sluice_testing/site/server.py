"""The HTTP server: a thread per connection, faults laid over healthy answers, all booked."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from . import pages, router
from .behaviour import Behaviour
from .reply import Asked, NoSuchPathError, Reply, status_reply, text_reply
from .response import Conditions, choose_framing, choose_part, head_bytes, send_body
from .stats import Record
from .wire import Wire

if TYPE_CHECKING:
    from .behaviour import Controls
    from .reply import Sources
    from .stats import Connection, SiteStats

#: Seconds that an idle connection is kept, and bytes of a control request.
IDLE_TIMEOUT = 120.0
MAX_CONTROL_BYTES = 1 << 20


class SiteServer(ThreadingHTTPServer):
    """One listener; several of one site share sources, controls and stats."""

    daemon_threads = True
    # Closing must not wait for clients: their connections are cut instead.
    block_on_close = False
    request_queue_size = 1024
    allow_reuse_address = True

    def __init__(
        self,
        address: tuple[str, int],
        *,
        sources: Sources,
        controls: Controls,
        stats: SiteStats,
    ) -> None:
        self.sources = sources
        self.controls = controls
        self.stats = stats
        self._open: dict[socket.socket, str] = {}
        self._closing = False
        self._changed = threading.Condition()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, SiteHandler)

    def server_bind(self) -> None:
        # Without the base class's look-up of the host's name, which may ask a name server.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def track(self, sock: socket.socket, path: str | None) -> None:
        """Note what a connection asks for; None when it closed."""
        with self._changed:
            if path is None:
                self._open.pop(sock, None)
            else:
                self._open[sock] = path
            closing = self._closing
            self._changed.notify_all()
        if closing and path is not None:
            # Accepted before the listener closed, seen after all others were cut.
            _shut(sock)

    def end_connections(self, timeout: float) -> bool:
        """Cut every connection, later ones too, and wait for their threads; False when late."""
        with self._changed:
            self._closing = True
        self.cut_connections()
        with self._changed:
            return self._changed.wait_for(lambda: not self._open, timeout)

    def cut_connections(self, path: str | None = None) -> int:
        """Shut the connections whose latest request was for `path`, or all; returns how many."""
        with self._changed:
            chosen = [s for s, asked in self._open.items() if path in {None, asked}]
        for sock in chosen:
            _shut(sock)
        return len(chosen)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        # Without the base class's orderly shutdown, which would send FIN where a reset is wanted.
        self.close_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        # A client that leaves is what tests are about; a fault of the site itself must be seen.
        del request, client_address
        raise  # noqa: PLE0704  # called from the base class's except clause


class SiteHandler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_TIMEOUT
    server: SiteServer
    connection: socket.socket

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._booked: Connection = self.server.stats.connect(self.client_address[0])
        self.server.track(self.connection, "")

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            # Between two requests there is nothing to report of a client that left.
            self.close_connection = True

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            self.server.track(self.connection, None)
            self._booked.closed = time.time()

    def do_GET(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._control()

    def do_DELETE(self) -> None:
        self._control()

    def log_message(self, *args: object) -> None:
        """Say nothing: the stats tell more."""

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        if path == "/_stats":
            self._answer_json(HTTPStatus.OK, self._stats_json(parts.query))
            return
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        params = self.server.controls.params(path, query)
        target = self.path if parts.query else path
        record = Record(
            self.command,
            target,
            self.headers.get("Range"),
            self._booked,
            time.time(),
            host=self.connection.getsockname()[0],
            cookie=self.headers.get("Cookie"),
            authorization=self.headers.get("Authorization"),
        )
        self.server.stats.begin(path, record)
        self.server.track(self.connection, path)
        try:
            self._exchange(path, params, record)
        except ConnectionError:
            self.close_connection = True
        finally:
            record.ended = time.time()

    def _exchange(self, path: str, params: dict[str, str], record: Record) -> None:
        behaviour, reply = self._decide(path, params)
        wire = Wire(self.connection, rate=behaviour.throttle, record=record)
        try:
            self._send(wire, behaviour, reply, record)
        finally:
            wire.close()

    def _decide(self, path: str, params: dict[str, str]) -> tuple[Behaviour, Reply]:
        try:
            behaviour = Behaviour.parse(params)
            if behaviour.counted:
                number = self.server.controls.count(behaviour.counter or path)
                if behaviour.change is not None and number >= behaviour.change:
                    path = router.changed(path)
                behaviour = behaviour.at(number)
            return behaviour, _faulty(behaviour) or self._healthy(path, params)
        except (ValueError, KeyError, TypeError) as exc:
            return Behaviour(), text_reply(f"{exc}\n", "text/plain", status=HTTPStatus.BAD_REQUEST)

    def _healthy(self, path: str, params: dict[str, str]) -> Reply:
        asked = Asked(
            path=path,
            params=params,
            base=f"http://{self.headers.get('Host') or self._authority()}",
            client=self.client_address[0],
            cookies=_cookies(self.headers.get("Cookie", "")),
            authorization=self.headers.get("Authorization", ""),
        )
        try:
            return router.answer(self.server.sources, asked)
        except NoSuchPathError:
            return status_reply(HTTPStatus.NOT_FOUND)

    def _send(self, wire: Wire, behaviour: Behaviour, reply: Reply, record: Record) -> None:
        conditions = Conditions(
            range=self.headers.get("Range"),
            if_range=self.headers.get("If-Range"),
            old=self.request_version == "HTTP/1.0",
        )
        part = choose_part(reply, behaviour, conditions)
        framing = choose_framing(part, behaviour, conditions)
        cut = behaviour.cut(start=part.start, size=reply.body.size)
        if framing in {"close", "wrong", "huge"} or cut is not None:
            self.close_connection = True
        record.status = part.status
        wire.pause(behaviour.latency)
        head = head_bytes(reply, part, behaviour, framing=framing, close=self.close_connection)
        wire.head(head, over=behaviour.slow_headers)
        if self.command == "HEAD":
            return
        whole = send_body(wire, reply, part, chunked=framing == "chunked", cut=cut)
        if not whole:
            self._fall_short(wire, behaviour)

    def _fall_short(self, wire: Wire, behaviour: Behaviour) -> None:
        """What follows a body that was cut: silence, a reset, or a plain close."""
        if behaviour.stall == behaviour.cut():
            wire.silence()
        elif behaviour.reset == behaviour.cut():
            wire.reset()

    def _control(self) -> None:
        try:
            status, answer = self._apply(urlsplit(self.path).path, self._body())
        except (ValueError, KeyError) as exc:
            status, answer = HTTPStatus.BAD_REQUEST, {"error": str(exc)}
        self._answer_json(status, answer)

    def _body(self) -> dict[str, str]:
        length = int(self.headers.get("Content-Length", "0"))
        if length > MAX_CONTROL_BYTES:
            raise ValueError("the control request is too long")
        data = json.loads(self.rfile.read(length) or b"{}")
        return {str(name): str(value) for name, value in data.items()}

    def _apply(self, path: str, data: dict[str, str]) -> tuple[HTTPStatus, object]:
        if path == "/_control" and self.command == "POST":
            self.server.controls.set(data.pop("path"), data)
        elif path == "/_control":
            self.server.controls.clear()
        elif path == "/_reset":
            self.server.stats.reset()
            self.server.controls.clear()
        elif path == "/_cut":
            return HTTPStatus.OK, {"cut": self.server.cut_connections(data.get("path"))}
        else:
            return HTTPStatus.NOT_FOUND, {"error": "no such control"}
        return HTTPStatus.OK, {}

    def _stats_json(self, query: str) -> object:
        path = dict(parse_qsl(query)).get("path")
        if path is not None:
            return asdict(self.server.stats.of(path))
        return {path: asdict(stats) for path, stats in self.server.stats.all().items()}

    def _answer_json(self, status: HTTPStatus, answer: object) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _authority(self) -> str:
        host, port = self.connection.getsockname()[:2]
        return f"{host}:{port}"


def _shut(sock: socket.socket) -> None:
    """End both directions; a client that was faster is no error."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _faulty(behaviour: Behaviour) -> Reply | None:
    """The answer that takes the place of the healthy one; None when that is to be sent."""
    if behaviour.redirect is not None:
        return status_reply(behaviour.status, headers=(("Location", behaviour.redirect),))
    if behaviour.fail is not None:
        wait = behaviour.retry_after
        return status_reply(behaviour.fail, headers=(("Retry-After", wait),) if wait else ())
    if behaviour.html:
        return text_reply(pages.page("Please log in", "<p>This is not a video.</p>" * 40))
    return None


def _cookies(header: str) -> dict[str, str]:
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(header).items()}
    except CookieError:
        return {}
