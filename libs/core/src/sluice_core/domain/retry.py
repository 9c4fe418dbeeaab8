"""What follows a failed run: a pure decision."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from sluice_core.domain.errors import CODES, ErrorClass, SluiceError

#: Seconds; see requirement D2.
MAX_DELAY = 600.0
#: A site may ask for at most this much patience; beyond, the job fails as rate limited.
MAX_RETRY_AFTER = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class RetryIn:
    """Run the stage again after so many seconds."""

    delay: float
    #: Whether the run that ended was one of the job's tries.
    counted: bool = True


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job is FAILED; `exhausted` when tries ran out, so it belongs to the dead letters."""

    exhausted: bool


def decide(
    error: SluiceError, *, tries: int, max_tries: int, rng: Random, free: int = 0
) -> RetryIn | GiveUp:
    """Retry or not.

    Args:
        error: why the run failed.
        tries: counted runs of this stage so far, this one included.
        max_tries: the stage's limit.
        rng: source of the jitter.
        free: runs of this stage that have ended so before, at nobody's cost.

    """
    if error.error_class is not ErrorClass.TRANSIENT:
        return GiveUp(exhausted=False)
    info = CODES[error.code]
    if free < info.free_runs:
        return RetryIn(_delay(info.base_delay, free, rng), counted=False)
    if tries >= min(max_tries, info.max_tries or max_tries):
        return GiveUp(exhausted=True)
    if error.retry_after is not None:
        if error.retry_after > MAX_RETRY_AFTER:
            return GiveUp(exhausted=False)
        # A little spread, so that all who were told the same time do not come back at once.
        return RetryIn(error.retry_after + rng.uniform(0, 1))
    return RetryIn(_delay(info.base_delay, tries - 1, rng))


def _delay(base: float, earlier: int, rng: Random) -> float:
    return rng.uniform(0, min(MAX_DELAY, base * 2**earlier))
