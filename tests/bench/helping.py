"""One long encode in one slot, beside the same one with which an idle slot helps.

`python -m tests.bench.helping` runs this alone. Both systems have two slots, so that an ffmpeg of
either has as many threads: one where there are two cores.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from sluice_testing.encodes import LONG, write_presets
from sluice_testing.site import SampleSite
from sluice_testing.system import System, running

ROUNDS = 3
#: Encoding takes far longer than what is around it.
PRESET = "slow"
PATIENCE = 600.0
#: Seconds of a segment: a minute of media becomes ten.
SEGMENT = "6"


def encode(system: System, link: str) -> float:
    """Seconds of the job's transcode run, from claim to end."""
    job = system.submit(link, preset=PRESET)
    [ended] = system.wait([job["id"]], timeout=PATIENCE)
    if ended["status"] != "SUCCESS":
        raise RuntimeError(f"the job ended as {ended['status']}: {ended['error']}")
    [(took,)] = system.query(
        "select ended_at - claimed_at from attempts where job_id = :id and stage = 'transcode'",
        id=job["id"],
    )
    return float(took)


def helping(rounds: int = ROUNDS) -> dict[str, float]:
    """Both in turns: medians and their ratio."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-bench-")))
        site = stack.enter_context(SampleSite())
        env = {
            "SLUICE_EGRESS_ALLOW": site.address(),
            "SLUICE_PRESETS_FILE": str(write_presets(folder)),
            "SLUICE_SEGMENT_SECONDS": SEGMENT,
            "SLUICE_TRANSCODE_CONCURRENCY": "2",
        }
        one, two = (
            stack.enter_context(running(folder / helpers, **env, SLUICE_SEGMENT_HELPERS=helpers))
            for helpers in ("0", "1")
        )
        # The first round makes the site's file, and both sides warm.
        links = [site.url(f"{LONG}?n={n}") for n in range(rounds + 1)]
        pairs = [(encode(one, link), encode(two, link)) for link in links][1:]
    alone, helped = (statistics.median(side) for side in zip(*pairs, strict=True))
    return {
        "one_slot_s": round(alone, 2),
        "two_slots_s": round(helped, 2),
        "ratio": round(helped / alone, 2),
    }


if __name__ == "__main__":
    sys.stdout.write(f"{helping()}\n")
