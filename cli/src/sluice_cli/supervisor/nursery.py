"""The supervisor's side of the nursery: the process that has imported what the workers share.

A part that is forked from it shares its memory and is ready at once. The supervisor stays every
part's parent: the nursery forks twice, and what has lost its parent falls to the supervisor.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
from collections.abc import Mapping
from typing import Protocol

from sluice_cli.supervisor import processes

#: Bytes of one message from the nursery.
_ANSWER = 4096
#: What the nursery says once it has imported everything.
READY = b"ready"
#: What of the environment says how an interpreter runs; all else may be secret, and the nursery
#: also becomes what handles untrusted input.
_KEPT = ("PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
_KEPT_PREFIXES = ("PYTHON", "LC_", "SSL_CERT_")
#: Shows in /proc which instance a process belongs to.
_MARK = "SLUICE_DATA_DIR"


class Process(Protocol):
    """What the supervisor needs of a running part."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...


class Adopted:
    """A part that another process forked, and whose parent this process became."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status once it has ended, negative for a signal."""
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        """The exit status, however long it takes."""
        self._wait(0)
        return self.returncode or 0

    def _wait(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class Nursery:
    """The line to one nursery process after the other.

    Args:
        grace: seconds that one gets to fork.

    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._line: socket.socket | None = None
        self.ready = False

    def start(self, command: tuple[str, ...]) -> Process:
        """Start the process; `ready` is told later.

        Raises:
            OSError: it can't be started.

        """
        self.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = processes.start(
                (*command, str(theirs.fileno())),
                environ=clean_environment(os.environ),
                keep=(theirs.fileno(),),
            )
        ours.settimeout(0.0)
        self._line = ours
        return process

    def close(self) -> None:
        """Forget the process, which ends by that."""
        if self._line is not None:
            self._line.close()
        self._line, self.ready = None, False

    def waits(self) -> list[socket.socket]:
        """What to sleep on until it is ready."""
        return [] if self._line is None or self.ready else [self._line]

    def look(self) -> None:
        """Take note of its being ready, or gone."""
        for line in self.waits():
            with contextlib.suppress(BlockingIOError):
                if line.recv(_ANSWER) == READY:
                    self.ready = True
                else:
                    self.close()

    def fork(self, name: str) -> Process:
        """A new process of the part `name`, with this process's environment.

        Raises:
            OSError: it was not forked; the nursery is of no use any more.

        """
        if self._line is None:
            raise OSError("there is no nursery")
        file = _in_memory(json.dumps(dict(os.environ)))
        try:
            socket.send_fds(self._line, [name.encode()], [file])
        finally:
            os.close(file)
        if not select.select([self._line], [], [], self._grace)[0]:
            raise TimeoutError("the nursery does not answer")
        word, _, rest = self._line.recv(_ANSWER).decode().partition(" ")
        if word != "pid":
            raise OSError(rest or "the nursery ended")
        return Adopted(int(rest))


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What is no secret and changes how the interpreter works."""
    return {
        name: value
        for name, value in environ.items()
        if name in _KEPT or name == _MARK or name.startswith(_KEPT_PREFIXES)
    }


def _in_memory(text: str) -> int:
    """A file of no folder: only who is given its descriptor reads it."""
    file = os.memfd_create("environment")
    with os.fdopen(os.dup(file), "w", encoding="utf-8") as writer:
        writer.write(text)
    os.lseek(file, 0, os.SEEK_SET)
    return file
