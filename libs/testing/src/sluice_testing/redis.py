"""A real Redis server for tests: on loopback, a free port, no persistence, gone with its parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import redis

from sluice_core.adapters.binaries import redis_server_path

if TYPE_CHECKING:
    from pathlib import Path

#: Runs in a fresh interpreter, since code between fork and exec of a threaded process is unsafe:
#: asks to be killed with the parent, checks that the parent is still there, becomes the server.
_LAUNCH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""

#: Seconds that a start or an end may take.
_PATIENCE = 60.0


class RedisServer:
    """One server process; can be ended, killed, frozen and started again, always empty.

    Args:
        folder: its working folder, for its log.
        options: further command-line options, e.g. `["--requirepass", "x"]`.

    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.port = 0
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Database 0 of the server, without a password."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> None:
        """Start on a free port, or on the one it had, and wait until it answers.

        Raises:
            RuntimeError: it ended instead, or did not answer in time; its log is in the message.

        """
        self.port = self.port or _free_port()
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "redis.log").open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603  # our own program
                [sys.executable, "-ISc", _LAUNCH, str(os.getpid()), *self._command()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._wait_until_up()

    def stop(self) -> None:
        """End it; harmless when it has ended."""
        if self._process is not None:
            self._signal(signal.SIGCONT)
            self._signal(signal.SIGTERM)
            try:
                self._process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill9()
            self._process = None

    def kill9(self) -> None:
        """End it without a chance to say anything."""
        self._signal(signal.SIGKILL)
        self._running().wait(_PATIENCE)

    def restart_empty(self) -> None:
        """Start again on the same port, with nothing of what it knew."""
        if self._process is not None and self._process.poll() is None:
            self.kill9()
        self.start()

    def pause(self) -> None:
        """Freeze it: connections stay, nothing answers."""
        self._signal(signal.SIGSTOP)

    def cont(self) -> None:
        """Let it go on after `pause`."""
        self._signal(signal.SIGCONT)

    def flush(self) -> None:
        """Forget everything in all databases."""
        with redis.Redis(host="127.0.0.1", port=self.port) as client:
            client.flushall()

    def _command(self) -> list[str]:
        program = redis_server_path(os.environ.get("SLUICE_REDIS_BINARY"))
        fixed = f"--bind 127.0.0.1 --port {self.port} --daemonize no --databases 16"
        no_disk = ["--save", "", "--appendonly", "no", "--dir", str(self.folder)]
        memory = ["--maxmemory-policy", "noeviction"]
        return [str(program), *fixed.split(), *no_disk, *memory, *self._options]

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline and self._running().poll() is None:
            if _answers(self.port):
                return
            time.sleep(0.01)
        log = (self.folder / "redis.log").read_text("utf-8", "replace")[-2000:]
        self._signal(signal.SIGKILL)
        raise RuntimeError(f"the Redis server did not start:\n{log}")

    def _signal(self, number: signal.Signals) -> None:
        process = self._running()
        if process.poll() is None:
            process.send_signal(number)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the Redis server was not started")
        return self._process


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    """Whether a server speaks here; one that wants a password speaks too."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith((b"+PONG", b"-NOAUTH"))
    except OSError:
        return False
