"""Server processes of tests: quiet, stopped after, and gone with their parent."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

#: Runs in a fresh interpreter, since code between fork and exec of a threaded process is unsafe.
#: Order counts: a change of user clears the death signal, exec of an ordinary program keeps it.
_LAUNCH = """
import ctypes, os, signal, sys
parent, user, group, number = map(int, sys.argv[1:5])
if user:
    os.setgroups([]); os.setgid(group); os.setuid(user)
ctypes.CDLL(None).prctl(1, number)
if os.getppid() == parent:
    os.execv(sys.argv[5], sys.argv[5:])
"""

#: Seconds that a start or an end may take.
PATIENCE = 60.0


def bound(
    command: Sequence[str],
    *,
    end_signal: signal.Signals = signal.SIGTERM,
    user: pwd.struct_passwd | None = None,
) -> list[str]:
    """The command, such that the program gets `end_signal` when its parent dies."""
    ids = (user.pw_uid, user.pw_gid) if user else (0, 0)
    numbers = [str(n) for n in (os.getpid(), *ids, int(end_signal))]
    return [sys.executable, "-ISc", _LAUNCH, *numbers, *command]


class ServerProcess:
    """One server program.

    Args:
        command: program and arguments.
        log: what it says goes here.
        ready: whether it answers.
        env: its whole environment; the parent's when None.
        user: run as this one instead.
        end_signal: what makes it end soon and cleanly; also sent when the parent dies.
        patience: seconds that the start may take.

    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        ready: Callable[[], bool],
        env: Mapping[str, str] | None = None,
        user: pwd.struct_passwd | None = None,
        end_signal: signal.Signals = signal.SIGTERM,
        patience: float = PATIENCE,
    ) -> None:
        self._patience = patience
        self._command = list(command)
        self._log = log
        self._ready = ready
        self._env = env
        self._user = user
        self._end_signal = end_signal
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the running program."""
        assert self._process is not None, "not started"  # noqa: S101  # a test's own mistake
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            RuntimeError: it ended instead, or did not answer in time; its log is in the message.

        """
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start it; by the thread that lives longest, since the death signal is the thread's."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603  # our own program
                bound(self._command, end_signal=self._end_signal, user=self._user),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._env,
                cwd=self._log.parent,
                start_new_session=True,
            )

    def await_ready(self) -> None:
        """Wait until it answers; raises as `start` does."""
        assert self._process is not None, "not started"  # noqa: S101  # a test's own mistake
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._ready():
                return
            time.sleep(0.02)
        self.kill9()
        said = self._log.read_text("utf-8", "replace")[-2000:]
        raise RuntimeError(f"{Path(self._command[0]).name} did not start:\n{said}")

    def stop(self) -> None:
        """End it; harmless when it has ended."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(self._end_signal)
        try:
            self._process.wait(PATIENCE / 3)
        except subprocess.TimeoutExpired:
            self.kill9()
        self._process = None

    def kill9(self) -> None:
        """End it without a chance to say anything."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(PATIENCE)

    def send(self, number: signal.Signals) -> None:
        """Signal the server itself, e.g. SIGSTOP to freeze it."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)


def is_alive(process: psutil.Process | int) -> bool:
    """Whether it runs; a zombie does not. It may end between two questions."""
    try:
        found = psutil.Process(process) if isinstance(process, int) else process
        return found.is_running() and found.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    """Whether a server takes connections on loopback."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
    except OSError:
        return False
