"""A fork server forked from a process that has imported everything, instead of started anew.

The process that calls `prefork` must hold no secret and no thread: the server is its copy. What the
server is to be told, environment and folder included, comes later, from `ForkServer`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from typing import Any, NoReturn

from sluice_core.runtime import title
from sluice_core.runtime.children import confine

_SERVER = "sluice_core.runtime.children.forkserver"
#: Seconds between two looks whether a process has ended.
_POLL = 0.01


class ForkedProcess:
    """A child of this process, with the part of `subprocess.Popen` that a `ForkServer` needs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """The exit status once it has ended, negative for a signal."""
        with self._lock:
            if self._code is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self._code = os.waitstatus_to_exitcode(status)
            return self._code

    def wait(self, timeout: float | None = None) -> int:
        """The exit status.

        Raises:
            TimeoutError: it has not ended in time.

        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"process {self.pid} goes on")
            time.sleep(_POLL)
        return code

    def kill(self) -> None:
        """End it by force."""
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._code is None:
                os.kill(self.pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Preforked:
    """A server that waits to be told what it is; good for one `ForkServer`."""

    process: ForkedProcess
    control: socket.socket


def prefork(module: str | None) -> Preforked:
    """Fork a server of `module`, which this process has imported and preloaded.

    Args:
        module: as for `ForkServer`; another one is imported when it is asked for.

    """
    # Not at the top: this package is imported on the way to running that module as a program.
    forkserver = importlib.import_module(_SERVER)
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _become_server(forkserver, theirs, module)
    theirs.close()
    return Preforked(ForkedProcess(pid), ours)


def configure(control: socket.socket, module: str | None, env: dict[str, str], cwd: str) -> None:
    """Tell a preforked server what it is.

    Raises:
        OSError: it is gone.

    """
    body = json.dumps({"module": module, "env": env, "cwd": cwd}).encode()
    control.sendall(len(body).to_bytes(4, "big") + body)


def _become_server(forkserver: Any, control: socket.socket, module: str | None) -> NoReturn:
    code = confine.EX_SETUP
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        forkserver.close_all_but({0, 1, 2, control.fileno()})
        title.show(f"{sys.executable} -m {_SERVER} {module or '-'}", name="sluice-media")
        told = _read(control)
        if told is not None:
            _be_told(told)
            forkserver.Server(control, _module(told["module"])).serve()
        code = 0
    except BaseException:  # noqa: BLE001  # the last door of this process: all leave by it
        traceback.print_exc()
    finally:
        os._exit(code)


def _be_told(told: dict[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(told["env"])
    os.chdir(told["cwd"])


def _module(name: str | None) -> Any:
    return importlib.import_module(name) if name else None


def _read(control: socket.socket) -> dict[str, Any] | None:
    """What `configure` sent; None when its process has ended first."""
    head = control.recv(4, socket.MSG_WAITALL)
    if not head:
        return None
    told: dict[str, Any] = json.loads(control.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
    return told
