"""`python -m sluice_cli.supervisor FD`: run the plan that can be read from that descriptor."""

from __future__ import annotations

import os
import sys

from sluice_cli.supervisor.loop import Supervisor, speaker
from sluice_cli.supervisor.plan import loads


def main() -> int:
    with os.fdopen(int(sys.argv[1]), encoding="utf-8") as file:
        plan = loads(file.read())
    return Supervisor(plan, say=speaker(json_lines=plan.json_lines)).run()


if __name__ == "__main__":
    sys.exit(main())
