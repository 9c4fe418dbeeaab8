"""`python -m tests.chaos`: exit status 0 when nothing got lost, doubled or left behind."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.run import Options, Run

#: The form of it that runs with the other tests, beside them and so with more patience.
SHORT = {"jobs": 24, "minutes": 0.4, "kills": 1, "patience": 200.0}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--storage", choices=("folder", "s3"), default="folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--patience", type=float, default=120.0, help="seconds, after the faults")
    parser.add_argument("--kills", type=int, default=5, help="of each failpoint, at least")
    parser.add_argument("--keep", type=Path, help="where data and log go when it fails")
    parser.add_argument("--short", action="store_true", help="24 jobs, 24 s, one kill of each")
    if "--short" in sys.argv:
        parser.set_defaults(**SHORT)
    told = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    options = Options(
        database=told.database,
        storage=told.storage,
        seed=told.seed,
        jobs=told.jobs,
        minutes=told.minutes,
        patience=told.patience,
        kills=told.kills,
        locks=not told.short,
    )
    # Short: a socket's path has to fit.
    folder = Path(tempfile.mkdtemp(prefix="sluice-chaos-"))
    fine = False
    try:
        say(f"chaos: {options}")
        fine = Run(options, folder, say)()
        say("all is well" if fine else "NOT WELL")
    finally:
        if not fine and told.keep is not None:
            shutil.copytree(folder, told.keep, dirs_exist_ok=True, ignore=_no_sockets)
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if fine else 1


def _no_sockets(_folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name.endswith(".sock")]


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # what it is for


if __name__ == "__main__":
    sys.exit(main())
