"""Python processes on a machine whose clock is wrong."""

from __future__ import annotations

import os
from pathlib import Path

_SITE = """
import time
_right, _right_ns = time.time, time.time_ns
time.time = lambda: _right() + {ahead!r}
time.time_ns = lambda: _right_ns() + int({ahead!r} * 1e9)
"""


def wrong_clock(folder: Path, ahead: float) -> dict[str, str]:
    """What makes a Python process believe that it is later, as part of its environment.

    Args:
        folder: for a file that must stay while processes start.
        ahead: seconds; negative when its clock is behind.

    """
    home = folder / f"clock{ahead:+g}"
    home.mkdir(exist_ok=True)
    (home / "sitecustomize.py").write_text(_SITE.format(ahead=ahead))
    others = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(home), *([others] if others else [])])}
