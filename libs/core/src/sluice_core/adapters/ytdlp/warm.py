"""Goes the usual way once in the parent of all children, so that none pays for a first time.

The library compiles patterns and builds tables on its way through a page and a transfer; a forked
child would else do that again each time, and throw it away at its end.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn

from sluice_core.adapters.ytdlp.extract import extract
from sluice_core.adapters.ytdlp.fetch import fetch
from sluice_core.domain.paths import WARM_UP

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The start of an MP4 and some bytes; nobody decodes it.
_MEDIA = b"\0\0\0\x20ftypisom\0\0\2\0isomiso2avc1mp41" + bytes(100_000)
_PAGE = b'<html><head><title>x</title></head><body><video src="/a.mp4"></video></body></html>'
#: Seconds after which the answering process ends in any case.
_PATIENCE = 20


def warm_up() -> None:
    """Extract a page and a file from a socket of one's own, and fetch the file.

    No thread may run. A machine on which it fails is only slower.
    """
    try:
        # What the library says of it interests nobody.
        with (
            redirect_stderr(StringIO()),
            _site() as origin,
            TemporaryDirectory(prefix=WARM_UP) as folder,
        ):
            for path in ("/page.html", "/a.mp4"):
                _take(f"{origin}{path}", Path(folder, "a.media"))
    except Exception as exc:  # noqa: BLE001  # nothing depends on it
        sys.stderr.write(f"starting cold: {exc}\n")


def _take(url: str, dest: Path) -> None:
    events: list[dict[str, Any]] = []
    extract({"url": url}, events.append)
    info = events[0]["info"]
    choice = {"info": info, "format_id": info["formats"][0]["format_id"], "dest": str(dest)}
    fetch(choice, events.append)


@contextmanager
def _site() -> Iterator[str]:
    """A site on loopback in a process of its own; yields its origin."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pid = os.fork()
        if pid == 0:
            _answer_all(listener)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _answer_all(listener: socket.socket) -> NoReturn:
    try:
        signal.alarm(_PATIENCE)
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile("rwb") as stream:
                _answer(stream)
    finally:
        os._exit(1)


def _answer(stream: Any) -> None:
    asked = stream.readline()
    while stream.readline().strip():
        pass
    kind, body = ("text/html", _PAGE) if b".html" in asked else ("video/mp4", _MEDIA)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    stream.write(f"{head}Connection: close\r\n\r\n".encode() + body)
    stream.flush()
