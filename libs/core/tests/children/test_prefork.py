"""Preforked servers, each below a process of its own that has no thread: as in the nursery."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sluice_testing.waiting import until

HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="used on Linux only")

#: Imports, forks the server, learns a secret, then runs one request after the other.
_WORKER = """
import json, os, sys
from pathlib import Path
import child_module
from sluice_core.adapters import logs
from sluice_core.runtime.children import ForkServer, ForkSpec, prefork, run
child_module.preload()
logs.configure(process="test")  # to stderr
waiting = prefork("child_module")
secret = os.environ["SECRET"] = "word-" + "x" * 3
folder = Path(sys.argv[1])
env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": sys.argv[2]}
with ForkServer(module="child_module", env=env, cwd=folder, preforked=waiting) as server:
    print(json.dumps({"worker": os.getpid(), "server": server.pid}), flush=True)
    for line in sys.stdin:
        spec = ForkSpec(server=server, request=json.loads(line), scratch=folder)
        result = run(spec, on_line=lambda text: print(text, flush=True), deadline_s=60)
        print(json.dumps({"ok": result.ok, "server": server.pid}), flush=True)
print(json.dumps({"closed": True}), flush=True)
"""


class Worker:
    def __init__(self, folder):
        self.process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, str(folder), str(HERE)],
            env={**os.environ, "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.first = self.read()

    def read(self):
        return json.loads(self.process.stdout.readline())

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()


@pytest.fixture
def worker(scratch):
    running = Worker(scratch)
    with running.process:
        yield running
        running.process.kill()


def test_it_serves_and_is_not_imported_again(worker, scratch):
    worker.ask(act="hello", text="é")
    hello, end = worker.read(), worker.read()
    assert end == {"ok": True, "server": worker.first["server"]}
    assert hello["text"] == "é"
    assert hello["preloaded_by"] == worker.first["worker"]
    assert hello["parent"] == worker.first["server"]
    assert hello["session"] == hello["pid"]
    assert hello["home"] == str(scratch)


def test_it_knows_only_what_it_was_told(worker):
    worker.ask(act="names")
    assert set(worker.read()["names"]) <= {"PATH", "HOME", "PYTHONPATH", "TMPDIR", "LC_CTYPE"}


def test_it_holds_no_descriptor_of_the_worker(worker, scratch):
    worker.ask(act="hello", text="")
    assert worker.read()
    found = {path.name: str(path.readlink()) for path in _fds(worker.first["server"])}
    assert found["0"] == found["1"] == os.devnull
    assert not any(str(scratch) in target for target in found.values())
    ours = {str(path.readlink()) for path in _fds(worker.first["worker"])}
    sockets = {target for target in found.values() if target.startswith("socket:")}
    assert len(sockets) == 1
    assert not sockets & ours


def _fds(pid):
    return list(Path(f"/proc/{pid}/fd").iterdir())


def test_a_killed_one_is_replaced_by_a_new_process(worker, gone):
    os.kill(worker.first["server"], signal.SIGKILL)
    until(lambda: gone(worker.first["server"]))
    worker.ask(act="hello", text="again")
    hello, end = worker.read(), worker.read()
    assert hello["text"] == "again"
    assert end["ok"]
    assert hello["preloaded_by"] == end["server"] != worker.first["server"]


def test_it_ends_with_the_worker(worker, gone):
    worker.process.kill()
    until(lambda: gone(worker.first["server"]))


def test_it_is_ended_and_reaped_at_the_close(worker):
    worker.process.stdin.close()
    assert worker.read() == {"closed": True}
    until(lambda: not Path(f"/proc/{worker.first['server']}").exists())


def test_it_is_shown_as_what_it_is(worker):
    worker.ask(act="hello", text="")
    assert worker.read()
    assert Path(f"/proc/{worker.first['server']}/comm").read_text() == "sluice-media\n"
    line = Path(f"/proc/{worker.first['server']}/cmdline").read_bytes()
    assert line.startswith(f"{sys.executable} -m sluice_core.runtime.children.forkserver".encode())


def test_the_server_as_a_program_is_not_imported_before_it_runs():
    command = [sys.executable, "-W", "error", "-m", "sluice_core.runtime.children.forkserver"]
    ended = subprocess.run(
        [*command, "0", "-"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert "socket" in ended.stderr
    assert "RuntimeWarning" not in ended.stderr
