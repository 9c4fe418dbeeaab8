"""Named failpoints: which of them kill how often, and how often that was."""

from __future__ import annotations

import fcntl
from collections import Counter
from pathlib import Path

from sluice_core.runtime.failpoints import NAMES

#: Kills that each failpoint may do beyond those that it must.
SPARE = 1
#: Name -> passes between two kills when there are 200 jobs.
FAILPOINTS = {
    "api.after_commit": 35,
    "api.after_publish": 18,
    "run.delivered": 50,
    "run.claimed": 45,
    "download.mid_fetch": 40,
    "download.mid_piece": 3,
    "transcode.mid_segment": 5,
    "help.mid_segment": 3,
    "run.before_commit": 40,
    "run.after_commit": 40,
    "run.before_ack": 40,
    "run.hand_back": 1,
    "settle.counted": 1,
}
#: The one that only a drain leads to.
DRAINED = "run.hand_back"
#: Reached only where storage outlives the machine, which a folder does not.
NOT_IN_A_FOLDER = frozenset({"download.mid_piece"})
#: Passes between two kills at least: a run that was lost before it had a segment gets no help.
SPARED = {"transcode.mid_segment": 3}


class Points:
    """The rules of one run, and the log in which its processes count.

    Args:
        log: where they count.
        share: of 200 jobs.
        least: kills that each failpoint must do.
        without: failpoints that this run can't reach.

    Raises:
        LookupError: there is a failpoint that no run meets.

    """

    def __init__(
        self, log: Path, *, share: float, least: int, without: frozenset[str] = frozenset()
    ) -> None:
        unknown = set(NAMES) - set(FAILPOINTS)
        if unknown:
            raise LookupError(f"failpoints that no run meets: {sorted(unknown)}")
        self.log = log
        self._least = least
        self._most = least + SPARE
        # Where few kills are asked for, they are to come early.
        share *= min(1.0, (least + 1) / 5)
        self._every = {
            name: max(SPARED.get(name, 1), round(n * share)) for name, n in FAILPOINTS.items()
        }
        for name in without:
            del self._every[name]

    @property
    def rules(self) -> str:
        """For `SLUICE_FAILPOINTS`."""
        return ",".join(f"{name}=kill*{self._most}/{n}" for name, n in self._every.items())

    def hits(self) -> Counter[str]:
        """Passes so far."""
        return Counter(self.log.read_text("utf-8").split() if self.log.exists() else ())

    def silence(self) -> Counter[str]:
        """No pass kills from now on; returns the passes so far."""
        with self.log.open("a+", encoding="utf-8") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            log.seek(0)
            hits = Counter(log.read().split())
            for name, every in self._every.items():
                log.write(f"{name}\n" * (every * self._most))
        return hits

    def kills(self, hits: Counter[str]) -> Counter[str]:
        return Counter({n: min(self._most, hits[n] // every) for n, every in self._every.items()})

    def missed(self, hits: Counter[str]) -> dict[str, str]:
        """Failpoints that did not kill as often as they must, with words."""
        done = self.kills(hits)
        short = [name for name in self._every if done[name] < self._least]
        return {name: f"{name}: {done[name]} in {hits[name]} passes" for name in short}
