"""What no log line shows."""

from __future__ import annotations

import json
import subprocess
import sys

_PROGRAM = """
import logging, structlog
from sluice_core.adapters import logs
logs.configure(log_format="json", process="test")
log = structlog.get_logger("ours")
link = "https://u:hunter2@site.example/a?token=hunter2#hunter2"
log.info("one", url=link, nested={"links": [link]}, words=f"from {link}, and on")
try:
    raise ValueError(link)
except ValueError:
    log.exception("two")
logging.getLogger("theirs").warning("GET %s failed", link)
"""


def test_no_line_of_ours_or_of_libraries_shows_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["event"] for line in lines[:2]] == ["one", "two"]
    assert {line["process"] for line in lines} == {"test"}
    assert lines[0]["nested"] == {"links": ["https://***@site.example/a?***"]}
    assert "ValueError: https://***@site.example/a?***" in lines[1]["exception"]
    assert "hunter2" not in done.stderr
