from __future__ import annotations

import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import psutil
import pytest

from sluice_testing.waiting import fastest, until


def run(tmp_path: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sluice_api"],
        env={"PATH": os.environ["PATH"], "SLUICE_DATA_DIR": str(tmp_path), **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = run(tmp_path, SLUICE_REDIS_URL="redis://127.0.0.1:1/0", SLUICE_HTTP_PORT=str(port))
    assert ended.returncode == 2
    assert str(port) in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"SLUICE_REDIS_URL": "x"},
        {"SLUICE_REDIS_URL": "redis://127.0.0.1:1/0", "SLUICE_STORAGE_URL": "x"},
        {"SLUICE_REDIS_URL": "redis://127.0.0.1:1/0", "SLUICE_EGRESS_ALLOW": "x"},
        {"SLUICE_REDIS_URL": "redis://127.0.0.1:1/0", "SLUICE_HTTP_PORT": "x"},
    ],
)
def test_a_wrong_setting_is_one_sentence(tmp_path: Path, environ: dict[str, str]) -> None:
    ended = run(tmp_path, **environ)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1


def test_it_ends_within_3_s_although_streams_are_open(serve: Any) -> None:

    def seconds() -> float:
        served = serve()
        with (
            httpx.stream("GET", f"{served.url}/v1/events", timeout=60) as first,
            httpx.stream("GET", f"{served.url}/v1/events", timeout=60) as second,
        ):
            streams = [first.iter_raw(), second.iter_raw()]
            for stream in streams:
                assert b"retry: 3000" in next(stream)
            begun = time.monotonic()
            served.process.send(signal.SIGTERM)
            ends = [b"".join(stream) for stream in streams]
            served.process.stop()
            took = time.monotonic() - begun
        hints = [re.search(rb"retry: (\d+)\n\n$", end) for end in ends]
        # Spread, so that they do not all come back at the same moment.
        assert all(hint and 1000 <= int(hint[1]) <= 5000 for hint in hints)
        return took

    assert fastest(seconds, below=3.5) < 3.5


def test_a_killed_worker_is_replaced(serve: Any) -> None:
    served = serve()
    (worker,) = [child for child in psutil.Process().children(recursive=True) if _serves(child)]
    worker.kill()
    until(lambda: _is_ready(served.url))


def _serves(process: psutil.Process) -> bool:
    """Whether it is the worker: the one whose parent is such a process too."""
    parent = process.parent()
    return (
        "sluice_api" in process.cmdline()
        and parent is not None
        and "sluice_api" in parent.cmdline()
    )


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=5).is_success
    except httpx.HTTPError:
        return False


HEAD = b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"

#: The server, without patience.
_HASTY = """
from gevent import monkey
monkey.patch_all()
from sluice_api import bodies, serve
bodies.WHOLE = 5.0
serve.main()
"""


def test_a_client_that_drips_its_body_is_let_go(serve: Any) -> None:
    address = urlsplit(serve(("-c", _HASTY)).url)
    with socket.create_connection((address.hostname, address.port)) as client:
        client.sendall(HEAD + b"Content-Length: 5000\r\n\r\n")
        until(lambda: client.sendall(b" ") or select.select([client], [], [], 0.1)[0])
        _send_on(client, b" ")
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code": "body_too_slow"' in answer


@pytest.mark.parametrize("chunk", [b"ZZ\r\n", b"-1\r\n", b"3\r\n{}\n__0\r\n\r\n"])
def test_a_body_whose_chunks_are_none_is_the_clients_fault(serve: Any, chunk: bytes) -> None:
    address = urlsplit(serve().url)
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with socket.create_connection((address.hostname, address.port), timeout=60) as client:
        client.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk)
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code": "invalid_request"' in answer


def _send_on(client: socket.socket, more: bytes) -> None:
    """As a client does that sends its body before it reads."""
    for _ in range(3):
        client.sendall(more)
        # What arrives at a closed socket is answered within this time.
        time.sleep(0.1)


