"""Becoming the supervisor."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from sluice_cli.local.preflight import Prepared


def become_supervisor(prepared: Prepared) -> NoReturn:
    """Replace this process: what getting ready took of memory is given back whole.

    The lock on the data folder goes with it, since its descriptor is inheritable.
    """
    reading, writing = os.pipe()
    text = prepared.plan.dumps().encode()
    # A pipe holds 64 KiB unread; a plan is two.
    os.set_blocking(writing, False)
    if os.write(writing, text) != len(text):
        raise OSError("the plan does not fit into a pipe")
    os.close(writing)
    os.set_inheritable(reading, True)  # noqa: FBT003  # the function has no keyword
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, "-m", "sluice_cli.supervisor", str(reading)]
    os.execve(sys.executable, command, prepared.environ)  # noqa: S606  # no shell is wanted
