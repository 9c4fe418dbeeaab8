"""Starting a child: its pipes, its lock, and how its end is noticed."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol

from sluice_core.adapters import tracing
from sluice_core.domain.errors import SluiceError
from sluice_core.runtime.children import confine
from sluice_core.runtime.children.group import kill_group
from sluice_core.runtime.children.proof import start_time, take_lock
from sluice_core.runtime.children.spec import ExecSpec, ForkSpec

if TYPE_CHECKING:
    from sluice_core.runtime.children.forkclient import ForkServer

Spec = ForkSpec | ExecSpec

#: What a machine says that has no process, memory or descriptor to spare.
_LACKS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})

#: Seconds that a fork server may still live after it let go of its pipes.
_SERVER_END = 5.0


@dataclass(frozen=True, slots=True)
class Started:
    pid: int
    start_time: int


@dataclass(frozen=True, slots=True)
class Ended:
    exit_code: int | None
    signal: int | None


class Child(Protocol):
    """A child on its way; all descriptors are non-blocking and belong to the runner."""

    stdout: int
    stderr: int
    #: Which starts it; None when it is the worker's own.
    server: ForkServer | None
    #: Readable when `poll` has news; None when it must be asked now and then.
    news: int | None

    def poll(self) -> tuple[Started | None, Ended | None]:
        """What is known so far; does not wait."""

    def close(self) -> None:
        """Free what is held; the process must have been ended before."""


def launch(spec: Spec) -> Child:
    """Start a child.

    Raises:
        BlockingIOError: another writer holds the lock of the scratch folder.
        SluiceError: `overloaded`, the machine can't start it now; `internal`, it can't be started.

    """
    server = spec.server
    try:
        if server is not None:
            return _ForkedChild(spec, server)
        if isinstance(spec, ExecSpec):
            return _ExecutedChild(spec)
    except OSError as exc:
        # A lock that somebody holds is told without a number.
        if exc.errno not in _LACKS:
            raise
        raise _lacking(str(exc.strerror)) from exc
    raise TypeError(spec)


def _lacking(what: str) -> SluiceError:
    return SluiceError(f"a child process can't be started: {what}", code="overloaded")


class _Pipes:
    """What a runner reads from a child. The write ends live for the time of the start alone."""

    def __init__(self) -> None:
        self._own = ExitStack()
        self._passed = ExitStack()
        self.stdout, self.stdout_w = self.add()
        self.stderr, self.stderr_w = self.add()

    def add(self) -> tuple[int, int]:
        """One more pipe, whose read end does not block."""
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        self.own(read_end)
        self._passed.callback(os.close, write_end)
        return read_end, write_end

    def own(self, fd: int) -> int:
        """Close `fd` with the read ends."""
        self._own.callback(os.close, fd)
        return fd

    def close_passed(self) -> None:
        self._passed.close()

    def close(self) -> None:
        self._passed.close()
        self._own.close()


class _ForkedChild:
    def __init__(self, spec: Spec, server: ForkServer) -> None:
        self.server: ForkServer | None = server
        self._started: Started | None = None
        self._ended: Ended | None = None
        self._buffer = b""
        with ExitStack() as stack:
            lock = take_lock(spec.lock)
            stack.callback(os.close, lock)
            request = stack.enter_context(_request_file(spec))
            pipes = self._pipes = _Pipes()
            self._status, status_w = pipes.add()
            self.stdout, self.stderr = pipes.stdout, pipes.stderr
            self.news: int | None = self._status
            fds = (pipes.stdout_w, pipes.stderr_w, status_w, lock, request.fileno())
            try:
                self._process = server.request(_header(spec), fds)
            except BaseException:
                pipes.close()
                raise
            pipes.close_passed()

    def poll(self) -> tuple[Started | None, Ended | None]:
        while self._ended is None:
            try:
                data = os.read(self._status, 4096)
            except BlockingIOError:
                break
            if not data:
                self._on_eof()
            self._buffer += data
            *lines, self._buffer = self._buffer.split(b"\n")
            for line in lines:
                self._on_line(line.decode())
        return self._started, self._ended

    def _on_line(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "failed":
            raise _lacking(rest)
        if word == "exit":
            self._ended = Ended(exit_code=int(rest), signal=None)
        elif word == "signal":
            self._ended = Ended(exit_code=None, signal=int(rest))
        else:
            self._started = Started(pid=int(word), start_time=int(rest))

    def _on_eof(self) -> None:
        """The fork server is gone, and the kernel has ended its children with SIGKILL.

        One that had not started yet never will: that is the server's fault, e.g. of its imports,
        unless somebody has killed it.
        """
        if self._started is None and self._process.wait(_SERVER_END) >= 0:
            raise SluiceError("the fork server ended before the child started", code="internal")
        self._ended = Ended(exit_code=None, signal=9)

    def close(self) -> None:
        self._pipes.close()


def _header(spec: Spec) -> dict[str, object]:
    header: dict[str, object] = {"cwd": str(spec.scratch), "limits": spec.limits.numbers()}
    trace = tracing.environment()
    if isinstance(spec, ForkSpec):
        return {**header, "kind": "fork", "env": trace}
    return {**header, "kind": "exec", "argv": list(spec.argv), "env": {**spec.env, **trace}}


def _request_file(spec: Spec) -> IO[bytes]:
    """A file without a name that holds the request, read from its start by the child.

    In memory where the kernel can: a request may hold a password.
    """
    if hasattr(os, "memfd_create"):
        file: IO[bytes] = open(os.memfd_create("request"), "w+b")  # noqa: PTH123, SIM115  # a descriptor; the caller closes it
    else:
        file = tempfile.TemporaryFile(dir=spec.scratch)  # noqa: SIM115  # as above
    if isinstance(spec, ForkSpec):
        file.write(json.dumps(spec.request).encode())
        file.flush()
        file.seek(0)
    return file


class _ExecutedChild:
    def __init__(self, spec: ExecSpec) -> None:
        self.server: ForkServer | None = None
        self.news: int | None = None
        self._ended: Ended | None = None
        with ExitStack() as stack:
            lock = take_lock(spec.lock)
            stack.callback(os.close, lock)
            pipes = self._pipes = _Pipes()
            self.stdout, self.stderr = pipes.stdout, pipes.stderr
            try:
                life_r = self._life_pipe(stack)
                self._process = self._popen(spec, lock, life_r)
            except BaseException:
                pipes.close()
                raise
            pipes.close_passed()
        self._started = Started(self._process.pid, start_time(self._process.pid))
        # Unknown to macOS and to some sandboxes: then `poll` is asked now and then.
        with suppress(AttributeError, OSError):
            self.news = pipes.own(os.pidfd_open(self._process.pid))

    def _life_pipe(self, stack: ExitStack) -> int:
        if confine.has_parent_death_signal():
            return -1
        life_r, life_w = os.pipe()
        stack.callback(os.close, life_r)
        self._pipes.own(life_w)
        return life_r

    def _popen(self, spec: ExecSpec, lock: int, life_r: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603  # the callers build the command, never a shell
            confine.wrap(list(spec.argv), os.getpid(), life_r, spec.limits.numbers()),
            env={**spec.env, **tracing.environment()},
            cwd=spec.scratch,
            stdin=subprocess.DEVNULL,
            stdout=self._pipes.stdout_w,
            stderr=self._pipes.stderr_w,
            pass_fds=[fd for fd in (lock, life_r) if fd >= 0],
            start_new_session=True,
        )

    def poll(self) -> tuple[Started | None, Ended | None]:
        if self._ended is None:
            self._ended = self._wait()
        return self._started, self._ended

    def _wait(self) -> Ended | None:
        pid = self._process.pid
        if hasattr(os, "waitid"):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return None
            # Before the wait: until then the group's id can't be given out again.
            kill_group(pid)
            code = self._process.wait()
        else:
            polled = self._process.poll()
            if polled is None:
                return None
            kill_group(pid)
            code = polled
        return Ended(code, None) if code >= 0 else Ended(None, -code)

    def close(self) -> None:
        self._pipes.close()
