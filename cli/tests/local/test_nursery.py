from __future__ import annotations

import subprocess
import sys

from sluice_cli.local import nursery
from sluice_cli.local.preflight import FORKED

#: What the nursery does before its first fork.
LOAD = """
import sys, threading
from sluice_cli.local import nursery
nursery._load(list(nursery.KINDS.values()))
print(threading.active_count(), "yt_dlp" in sys.modules, "flask" in sys.modules)
"""


def test_it_knows_each_part_that_is_forked() -> None:
    assert set(nursery.KINDS) == set(FORKED)


def test_it_imports_without_threads_and_without_a_word() -> None:
    # A word would be "starting cold": what children do first was not gone through.
    ended = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["1", "True", "False"]
    assert ended.stderr == ""
