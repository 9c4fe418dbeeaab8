"""What processes under test have logged so far, while they go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def whole_lines(log: Path) -> list[str]:
    """Lines that are written to their end; none while there is no file."""
    if not log.exists():
        return []
    return log.read_text("utf-8", "replace").rpartition("\n")[0].splitlines()


def logged(log: Path, event: str) -> list[dict[str, Any]]:
    """What was said under this name, as JSON among whatever else is there."""
    lines = (line for line in whole_lines(log) if line.startswith("{") and f'"{event}"' in line)
    return [found for line in lines if (found := json.loads(line))["event"] == event]