@pytest.mark.parametrize("connection", [b"close", b"keep-alive"])
def test_a_body_that_is_refused_unread_gets_its_answer(serve: Any, connection: bytes) -> None:
    address = urlsplit(serve().url)
    head = HEAD + b"Connection: " + connection + b"\r\nContent-Length: 11000000\r\n\r\n"
    with socket.create_connection((address.hostname, address.port)) as client:
        client.sendall(head)
        assert select.select([client], [], [], 60)[0]
        _send_on(client, b" " * 1000)
        assert client.recv(4096).startswith(b"HTTP/1.1 413 ")


#: What is sent before the client leaves, behind the head or not, and what it is answered.
LEAVING = (
    (b"", b"", None),
    (b"", b"POST /v1/jo", None),
    (HEAD, b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{\r\n", 400),
    (HEAD, b"Transfer-Encoding: chunked\r\n\r\n10\r\n{", 400),
    (HEAD, b"Content-Length: 500\r\n\r\n{", 400),
)


def test_clients_that_leave_or_send_nonsense_are_no_fault_of_ours(serve: Any) -> None:
    served = serve()
    address = urlsplit(served.url)
    for head, rest, status in LEAVING:
        for rudely in (True, False):
            with socket.create_connection((address.hostname, address.port)) as client:
                client.sendall(head + rest)
                if rudely:
                    # Closing resets the connection.
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    continue
                client.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda c=client: c.recv(4096), b""))
                assert answer[9:12] == (str(status).encode() if status else b"")
    refused = 2 * sum(1 for *_, status in LEAVING if status)
    until(lambda: _answers_to_submits(served.url) == {"400": refused})
    assert "error" not in served.log.read_text().lower()


def _answers_to_submits(url: str) -> dict[str, int]:
    page = httpx.get(f"{url}/metrics", timeout=60).text
    line = r'duration_seconds_count\{method="POST",route="/v1/jobs",status="(\d+)"\} (\S+)'
    return {status: int(float(count)) for status, count in re.findall(line, page)}


#: The server, with room for two.
_SMALL = """
from gevent import monkey
monkey.patch_all()
from sluice_api import serve, server
server.MAX_CONNECTIONS = 2
serve.main()
"""


def test_connections_beyond_the_cap_wait_outside(serve: Any) -> None:
    address = urlsplit(serve(("-c", _SMALL)).url)
    asked = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    with ExitStack() as stack:
        first, _second, third = (
            stack.enter_context(socket.create_connection((address.hostname, address.port)))
            for _ in range(3)
        )
        third.sendall(asked)
        third.settimeout(1.0)
        with pytest.raises(TimeoutError):
            third.recv(1)
        first.close()
        third.settimeout(60.0)
        assert third.recv(100).startswith(b"HTTP/1.1 200")


def test_an_11_mb_body_gets_its_answer(serve: Any) -> None:
    served = serve()
    with served.client() as client:
        response = client.post("/v1/jobs", json={"url": "x" * 11_000_000})
        assert response.status_code == 413
        assert response.json()["code"] == "body_too_large"
        assert client.get("/v1/jobs").json()["jobs"] == []


def test_page_and_docs_load_nothing_from_elsewhere(serve: Any) -> None:
    with serve().client() as client:
        for path in ("/", "/docs"):
            answer = client.get(path)
            assert answer.status_code == 200
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert "script-src 'self';" in answer.headers["Content-Security-Policy"]
            links = [part.partition('"')[0] for part in answer.text.split('src="')[1:]]
            links += [part.partition('"')[0] for part in answer.text.split('href="')[1:]]
            assert links
            for link in links:
                found = urljoin(f"http://sluice{path}", link)
                assert found.startswith("http://sluice/"), link
                if "#" not in link:
                    assert client.get(urlsplit(found).path).status_code == 200, link
        document = client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert set(document["paths"]["/v1/jobs"]) >= {"get", "post"}
    fields = document["components"]["schemas"]["JobRequest"]["properties"]
    assert {"url", "preset", "priority", "force"} <= set(fields)
    assert "Problem" in document["components"]["schemas"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            answers = operation["responses"]
            assert list(answers["default"]["content"]) == ["application/problem+json"], path
            assert not {"422", "4XX"} & set(answers), (method, path)
            assert {"200", "201", "202"} & set(answers), (method, path)
