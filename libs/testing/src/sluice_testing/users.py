"""Programs under test as users whom nobody knows, as clusters start them."""

from __future__ import annotations

import shutil
import subprocess
import sys

from sluice_testing.require import missing


def as_user(uid: int) -> list[str]:  # noqa: RET503  # missing() ends the test
    """The start of a command that runs as this user and group; ends the test where none can."""
    drop = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    # Where the interpreter lies in somebody's home, it may be read, and nothing else.
    reading = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    for command in (drop, [*drop, *reading]):
        # The command itself is still started with a right that its children have lost.
        again = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
        if shutil.which("setpriv") and _works([*command, sys.executable, "-c", again]):
            return command
    missing("setpriv and a Python that other users may run")


def _works(command: list[str]) -> bool:
    done = subprocess.run(command, capture_output=True, cwd="/", check=False, timeout=120)  # noqa: S603  # our own
    return done.returncode == 0
