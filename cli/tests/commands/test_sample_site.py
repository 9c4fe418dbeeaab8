from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys

import psutil


def test_a_port_that_is_taken_is_told(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "sluice_cli", "sample-site", "--port", str(port)]
        environ = {**os.environ, "SLUICE_DATA_DIR": str(tmp_path)}
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env=environ
        )
    assert ended.returncode == 2
    assert "Address already in use" in ended.stderr


def test_it_ends_with_a_sentence_when_the_site_dies(tmp_path):
    errors = tmp_path / "errors"
    with (
        errors.open("w") as output,
        subprocess.Popen(
            [sys.executable, "-m", "sluice_cli", "sample-site"],
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            env={**os.environ, "SLUICE_DATA_DIR": str(tmp_path)},
        ) as command,
    ):
        try:
            allow = next(line for line in command.stdout if "SLUICE_EGRESS_ALLOW" in line)
            assert re.search(r"SLUICE_EGRESS_ALLOW=127\.0\.0\.1:\d+ make up", allow)
            (site,) = psutil.Process(command.pid).children()
            site.send_signal(signal.SIGKILL)
            assert command.wait(60) == 3
        finally:
            command.kill()
    assert "the sample site ended by itself" in errors.read_text()
