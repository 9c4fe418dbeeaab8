"""The nursery's side of its line to the supervisor: forks parts that are not its own children."""

from __future__ import annotations

import json
import os
import socket
from typing import NamedTuple

from sluice_cli.supervisor import processes
from sluice_cli.supervisor.nursery import READY

#: Bytes that the name of a part may have.
_NAME = 256


class Told(NamedTuple):
    """What a forked part is, and where it reads its environment."""

    name: str
    environment: int

    def take_environment(self) -> None:
        """Make the supervisor's environment this process's own."""
        with os.fdopen(self.environment, encoding="utf-8") as file:
            environ = json.load(file)
        os.environ.clear()
        os.environ.update(environ)


def serve(line: socket.socket) -> Told | None:
    """Fork parts for the supervisor until it is gone. No thread may run.

    Returns:
        in each forked part what it is, in a session of its own, as a child of the supervisor;
        None in the nursery, once it is of no more use.

    """
    parent = os.getppid()
    line.send(READY)
    while True:
        name, files, _, _ = socket.recv_fds(line, _NAME, 1)
        if not name:
            return None
        try:
            pid = _fork(line, parent)
        except OSError as exc:
            os.close(files[0])
            line.send(f"failed {exc.strerror}".encode())
            continue
        if pid == 0:
            return Told(name.decode(), files[0])
        os.close(files[0])
        line.send(f"pid {pid}".encode())


def _fork(line: socket.socket, parent: int) -> int:
    """Fork twice; returns the second child's id, and 0 in itself.

    The process between them ends at once, so that its child falls to the supervisor, which adopts
    orphans. Only then may the child go on: it can tell now whether its parent is alive.
    """
    go, let_go = os.pipe()
    answer, tell = os.pipe()
    middle = os.fork()
    if middle == 0:
        _fork_again(tell)
        for descriptor in (let_go, answer, tell):
            os.close(descriptor)
        line.close()
        _settle(go, parent)
        return 0
    os.close(go)
    os.close(tell)
    os.waitpid(middle, 0)
    with os.fdopen(answer, "rb") as reader:
        pid = int(reader.read() or 0)
    if pid:
        os.write(let_go, b"1")
    os.close(let_go)
    if not pid:
        raise OSError(0, "a process can't be forked")
    return pid


def _fork_again(tell: int) -> None:
    """Returns in the second child only."""
    try:
        pid = os.fork()
    except OSError:
        os._exit(1)
    if pid:
        os.write(tell, str(pid).encode())
        os._exit(0)


def _settle(go: int, parent: int) -> None:
    """Become what `processes.start` makes of a command."""
    if not os.read(go, 1):
        os._exit(1)
    os.close(go)
    os.setsid()
    die_with_parent = processes.dying_with(parent)
    if die_with_parent is not None:
        die_with_parent()
