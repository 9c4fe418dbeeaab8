"""Bars need a terminal: a pseudo one."""

from __future__ import annotations

import os
import pty
from typing import Any

from sluice_cli.show import display


def test_bars_on_a_terminal_name_step_and_figures() -> None:
    ours, theirs = pty.openpty()
    progress = {"percent": 50.0, "bytes": 512, "total_bytes": 1024}
    job: dict[str, Any] = {
        "id": "1",
        "title": "[bold]Film[/bold]\x1b]0;owned\x07",
        "status": "DOWNLOADING",
        "step": "downloading 50 %",
        "progress": progress,
    }
    with os.fdopen(theirs, "w") as stream:
        with display(stream) as shown:
            shown.update(job | {"progress": {"percent": None}, "step": "reading the link"})
            shown.update(job)
            shown.update(job | {"status": "SUCCESS", "step": "done"})
        seen = b""
        while b"done" not in seen:
            seen += os.read(ours, 65536)
    os.close(ours)
    text = seen.decode()
    assert "[bold]Film[/bold]" in text
    assert "\x1b]0;" not in text
    assert "done" in text
