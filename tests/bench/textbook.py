"""Event streams as the usual examples do them: a greenlet and a queue for each client.

The baseline of `sse`: no database, no resuming, nothing bounded; one reader of the same stream.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import gevent
from flask import Flask, Response, request
from gevent.queue import Queue

from sluice_core.adapters import redis
from sluice_core.domain import keys

app = Flask(__name__)
clients: dict[Queue, set[str] | None] = {}
readers: list[gevent.Greenlet] = []


def read() -> None:
    client = redis.connect(os.environ["SLUICE_REDIS_URL"], socket_timeout=10)
    last = "$"
    while True:
        answer = client.xread({keys.EVENTS: last}, count=200, block=5000)
        streams = answer.values() if isinstance(answer, dict) else [s[1] for s in answer or ()]
        for entries in streams:
            for last, fields in entries[0] if isinstance(answer, dict) else entries:  # noqa: B007
                job_id = json.loads(fields["e"])["job_id"]
                for queue, wanted in clients.items():
                    if wanted is None or job_id in wanted:
                        queue.put(fields["e"])


def stream(wanted: set[str] | None) -> Response:
    if not readers:
        readers.append(gevent.spawn(read))

    def body() -> Iterator[str]:
        queue: Queue = Queue()
        clients[queue] = wanted
        try:
            yield "id: 0\nevent: hello\ndata: {}\n\n"
            while True:
                try:
                    yield f"event: progress\ndata: {queue.get(timeout=15)}\n\n"
                except gevent.queue.Empty:
                    yield ": still here\n\n"
        finally:
            del clients[queue]

    return Response(body(), content_type="text/event-stream")


@app.get("/v1/events")
def everything() -> Response:
    ids = request.args.get("ids")
    return stream(set(ids.split(",")) if ids else None)


@app.get("/v1/jobs/<job_id>/events")
def one(job_id: str) -> Response:
    return stream({job_id})


@app.get("/v1/stats")
def stats() -> dict[str, int]:
    return {"sse_clients": len(clients)}


@app.get("/livez")
def livez() -> str:
    return "ok"
