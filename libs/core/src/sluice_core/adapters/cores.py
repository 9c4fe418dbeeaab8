"""How many cores a process may use: in a container fewer than the machine has."""

from __future__ import annotations

import math
import os
from pathlib import Path

#: Where a container sees its own control group, of version 2 and of version 1.
_CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = _CGROUP) -> int:
    """Cores that this process may run on, and no more than its control group grants (rounded up).

    A thread for each core of the machine instead is throttled, and costs memory all the same.
    """
    cores = len(os.sched_getaffinity(0))
    quota = _quota(cgroup)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def _quota(cgroup: Path) -> float | None:
    """Seconds of computing granted in each second; None: as much as there is."""
    try:
        granted, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            granted = (cgroup / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (cgroup / "cpu" / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if not granted.isdigit():  # "max", or -1
        return None
    return int(granted) / int(period)
