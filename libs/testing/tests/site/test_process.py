"""The site as a process: ready line, signals, and the death of its parent."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys

import pytest

from sluice_testing.process import is_alive
from sluice_testing.waiting import PATIENCE, until

COMMAND = [sys.executable, "-m", "sluice_testing.site"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ready_line_and_signals(tmp_path, get, number):
    ready = tmp_path / "ready.json"
    with subprocess.Popen(
        [*COMMAND, "--hosts", "127.0.0.2", "--ready-file", ready], stdout=subprocess.PIPE
    ) as process:
        try:
            told = json.loads(process.stdout.readline())
            assert told == json.loads(ready.read_text())
            assert len(told["bases"]) == 2
            samples = {sample["kind"]: sample for sample in told["samples"]}
            assert samples["page-12"]["expect"]["entries"] == 12
            assert get(samples["small"]["url"]).status == 200
            assert get(told["bases"][1] + "/pages/video").status == 200
            # An open stall must not hold the end.
            host, port = told["base"].removeprefix("http://").split(":")
            with socket.create_connection((host, int(port)), timeout=PATIENCE) as client:
                client.sendall(b"GET /mp4/small.mp4?stall=0 HTTP/1.1\r\nHost: x\r\n\r\n")
                assert client.recv(4)
                process.send_signal(number)
                assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def test_a_killed_parent_takes_the_site_along(tmp_path):
    ready = tmp_path / "ready.json"
    code = f"import subprocess; subprocess.run({[*COMMAND, '--ready-file', str(ready)]!r})"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL) as parent:
        until(ready.exists)
        pid = json.loads(ready.read_text())["pid"]
        assert is_alive(pid)
        parent.kill()
    until(lambda: not is_alive(pid))


def test_a_taken_port_is_told_in_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [*COMMAND, "--port", port], capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode == 2
    assert "in use" in done.stderr
    assert len(done.stderr.splitlines()) == 1
