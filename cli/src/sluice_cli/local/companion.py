"""Processes that `sluice get` starts for itself and ends again: the system, the sample site."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from sluice_cli.exits import Exit, Stop
from sluice_cli.local import folder
from sluice_cli.supervisor import probe, processes

#: Seconds for the whole system to be ready, a cold start on a slow machine included.
START_GRACE = 90.0
#: Seconds for it to be gone: more than the supervisor's own deadlines.
STOP_GRACE = 40.0
#: Seconds that another command may need the data folder for itself.
TURN_GRACE = 3600.0
#: Seconds between two looks.
POLL = 0.05
#: Bytes of the end of its log that are searched for the reason of a failed start.
LOG_TAIL = 4096

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SampleSite:
    """The bundled site while it runs; see `sluice_testing.site`."""

    base: str
    #: One {"kind": …, "url": …} for each link worth a try.
    samples: list[dict[str, str]]
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        """Address and port, as `SLUICE_EGRESS_ALLOW` takes them."""
        return urlsplit(self.base).netloc


@contextmanager
def own_system(environ: Mapping[str, str], data: Path) -> Iterator[str]:
    """The whole system on a free port, for as long as the block lasts. Yields its URL.

    Raises:
        Stop: it did not start; the sentence says why.

    """
    log = data / "sluice.log"
    made = {**environ, "SLUICE_DATA_DIR": str(data), "SLUICE_HTTP_PORT": "0"}
    with _running((sys.executable, "-m", "sluice_cli", "up", "--temporary"), made, log) as process:
        yield _wait(process, log, lambda: _ready_url(data), what="the system")


@contextmanager
def sample_site(environ: Mapping[str, str], *, port: int = 0) -> Iterator[SampleSite]:
    """The bundled site on loopback, for as long as the block lasts.

    Raises:
        Stop: it did not start; the sentence says why.

    """
    with tempfile.TemporaryDirectory(prefix="sluice-site-") as place:
        ready, log = Path(place, "ready.json"), Path(place, "log")
        command = (
            *(sys.executable, "-m", "sluice_testing.site"),
            *("--host", "127.0.0.1", "--port", str(port), "--ready-file", str(ready)),
        )
        with _running(command, environ, log) as process:
            said = _wait(process, log, lambda: _json(ready), what="the sample site")
            yield SampleSite(base=said["base"], samples=said["samples"], process=process)


@contextmanager
def _running(
    command: tuple[str, ...], environ: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        process = processes.start(
            command, death_signal=signal.SIGTERM, environ=environ, output=descriptor
        )
    finally:
        os.close(descriptor)
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    processes.terminate(process.pid)
    try:
        process.wait(STOP_GRACE)
    except subprocess.TimeoutExpired:
        processes.kill_group(process.pid)
        process.wait()


def _wait(
    process: subprocess.Popen[bytes], log: Path, look: Callable[[], _T | None], *, what: str
) -> _T:
    deadline = time.monotonic() + START_GRACE
    while time.monotonic() < deadline:
        found = look()
        if found is not None:
            return found
        if process.poll() is not None:
            raise Stop(Exit.WRONG_USE, _last_words(log) or f"{what} did not start; see {log}.")
        time.sleep(POLL)
    raise Stop(Exit.UNREACHABLE, f"{what} was not ready after {START_GRACE:g} s; see {log}.")


def lasting_url(data: Path, *, tell: Callable[[str], None]) -> str | None:
    """The instance on the folder that will stay, once it is ready; None when the folder is free.

    Waits for one that starts or stops, and for another `sluice get` to be done with the folder.

    Raises:
        Stop: none of it came to an end.

    """
    began, told = time.monotonic(), False
    while folder.is_locked(data):
        instance = folder.running_on(data)
        temporary = instance is not None and instance.temporary
        if not temporary and (url := _ready_url(data)) is not None:
            return url
        if temporary and not told:
            told = True
            tell("Another `sluice get` uses this data folder; waiting for it …")
        if time.monotonic() - began > (TURN_GRACE if temporary else START_GRACE):
            raise Stop(Exit.UNREACHABLE, f"what runs on {data} does not become ready.")
        time.sleep(POLL)
    return None


def _ready_url(data: Path) -> str | None:
    instance = folder.running_on(data)
    if instance is None:
        return None
    host, _, port = instance.url.removeprefix("http://").rpartition(":")
    return instance.url if probe.is_ready(host.strip("[]"), int(port)) else None


def _json(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return found


def _last_words(log: Path) -> str:
    """The last sentence in our own words; a part's stack traces stay in the log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_TAIL))
        lines = file.read().decode(errors="replace").splitlines()
    ours = [line.removeprefix("sluice: ") for line in lines if line.startswith("sluice: ")]
    return ours[-1] if ours else ""
