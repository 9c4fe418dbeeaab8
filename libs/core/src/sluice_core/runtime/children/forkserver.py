"""The fork server: a small process without threads that imports once and forks per request.

Started as `python -m sluice_core.runtime.children.forkserver <control fd> <module> [cold]`, see
`forkclient.ForkServer`. It ends, with all its children, when the other end of the control socket
closes; the children end by the parent-death signal when it is killed.

A request is four bytes of length with the descriptors attached, then a JSON header::

    {"kind": "fork" | "exec", "cwd": path, "limits": [4 numbers], "argv": [...], "env": {...}}

Descriptors: stdout, stderr, status, lock, request. The child writes `pid start_time` to the status
pipe once it is confined; the server writes `exit N` or `signal N` after the end.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from sluice_core.domain.errors import SluiceError
from sluice_core.runtime.children import confine
from sluice_core.runtime.children.group import kill_group
from sluice_core.runtime.children.proof import start_time
from sluice_core.runtime.children.protocol import encode_line, error_event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Descriptors that come with a request.
FDS = 5

#: A header larger than this is no header of ours.
MAX_HEADER = 1024 * 1024

_NO_MODULE = "-"
#: Of the command line, program included; one more means that nothing is preloaded.
_ARGUMENTS = 3

_SIGNALS = (signal.SIGTERM, signal.SIGCHLD)


class ChildModule(Protocol):
    """What a preloaded module offers; `preload` may be missing."""

    def preload(self) -> None:
        """Do what every child would else do again."""

    def main(self, request: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
        """Do one request; `emit` sends one JSON line."""


class Server:
    """Forks children and reports how they end."""

    def __init__(self, control: socket.socket, module: ChildModule | None) -> None:
        self._control = control
        self._module = module
        self._selector = selectors.DefaultSelector()
        self._status: dict[int, int] = {}
        self._wake_r, self._wake_w = os.pipe()
        self._life_r, self._life_w = os.pipe()

    def serve(self) -> None:
        """Serve until the worker is gone or asks for the end."""
        for fd in (self._wake_r, self._wake_w):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._wake_r, selectors.EVENT_READ)
        try:
            while self._turn():
                pass
        finally:
            self._kill_all()

    def _on_term(self, _signum: int, _frame: object) -> None:
        self._kill_all()
        os._exit(0)

    def _turn(self) -> bool:
        for key, _ in self._selector.select():
            if key.fileobj is self._control:
                if not self._accept():
                    return False
            else:
                with suppress(BlockingIOError):
                    os.read(self._wake_r, 4096)
                self._reap()
        return True

    def _accept(self) -> bool:
        head, fds, _, _ = socket.recv_fds(self._control, 4, FDS)
        if not head:
            return False
        try:
            header = json.loads(_header(self._control, head))
            self._fork(header, fds)
        finally:
            for fd in fds[:2] + fds[3:]:
                os.close(fd)
        return True

    def _fork(self, header: dict[str, Any], fds: Sequence[int]) -> None:
        status = fds[2]
        server = os.getpid()
        # Until the child has let go of this server's handlers, a signal to it must wait.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                self._become_child(header, fds, server)
        except OSError as exc:
            _tell(status, f"failed {exc.strerror}\n")
            os.close(status)
            return
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        self._status[pid] = status

    def _become_child(self, header: dict[str, Any], fds: Sequence[int], server: int) -> NoReturn:
        code = confine.EX_SETUP
        try:
            os.dup2(fds[1], 2)
            signal.set_wakeup_fd(-1)
            for signum in _SIGNALS:
                signal.signal(signum, signal.SIG_DFL)
            os.setsid()
            close_all_but({0, 1, 2, *fds, self._life_r})
            confine.die_with_parent(
                server, self._life_r, by_signal=confine.has_parent_death_signal()
            )
            os.chdir(header["cwd"])
            confine.apply_limits(*header["limits"])
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            me = os.getpid()
            os.write(fds[2], f"{me} {start_time(me)}\n".encode())
            os.close(fds[2])
            if header["kind"] == "exec":
                _become_command(header, fds)
            else:
                code = _run_main(self._module, header, fds)
        except BrokenPipeError:
            # Nobody waits for this child any more.
            code = confine.EX_SETUP
        except BaseException:  # noqa: BLE001  # the last door of this process: all leave by it
            traceback.print_exc()
        finally:
            os._exit(code)

    def _reap(self) -> None:
        for pid in list(self._status):
            status = _wait(pid)
            if status is None:
                continue
            fd = self._status.pop(pid)
            if os.WIFSIGNALED(status):
                _tell(fd, f"signal {os.WTERMSIG(status)}\n")
            else:
                _tell(fd, f"exit {os.WEXITSTATUS(status)}\n")
            os.close(fd)

    def _kill_all(self) -> None:
        for pid in self._status:
            kill_group(pid)


def _become_command(header: dict[str, Any], fds: Sequence[int]) -> NoReturn:
    confine.default_signals()
    os.dup2(fds[0], 1)
    os.set_inheritable(fds[3], True)  # noqa: FBT003  # the stdlib's own signature
    argv = header["argv"]
    try:
        os.execvpe(argv[0], argv, header["env"])  # noqa: S606  # becoming the command is the purpose
    except OSError as exc:
        os.write(2, f"{argv[0]}: {exc.strerror}\n".encode())
        os._exit(confine.EX_SETUP)


def _run_main(module: ChildModule | None, header: dict[str, Any], fds: Sequence[int]) -> int:
    """Call the module; its prints go to stderr, so that they can't break the JSON lines."""
    if module is None:
        raise RuntimeError("this fork server has no module")
    os.dup2(2, 1)
    _bind_grandchildren()
    os.environ["HOME"] = os.environ["TMPDIR"] = header["cwd"]
    # For this child alone: which trace it works for.
    os.environ.update(header["env"])
    tempfile.tempdir = None
    signal.signal(signal.SIGTERM, _leave)

    def emit(event: dict[str, Any]) -> None:
        _write_all(fds[0], encode_line(event))

    try:
        with open(fds[4], "rb") as file:  # noqa: PTH123  # a descriptor, not a path
            request = json.load(file)
        module.main(request, emit)
    except SluiceError as exc:
        emit(error_event(exc))
        return 1
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _bind_grandchildren() -> None:
    """Let programs that the module starts die with it, even when nobody is left to kill the group.

    A fork loses the parent-death signal, so each of them has to ask for it.
    """
    if not confine.has_parent_death_signal():
        return
    start = subprocess.Popen.__init__

    def bound(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("preexec_fn", confine.set_parent_death_signal)
        start(self, *args, **kwargs)

    setattr(subprocess.Popen, "__init__", bound)  # noqa: B010  # mypy forbids the plain form


def _leave(signum: int, _frame: object) -> NoReturn:
    # Unwinds the stack, so that files are flushed and closed.
    raise SystemExit(128 + signum)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _header(control: socket.socket, head: bytes) -> bytes:
    """A request's header, whose length began with `head`.

    Raises:
        EOFError: the worker closed within it.
        ValueError: it is longer than any of ours.

    """
    length = int.from_bytes(head + _receive(control, 4 - len(head)), "big")
    if length > MAX_HEADER:
        raise ValueError(f"a header of {length} bytes")
    return _receive(control, length)


def _receive(control: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        part = control.recv(length - len(data))
        if not part:
            raise EOFError("the worker closed within a request")
        data += part
    return bytes(data)


def close_all_but(keep: set[int]) -> None:
    """Close every other descriptor of this process."""
    low = 0
    for fd in sorted(keep):
        if low < fd:  # closerange(0, 0) closes everything
            os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))


def _wait(pid: int) -> int | None:
    """The wait status of a child that has ended, after the end of its whole group."""
    if hasattr(os, "waitid"):
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        # Before the wait: until then the group's id can't be given out again.
        kill_group(pid)
        return os.waitpid(pid, 0)[1]
    ended, status = os.waitpid(pid, os.WNOHANG)
    if not ended:
        return None
    kill_group(pid)
    return status


def _tell(fd: int, text: str) -> None:
    # Nobody may wait for this child any more.
    with suppress(BrokenPipeError):
        os.write(fd, text.encode())


def main(argv: Sequence[str]) -> int:
    control = socket.socket(fileno=int(argv[1]))
    module: Any = None
    if argv[2] != _NO_MODULE:
        module = importlib.import_module(argv[2])
        if len(argv) == _ARGUMENTS:
            getattr(module, "preload", lambda: None)()
    # Objects made so far stay in pages shared with every child.
    gc.collect()
    gc.freeze()
    Server(control, module).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
