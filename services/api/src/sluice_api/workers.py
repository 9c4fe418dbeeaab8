"""What the workers say of themselves, read from Redis."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import redis

from sluice_core.adapters.redis import call
from sluice_core.domain import keys

#: More workers than any list for people needs.
MAX_WORKERS = 1_000


def read_workers(signals: redis.Redis) -> list[dict[str, Any]]:
    """What every worker that lives says of itself.

    {"id", "stage", "since" (Unix seconds), "jobs", "memory_bytes", "versions", "draining",
    "standby"}.

    Raises:
        BrokerAwayError: Redis does not answer.

    """
    prefix = keys.worker("")
    with call():
        names = sorted(islice(signals.scan_iter(match=f"{prefix}*", count=500), MAX_WORKERS))
        pipe = signals.pipeline(transaction=False)
        for name in names:
            pipe.hgetall(name)
        rows = pipe.execute()
    return [
        _worker(name.removeprefix(prefix), row)
        for name, row in zip(names, rows, strict=True)
        # One may expire between the two calls.
        if row
    ]


def _worker(worker_id: str, row: dict[str, str]) -> dict[str, Any]:
    return {
        "id": worker_id,
        "stage": row.get("stage", ""),
        "since": float(row["since"]) if "since" in row else None,
        "jobs": row.get("jobs", "").split(),
        "memory_bytes": int(row["memory"]) if "memory" in row else None,
        "versions": json.loads(row.get("versions", "{}")),
        "draining": row.get("draining") == "1",
        "standby": bool(row.get("standby")),
    }
