"""Callbacks: one for each end, signed, guarded, tried again, and never the job's trouble."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import sqlalchemy as sa

from sluice_core.adapters import settings, tracing
from sluice_core.adapters.db import (
    dead_letters,
    jobs,
    liveness,
    moves,
    outbox,
    requeue,
    runs,
)
from sluice_core.adapters.db.engine import read, write
from sluice_core.adapters.db.schema import callbacks as callbacks_table
from sluice_core.adapters.egress import EgressGuard
from sluice_core.adapters.storage import open_storage
from sluice_core.domain import trace
from sluice_core.domain.callback import DELAYS, GIVE_UP_AFTER, MAX_TRIES
from sluice_core.domain.lanes import Actor
from sluice_core.runtime.deps import make_deps
from sluice_scheduler import notify
from sluice_testing.factories import (
    artifact,
    fail,
    finish,
    make_collection,
    make_job,
    run_at,
    settle,
    start_run,
)
from sluice_testing.waiting import PATIENCE, until

SECRET = "s3cret"  # noqa: S105  # of the tests


class Receiver:
    """A server that answers as told and remembers what it was sent."""

    def __init__(self) -> None:
        self.seen: list[tuple[dict[str, str], bytes]] = []
        #: Status and headers of the next answers, the last one for all that follow.
        self.answers: list[tuple[int, dict[str, str]]] = [(204, {})]
        self.drip = False
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                return

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.seen.append((dict(self.headers), body))
                if receiver.drip:
                    self._drip()
                    return
                answers = receiver.answers
                status, headers = answers.pop(0) if len(answers) > 1 else answers[0]
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def _drip(self) -> None:
                try:
                    for byte in b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 1000:
                        self.wfile.write(bytes([byte]))
                        time.sleep(0.1)
                except OSError:
                    return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook?x=1"

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver():
    opened = Receiver()
    yield opened
    opened.close()


@pytest.fixture
def clock():
    return [time.time()]


@pytest.fixture
def deps(tmp_path, engine, redis_url, clock):
    loaded = settings.load(
        {
            "SLUICE_DATA_DIR": str(tmp_path),
            "SLUICE_REDIS_URL": redis_url,
            "SLUICE_CALLBACK_SECRET": SECRET,
        }
    )
    storage = open_storage(loaded.store.effective_storage_url)
    with ExitStack() as stack:
        made = make_deps(Actor.NOTIFY, loaded, stack, engine=engine, storage=storage)
        yield replace(made, clock=lambda: clock[0])


@pytest.fixture
def courier(deps, receiver):
    guard = EgressGuard(allow=[f"127.0.0.1:{receiver.port}"])
    return notify.Courier(deps, guard, timeouts=(PATIENCE, PATIENCE, 2 * PATIENCE))


def orders(engine, job_id):
    with read(engine) as c:
        return [r for r in outbox.of_job(c, job_id) if r.actor == Actor.NOTIFY.value]


def stored(engine, job_id):
    with read(engine) as c:
        query = sa.select(callbacks_table).where(callbacks_table.c.job_id == job_id)
        return c.execute(query.order_by(callbacks_table.c.epoch)).all()


def failed_job(engine, url, **fields):
    with write(engine) as c:
        return fail(c, run_at(c, Actor.DOWNLOAD, callback_url=url, **fields))


def deliver(courier, job_id):
    [order] = orders(courier.deps.engine, job_id)
    courier.deliver(job_id, order.epoch)


def ends(connection, url):
    """Each way in which a job ends, as (job id, state)."""
    run = run_at(connection, Actor.TRANSCODE, callback_url=url)
    yield finish(connection, run).id, "SUCCESS"
    yield fail(connection, run_at(connection, Actor.DOWNLOAD, callback_url=url)).id, "FAILED"
    job = make_job(connection, callback_url=url)
    moves.cancel(connection, job.id, now=1.0)
    yield job.id, "CANCELED"
    lost = run_at(connection, Actor.PARSE, callback_url=url)
    liveness.declare_lost(connection, lost.attempt_id, max_losses=1, sweep_at=1.0, now=1.0)
    yield lost.job.id, "FAILED"
    parent, [child] = make_collection(connection, 1, callback_url=url)
    moves.cancel(connection, child.id, now=1.0)
    settle(connection, parent.id)
    yield parent.id, "FAILED"


def test_every_end_orders_one_callback_and_children_none(engine):
    with write(engine) as c:
        ended = list(ends(c, "https://hooks.example/"))
    for job_id, state in ended:
        [row] = stored(engine, job_id)
        [order] = orders(engine, job_id)
        assert (row.state, row.epoch) == (state, order.epoch)
        assert row.body["status"] == state
    with read(engine) as c:
        total = c.execute(sa.select(sa.func.count()).select_from(callbacks_table)).scalar_one()
    assert total == len(ended)


def test_an_end_that_is_rolled_back_tells_nobody(engine):
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD, callback_url="https://hooks.example/")

    def fail_and_crash():
        with write(engine) as c:
            fail(c, run)
            raise RuntimeError("power")

    with pytest.raises(RuntimeError, match="power"):
        fail_and_crash()
    assert stored(engine, run.job.id) == []
    assert orders(engine, run.job.id) == []


def test_sent_signed_and_once(engine, courier, receiver):
    with write(engine) as c:
        run = run_at(c, Actor.TRANSCODE, callback_url=receiver.url, metadata={"ü": "😀"})
        job, _ = runs.succeed(c, run, files=[artifact(run)], fields={}, expires_at=2.0, now=1.0)
    [order] = orders(engine, job.id)
    # As the worker that gets the message does.
    tracing.enter(order.traceparent)
    courier.deliver(job.id, order.epoch)
    courier.deliver(job.id, order.epoch)  # a doubled message
    tracing.leave()
    [(headers, body)] = receiver.seen
    told, asked = trace.parse(headers["traceparent"]), trace.parse(job.traceparent)
    assert told is not None
    assert asked is not None
    assert told.trace_id == asked.trace_id
    assert told.span_id != asked.span_id
    assert headers["Sluice-Callback-Id"] == f"{job.id}:SUCCESS"
    assert headers["Content-Type"] == "application/json"
    fields = dict(part.split("=") for part in headers["Sluice-Signature"].split(","))
    expected = hmac.new(SECRET.encode(), f"{fields['t']}.".encode() + body, hashlib.sha256)
    assert fields["v1"] == expected.hexdigest()
    told = json.loads(body)
    assert told["status"] == "SUCCESS"
    assert told["metadata"] == {"ü": "😀"}
    assert [f["name"] for f in told["files"]] == ["film.mp4"]
    assert orders(engine, job.id) == []
    assert stored(engine, job.id)[0].outcome == "sent"


@pytest.mark.parametrize("answer", [500, 404, 301, 429])
def test_refused_is_tried_again_later_and_the_job_stays(engine, courier, receiver, clock, answer):
    elsewhere = f"http://127.0.0.1:{receiver.port}/elsewhere"
    receiver.answers = [(answer, {"Location": elsewhere}), (200, {})]
    job = failed_job(engine, receiver.url)
    deliver(courier, job.id)
    [order] = orders(engine, job.id)
    assert 0.8 * DELAYS[0] <= order.due_at - clock[0] <= 1.2 * DELAYS[0]
    assert len(receiver.seen) == 1  # no redirect was followed
    deliver(courier, job.id)
    assert len(receiver.seen) == 2
    assert {h["Sluice-Callback-Id"] for h, _ in receiver.seen} == {f"{job.id}:FAILED"}
    assert orders(engine, job.id) == []
    with read(engine) as c:
        assert jobs.get(c, job.id) == job


def test_retry_after_is_respected(engine, courier, receiver, clock):
    receiver.answers = [(503, {"Retry-After": "1000"})]
    job = failed_job(engine, receiver.url)
    deliver(courier, job.id)
    [order] = orders(engine, job.id)
    assert order.due_at == clock[0] + 1000


def test_in_the_end_a_dead_letter_which_can_be_sent_back(engine, courier, receiver, clock):
    receiver.answers = [(500, {})]
    job = failed_job(engine, receiver.url)
    started = clock[0] = stored(engine, job.id)[0].created_at
    while found := orders(engine, job.id):
        clock[0] = max(clock[0], found[0].due_at)
        deliver(courier, job.id)
    assert len(receiver.seen) == MAX_TRIES
    assert clock[0] <= started + GIVE_UP_AFTER
    with read(engine) as c:
        [letter] = dead_letters.list_page(c, dead_letters.Filter(), before_id=None, limit=10)
        assert jobs.get(c, job.id) == job
    assert letter.queue == "notify.default"
    assert letter.reason == "callback of FAILED: the receiver answered 500"
    receiver.answers = [(200, {})]
    with write(engine) as c:
        assert requeue.requeue(c, letter.id, now=clock[0])
    deliver(courier, job.id)
    assert stored(engine, job.id)[0].outcome == "sent"
    assert orders(engine, job.id) == []


def test_a_receiver_that_is_gone_is_not_asked_again(engine, courier, receiver):
    receiver.answers = [(410, {})]
    job = failed_job(engine, receiver.url)
    deliver(courier, job.id)
    assert orders(engine, job.id) == []
    assert stored(engine, job.id)[0].outcome == "gave_up"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0x7f.1"])
def test_no_way_to_private_addresses(engine, deps, receiver, host):
    job = failed_job(engine, f"http://{host}:{receiver.port}/")
    deliver(notify.Courier(deps, EgressGuard()), job.id)
    assert receiver.seen == []
    [row] = stored(engine, job.id)
    assert (row.outcome, row.error) == ("gave_up", "its address may not be connected to")


@pytest.mark.parametrize("kind", ["closed", "silent", "dripping", "garbage"])
def test_a_bad_receiver_costs_seconds(engine, deps, receiver, kind):
    guard = EgressGuard(allow=["127.0.0.0/8"])
    courier = notify.Courier(deps, guard, timeouts=(0.5, 0.5, 1.0))
    receiver.drip = kind == "dripping"
    url = receiver.url
    with socket.create_server(("127.0.0.1", 0)) as odd:
        if kind in ("silent", "closed", "garbage"):
            url = f"http://127.0.0.1:{odd.getsockname()[1]}/"
        if kind == "closed":
            odd.close()
        if kind == "garbage":
            threading.Thread(target=_say_garbage, args=(odd,), daemon=True).start()
        job = failed_job(engine, url)
        started = time.monotonic()
        deliver(courier, job.id)
        # One that drips has its last byte to send after more than a hundred.
        assert time.monotonic() - started < PATIENCE / 2
    [row] = stored(engine, job.id)
    assert row.error.startswith("no answer")
    assert len(orders(engine, job.id)) == 1


def _say_garbage(server):
    connection, _ = server.accept()
    with connection:
        connection.sendall(b"\0\1\2 this is no HTTP\r\n\r\n")


def test_a_job_that_ends_twice_tells_twice(engine, courier, receiver):
    job = failed_job(engine, receiver.url)
    with write(engine) as c:
        moves.retry(c, job.id, now=1.0)
        run = start_run(c, job.id)
        fail(c, run)
    for order in orders(engine, job.id):
        courier.deliver(job.id, order.epoch)
    bodies = [json.loads(body) for _, body in receiver.seen]
    assert [b["status"] for b in bodies] == ["FAILED", "FAILED"]
    assert orders(engine, job.id) == []


def test_a_retry_does_not_take_the_callback_back(engine):
    job = failed_job(engine, "https://hooks.example/")
    with write(engine) as c:
        moves.retry(c, job.id, now=1.0)
        start_run(c, job.id)
    assert len(orders(engine, job.id)) == 1


def test_the_whole_way(engine, receiver, start_scheduler):
    """From the end of a job to its receiver, by a real scheduler and a real Redis."""
    with write(engine) as c:
        run = run_at(c, Actor.DOWNLOAD, callback_url=receiver.url, now=time.time())
        fail(c, run, now=time.time())
    start_scheduler(SLUICE_EGRESS_ALLOW=f"127.0.0.1:{receiver.port}", SLUICE_CALLBACK_SECRET=SECRET)
    until(lambda: receiver.seen, why="nothing was sent")
    until(lambda: not orders(engine, run.job.id))
    assert [h["Sluice-Callback-Id"] for h, _ in receiver.seen] == [f"{run.job.id}:FAILED"]
