"""The worker's side of the fork server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from sluice_core.domain.errors import SluiceError
from sluice_core.runtime.children.prefork import configure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from sluice_core.runtime.children.prefork import ForkedProcess, Preforked

_SERVER_MODULE = "sluice_core.runtime.children.forkserver"
#: Third argument of a server that preloads nothing.
COLD = "cold"

#: A server that reads nothing for this long, in seconds, is replaced. It does nothing but fork.
_SEND_TIMEOUT = 5.0


class ForkServer:
    """One fork server process, started again when it died. Safe to use from any thread.

    Args:
        module: what children run, see `forkserver.ChildModule`; None serves commands only.
        env: the whole environment of the server and of forked children: no secrets, see
            `environment.child_environment`.
        cwd: an existing folder.
        preforked: a server that waits to be told all this; without one, or after its end, a new
            process is started.
        preload: whether a new process does first what every child would else do again; not worth
            it for one child.

    """

    def __init__(
        self,
        *,
        module: str | None,
        env: Mapping[str, str],
        cwd: Path,
        preforked: Preforked | None = None,
        preload: bool = True,
    ) -> None:
        self._module = module
        self._preload = preload
        self._env = dict(env)
        self._cwd = cwd
        self._lock = threading.Lock()
        self._preforked = preforked
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._control: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """The server's process id, None before the start and after the end."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        """Start the server without waiting for its imports; does nothing while it runs."""
        with self._lock:
            if self.pid is None:
                self._start()

    def wake(self) -> None:
        """Let a server go on that somebody has stopped; nothing to one that runs."""
        with self._lock:
            pid = self.pid
            if pid is not None:
                os.kill(pid, signal.SIGCONT)

    def close(self, timeout: float = 5.0) -> None:
        """End the server and all its children, by force after `timeout` seconds."""
        with self._lock:
            self._end(timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def request(
        self, header: Mapping[str, object], fds: Sequence[int]
    ) -> subprocess.Popen[bytes] | ForkedProcess:
        """Hand a request to the server, which then owns copies of `fds`.

        Returns:
            the server's process.

        Raises:
            SluiceError: the server can't be reached even after a new start: `overloaded` when it
                takes nothing, else `internal`.

        """
        body = json.dumps(header).encode()
        with self._lock:
            if self.pid is None:
                self._start()
            try:
                self._send(body, fds)
            except OSError:
                # A request cut short would put the next one out of step: only a new server helps.
                self._end(timeout=0)
                self._start()
                try:
                    self._send(body, fds)
                except OSError as exc:
                    code = "overloaded" if isinstance(exc, TimeoutError) else "internal"
                    raise SluiceError("the fork server does not answer", code=code) from exc
            if self._process is None:
                raise SluiceError("the fork server does not answer", code="internal")
            return self._process

    def _start(self) -> None:
        self._end(timeout=0)
        if not self._take_preforked():
            self._start_new()

    def _take_preforked(self) -> bool:
        waiting, self._preforked = self._preforked, None
        if waiting is None:
            return False
        self._process, self._control = waiting.process, waiting.control
        self._control.settimeout(_SEND_TIMEOUT)
        try:
            configure(self._control, self._module, self._env, str(self._cwd))
        except OSError:
            self._end(timeout=0)
            return False
        return True

    def _start_new(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  # our own module
                # -P, -s: neither the working folder nor a home folder may offer modules.
                [
                    *(sys.executable, "-P", "-s", "-m", _SERVER_MODULE),
                    *(str(theirs.fileno()), self._module or "-"),
                    *(() if self._preload else (COLD,)),
                ],
                env=self._env,
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        ours.settimeout(_SEND_TIMEOUT)
        self._control = ours

    def _send(self, body: bytes, fds: Sequence[int]) -> None:
        if self._control is None:
            raise BrokenPipeError
        socket.send_fds(self._control, [len(body).to_bytes(4, "big")], list(fds))
        self._control.sendall(body)

    def _end(self, timeout: float) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is None:
            return
        with suppress(subprocess.TimeoutExpired, TimeoutError):
            self._process.wait(timeout)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process = None
