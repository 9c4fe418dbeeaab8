"""Runs an image as a cluster does: read-only root, any user, no capabilities."""

from __future__ import annotations

import json
import signal
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sluice_testing.images.builder import Image
from sluice_testing.process import bound
from sluice_testing.waiting import until

#: Seconds that an end may take.
_PATIENCE = 30.0


class Container:
    """One container on the host's network; its `/data` is a folder of the host.

    Args:
        image: what to start.
        folder: empty; becomes the container's bundle.
        env: beside the image's own.
        user: numeric user and group.
        command: in place of the image's own.

    """

    def __init__(
        self,
        image: Image,
        folder: Path,
        *,
        env: Mapping[str, str] | None = None,
        user: int = 10001,
        command: Sequence[str] = (),
    ) -> None:
        self._id = f"sluice-{uuid.uuid4().hex[:12]}"
        self._folder = folder
        self._state = folder / "state"
        self.data = folder / "data"
        self.data.mkdir(parents=True)
        self.data.chmod(0o1777)
        arguments = [*image.entrypoint, *(command or image.command)]
        spec = _spec(image, self.data, arguments, env or {}, user)
        (folder / "config.json").write_text(json.dumps(spec))
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  # our own program
                bound(self._runc("run", "--bundle", str(self._folder), self._id)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(lambda: self.ended() or self._is_running(), timeout=_PATIENCE, why="it never started")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # One that has ended took itself away.
        self._call("delete", "--force", self._id)
        self.wait()

    def signal(self, number: signal.Signals) -> None:
        """Signal the first process, as an engine does."""
        done = self._call("kill", self._id, str(int(number)))
        assert done.returncode == 0, done.stderr  # noqa: S101  # a test's own mistake

    def wait(self, timeout: float = _PATIENCE) -> int:
        """The exit status of the first process."""
        return self._running().wait(timeout)

    def run(self, *command: str) -> str:
        """What a command says that is run inside."""
        done = self._call("exec", self._id, *command)
        return done.stdout + done.stderr

    def said(self) -> str:
        """Its output so far."""
        return self._log.read_text("utf-8", "replace")

    def ended(self) -> bool:
        return self._running().poll() is not None

    def _is_running(self) -> bool:
        state = self._call("state", self._id)
        return state.returncode == 0 and json.loads(state.stdout)["status"] == "running"

    def _call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603  # our own program
            self._runc(*arguments),
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"  # noqa: S101  # a test's own mistake
        return self._process

    def _runc(self, *arguments: str) -> list[str]:
        return ["/usr/bin/env", "runc", "--root", str(self._state), *arguments]


def _spec(
    image: Image, data: Path, arguments: Sequence[str], env: Mapping[str, str], user: int
) -> dict[str, Any]:
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": user, "gid": user},
            "args": list(arguments),
            "env": [*image.env, "HOME=/", *(f"{name}={value}" for name, value in env.items())],
            "cwd": image.workdir or "/",
            "noNewPrivileges": True,
            "capabilities": {},
        },
        "root": {"path": str(image.root), "readonly": True},
        "hostname": "sluice-test",
        "mounts": [
            _mount("/proc", "proc"),
            _mount("/dev", "tmpfs", "nosuid", "mode=755", "size=65536k"),
            _mount("/tmp", "tmpfs", "nosuid", "nodev", "mode=1777"),  # noqa: S108  # its own
            {
                "destination": "/data",
                "type": "bind",
                "source": str(data),
                "options": ["bind", "rw", "nosuid", "nodev"],
            },
        ],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")]},
    }


def _mount(destination: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": kind, "options": list(options)}
