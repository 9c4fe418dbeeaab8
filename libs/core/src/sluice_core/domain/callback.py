"""Callbacks: what is sent when a job ends, how it is signed, and when it is sent again."""

from __future__ import annotations

import hashlib
import hmac
from random import Random

#: Seconds until each further try: 15 hours in all, at most 19 with the jitter.
DELAYS = (10.0, 60.0, 300.0, 1_200.0, 3_600.0, 14_400.0, 36_000.0)
MAX_TRIES = len(DELAYS) + 1
#: Seconds after the job's end beyond which nothing is sent any more.
GIVE_UP_AFTER = 86_400.0
#: Spread of a delay, up or down.
JITTER = 0.2

#: `<job>:<state>`, the same in every try: a receiver that has seen it may drop what comes again.
ID_HEADER = "Sluice-Callback-Id"
#: `t=<Unix seconds>,v1=<hex>`; see `signature`.
SIGNATURE_HEADER = "Sluice-Signature"


def callback_id(job_id: str, state: str) -> str:
    return f"{job_id}:{state}"


def signature(secret: str, body: bytes, at: float) -> str:
    """Value of the signature's header: HMAC-SHA256, keyed with the secret, of `<t>.<body>`.

    The time is signed too, so that a receiver can refuse what is old.
    """
    stamp = str(int(at))
    mac = hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256)
    return f"t={stamp},v1={mac.hexdigest()}"


def next_try(
    *, tries: int, ended_at: float, now: float, rng: Random, retry_after: float | None = None
) -> float | None:
    """When to try again after so many failed tries; None to give up.

    Args:
        tries: made so far.
        ended_at: when the job ended.
        now: Unix seconds.
        rng: source of the jitter.
        retry_after: seconds that the receiver asked to wait.

    """
    if tries >= MAX_TRIES:
        return None
    delay = DELAYS[tries - 1] * rng.uniform(1 - JITTER, 1 + JITTER)
    due = now + max(delay, retry_after or 0.0)
    return due if due <= ended_at + GIVE_UP_AFTER else None
