"""`python -m tests.ops.monitoring`: a part of `make check`; `--write` renews docs/metrics.md."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from .dashboards import DASHBOARDS, FOLDER, text
from .metrics_page import PAGE, page

ROOT = Path(__file__).parents[3]
RULES = sorted((ROOT / "charts/sluice/files/rules").glob("*.yaml"))


def main() -> int:
    made = {PAGE: page(), **{FOLDER / f"{name}.json": text(name) for name in DASHBOARDS}}
    if "--write" in sys.argv[1:]:
        for file, content in made.items():
            file.write_text(content, "utf-8")
    wrong = [
        f"{file.relative_to(ROOT)} is not what the code says:"
        " python -m tests.ops.monitoring --write"
        for file, content in made.items()
        if not file.exists() or file.read_text("utf-8") != content
    ]
    promtool = shutil.which("promtool")
    if promtool is None:
        sys.stdout.write("promtool is not installed: the alert rules were not checked.\n")
    elif subprocess.run(
        [promtool, "check", "rules", *RULES], stdout=subprocess.DEVNULL, check=False
    ).returncode:
        wrong.append("promtool refuses the alert rules.")
    for one in wrong:
        sys.stderr.write(f"{one}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
