"""What must come out of an examination; each finding is one line."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sluice_cli.client.api import Api
from sluice_cli.doctor.patients import DELAY, POLL, Patients
from sluice_cli.words import clean, failure_of
from sluice_core.domain.lanes import STAGES

#: Seconds after its time within which a delayed job must have been begun.
PUNCTUAL = 15.0
#: Seconds within which no message of jobs that have ended may be left.
TIDY = 15.0
#: Seconds that workers get to appear.
START_PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    ok: bool
    name: str
    words: str

    def __str__(self) -> str:
        return f"{'ok' if self.ok else 'FAIL':5}{self.name:14}{clean(self.words)}"


def examine(api: Api, patients: Patients, *, timeout: float) -> Iterator[Finding]:
    """Findings as they come; what was submitted is removed at the end, whatever happens.

    With a store that is away no job would end, so that none is submitted then.

    Args:
        api: of the server.
        patients: the three jobs, not submitted yet.
        timeout: seconds until all three must have ended.

    """
    stores = _stores(api.health())
    yield stores
    if not stores.ok:
        return
    before = _settled(api)
    yield _parts(before)
    try:
        patients.admit()
        jobs = patients.wait(timeout)
        yield _good(api, jobs["good"])
        yield _bad(patients, jobs["bad"])
        yield _delayed(patients, jobs["delayed"])
        yield _counts(before, api.get("v1/stats"), patients)
    finally:
        left = patients.discharge()
    yield Finding(not left, "clean-up", f"left: {', '.join(left)}" if left else "nothing is left")


def _stores(told: Mapping[str, str]) -> Finding:
    wrong = [f"{name}: {words}" for name, words in told.items() if words != "ok"]
    if wrong:
        return Finding(ok=False, name="stores", words="; ".join(wrong))
    return Finding(ok=True, name="stores", words=f"{', '.join(told)} answer and take writes")


def _settled(api: Api) -> dict[str, Any]:
    """The figures, once every stage has a worker: a system that just started needs a moment."""
    deadline = time.monotonic() + START_PATIENCE
    while True:
        stats: dict[str, Any] = api.get("v1/stats")
        workers = stats["workers"] or {}
        if all(workers.get(stage) for stage in STAGES) or time.monotonic() > deadline:
            return stats
        time.sleep(POLL)


def _parts(stats: Mapping[str, Any]) -> Finding:
    if not stats["broker_reachable"]:
        return Finding(ok=False, name="parts", words="Redis does not answer")
    workers: Mapping[str, int] = stats["workers"]
    missing = [stage for stage in STAGES if not workers.get(stage)]
    if missing:
        return Finding(ok=False, name="parts", words=f"no worker for {', '.join(missing)}")
    said = ", ".join(f"{workers[stage]} for {stage}" for stage in STAGES)
    return Finding(ok=True, name="parts", words=f"workers: {said}")


def _good(api: Api, job: Mapping[str, Any]) -> Finding:
    name = "good job"
    if job["status"] != "SUCCESS" or not job["files"]:
        return Finding(ok=False, name=name, words=_state(job))
    for file in job["files"]:
        digest, size = hashlib.sha256(), 0
        with api.stream(file["url"], headers={}) as response:
            for piece in response.iter_bytes():
                digest.update(piece)
                size += len(piece)
        if (size, digest.hexdigest()) != (file["bytes"], file["sha256"]):
            return Finding(ok=False, name=name, words=f"{file['name']} is not as it was stored")
    file = job["files"][0]
    return Finding(ok=True, name=name, words=f"{file['name']}, {file['bytes']} bytes, sum is right")


def _bad(patients: Patients, job: Mapping[str, Any]) -> Finding:
    name = "failing job"
    if job["status"] != "FAILED":
        return Finding(ok=False, name=name, words=f"should have failed: {_state(job)}")
    outcomes = [attempt["outcome"] for attempt in patients.attempts("bad")]
    retried = [*(["retry"] * (len(outcomes) - 1)), "failed"]
    if len(outcomes) < 2 or outcomes != retried:  # noqa: PLR2004  # one run is no retry
        return Finding(
            ok=False, name=name, words=f"its runs ended {', '.join(outcomes) or 'never'}"
        )
    letters = len(patients.letters("bad"))
    words = f"{job['error']['code']} after {len(outcomes)} runs, {letters} dead letter"
    return Finding(letters == 1, name, words)


def _delayed(patients: Patients, job: Mapping[str, Any]) -> Finding:
    name = "delayed job"
    if job["status"] != "SUCCESS":
        return Finding(ok=False, name=name, words=_state(job))
    claimed = datetime.fromisoformat(patients.attempts("delayed")[0]["claimed_at"]).timestamp()
    late = claimed - patients.not_before
    words = f"was to wait {DELAY:g} s and began {late:+.1f} s from then"
    return Finding(0 <= late <= PUNCTUAL, name, words)


def _counts(before: Mapping[str, Any], after: Mapping[str, Any], patients: Patients) -> Finding:
    """Others may work meanwhile, so counts may come out higher, and never lower."""
    grown = {state: after["jobs"][state] - before["jobs"][state] for state in ("SUCCESS", "FAILED")}
    letters = after["dead_letters"] - before["dead_letters"]
    letters += after["dead_letters_dropped"] - before["dead_letters_dropped"]
    on_the_way = patients.messages_left(TIDY)
    ok = grown["SUCCESS"] >= 2 and grown["FAILED"] >= 1 and letters >= 1 and not on_the_way  # noqa: PLR2004  # good and delayed
    words = (
        f"SUCCESS +{grown['SUCCESS']}, FAILED +{grown['FAILED']}, dead letters +{letters},"
        f" messages on the way {on_the_way}"
    )
    return Finding(ok, "counts", words)


def _state(job: Mapping[str, Any]) -> str:
    return failure_of(dict(job)) if job["error"] else f"it is {job['status']}: {job['step']}"
