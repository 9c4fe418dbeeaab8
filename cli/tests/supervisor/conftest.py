"""A supervisor in a process of its own over small programs that tell what happens to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from sluice_cli.supervisor.plan import Part, Plan
from sluice_testing.process import is_alive
from sluice_testing.waiting import PATIENCE, until


class Running:
    """One supervisor under test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.errors = folder / "stderr"
        self.output = folder / "stdout"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *parts: Part, **options: object) -> None:
        # A slow start is no fault of a nursery.
        options = {"nursery_grace": PATIENCE, "fork_grace": PATIENCE, **options}
        reading, writing = os.pipe()
        os.write(writing, Plan(parts=parts, url="http://x", **options).dumps().encode())  # type: ignore[arg-type]
        os.close(writing)
        with self.errors.open("wb") as errors, self.output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sluice_cli.supervisor", str(reading)],
                pass_fds=[reading],
                stdout=output,
                stderr=errors,
            )
        os.close(reading)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def lines(self) -> list[str]:
        return self.errors.read_text().splitlines()

    def told(self, name: str) -> list[str]:
        """Lines that a program wrote into the file of its name."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def pid(self, name: str) -> int:
        """Of the newest process of that part."""
        until(lambda: self.told(name), why=f"{name} runs")
        return int(self.told(name)[-1].split()[0])

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def wait(self, patience: float = PATIENCE) -> int:
        return self.process.wait(patience)

    def part(self, name: str, code: str = "time.sleep(600)", **options: object) -> Part:
        """A Python program that writes `<pid> start` into a file of its name, then runs `code`."""
        head = (
            "import os, signal, subprocess, sys, time\n"
            f"def tell(*words): open({str(self.folder / name)!r}, 'a')"
            ".write(f'{os.getpid()} ' + ' '.join(words) + '\\n')\n"
            "def on_term(*_):\n"
            "    tell('term', str(time.monotonic())); sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, on_term)\n"
            "tell('start')\n"
        )
        return Part(name, (sys.executable, "-c", head + code), **options)  # type: ignore[arg-type]

    def nursery(self, code: str = "") -> Part:
        """A nursery whose parts are the programs of `forked`; runs `code` before it is ready."""
        text = (
            "import os, socket, sys, time\n"
            "from sluice_cli.supervisor import forking\n"
            f"open({str(self.folder / 'nursery')!r}, 'a').write(f'{{os.getpid()}} start\\n')\n"
            "line = socket.socket(fileno=int(sys.argv[-1]))\n"
            f"{code}\n"
            "told = forking.serve(line)\n"
            "if told is not None:\n"
            "    told.take_environment()\n"
            f"    exec(open({str(self.folder)!r} + '/' + told.name + '.py').read())\n"
        )
        return Part("nursery", (sys.executable, "-c", text), level=0, nursery=True)

    def forked(self, name: str, code: str = "time.sleep(600)") -> Part:
        """As `part`, forked from the nursery; by its own command it tells `alone` at the end."""
        part = self.part(name, "tell('alone'); " + code, forked=True)
        program = self.part(name, "tell('forked'); " + code).command[2]
        (self.folder / f"{name}.py").write_text(program)
        return part

    def end(self) -> None:
        if self._process is None:
            return
        family = [] if self._process.poll() is not None else self.family()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    supervisor = Running(tmp_path)
    yield supervisor
    supervisor.end()


def gone(processes: list[psutil.Process]) -> bool:
    return not any(map(is_alive, processes))
