"""Streams over the real server: what workers write is seen, with Redis or without it."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import redis as redis_library
import sqlalchemy as sa

from sluice_core.adapters import events, redis
from sluice_core.adapters.db import claims, moves, runs
from sluice_core.adapters.db.engine import write
from sluice_core.domain.job import Job, Progress
from sluice_core.domain.lanes import Actor
from sluice_core.domain.states import Status
from sluice_testing import factories
from sluice_testing.redis import RedisServer
from sluice_testing.waiting import PATIENCE, fastest, until


@dataclass
class Listener:
    """Reads one stream in a thread."""

    events: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def read(self, response: httpx.Response) -> None:
        name = event_id = ""
        for line in response.iter_lines():
            self.raw.append(line)
            key, _, value = line.partition(": ")
            if key == "id":
                event_id = value
            elif key == "event":
                name = value
            elif key == "data":
                self.events.append((name, event_id, json.loads(value)))

    def wait_for(self, condition: Callable[[list[tuple[str, str, dict[str, Any]]]], Any]) -> Any:
        try:
            return until(lambda: condition(list(self.events)), every=0.02)
        except TimeoutError:
            raise AssertionError(f"not seen: {self.events}") from None

    def wait_for_status(self, job_id: str, status: Status) -> tuple[str, str, dict[str, Any]]:
        def is_it(seen: list[tuple[str, str, dict[str, Any]]]) -> Any:
            return [
                e for e in seen if e[2].get("id") == job_id and e[2].get("status") == status.value
            ]

        found: tuple[str, str, dict[str, Any]] = self.wait_for(is_it)[0]
        return found


@contextmanager
def listening(url: str, **headers: str) -> Iterator[Listener]:
    listener = Listener()
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    with (
        httpx.Client(timeout=httpx.Timeout(PATIENCE)) as client,
        client.stream("GET", url, headers=sent) as response,
    ):
        listener.status = response.status_code
        listener.headers = dict(response.headers)

        def run() -> None:
            try:
                listener.read(response)
            except (httpx.HTTPError, httpx.StreamError, OSError, ValueError):
                pass  # closed by the test
            finally:
                listener.ended.set()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        if listener.status == 200:
            listener.wait_for(lambda _: listener.raw)
        yield listener
        response.extensions["network_stream"].get_extra_info("socket").shutdown(2)
        thread.join(PATIENCE)


@pytest.fixture
def signals(redis_url: str) -> Iterator[redis_library.Redis]:
    client = redis.connect(redis_url)
    yield client
    client.close()


def percent_of(event: tuple[str, str, dict[str, Any]]) -> float | None:
    percent: float | None = event[2].get("progress", {}).get("percent")
    return percent


def start(engine: sa.Engine) -> claims.Claim:
    with write(engine) as connection:
        return factories.run_at(connection, Actor.DOWNLOAD, now=time.time())


def progress(engine: sa.Engine, run: claims.Claim, percent: float) -> Job:
    with write(engine) as connection:
        figures = Progress(percent, int(percent), 100, 1.0, 2.0)
        return runs.write_progress(connection, run.job, figures, now=time.time())


def finish(engine: sa.Engine, run: claims.Claim) -> Job:
    with write(engine) as connection:
        return factories.finish(connection, run, now=time.time())


def _is_at(percent: float) -> Callable[[list[tuple[str, str, dict[str, Any]]]], Any]:
    return lambda seen: [e for e in seen if percent_of(e) == percent]


def test_a_stream_begins_as_proxies_and_browsers_want_it(serve: Any) -> None:
    with listening(f"{serve().url}/v1/events") as listener:
        listener.wait_for(lambda seen: seen)
        assert listener.status == 200
        assert listener.headers["content-type"].startswith("text/event-stream")
        assert "no-cache" in listener.headers["cache-control"]
        assert listener.headers["x-accel-buffering"] == "no"
        assert listener.raw[0] == "retry: 3000"
        assert listener.events[0][0] == "snapshot"


def test_a_submitted_link_is_seen_at_once(serve: Any) -> None:
    served = serve()
    with listening(f"{served.url}/v1/events") as listener, served.client() as client:
        listener.wait_for(lambda seen: seen)
        numbers = itertools.count(1)

        def seconds() -> float:
            begun = time.monotonic()
            link = f"https://media.example/{next(numbers)}"
            job = client.post("/v1/jobs", json={"url": link}).json()
            _, event_id, seen = listener.wait_for_status(job["id"], Status.PENDING)
            took = time.monotonic() - begun
            assert event_id
            assert seen.keys() == job.keys()
            return took

        assert fastest(seconds, below=2) < 2


def test_a_job_stream_shows_progress_and_ends(
    serve: Any, served_engine: sa.Engine, signals: redis_library.Redis
) -> None:
    served = serve()
    run = start(served_engine)
    with listening(f"{served.url}/v1/jobs/{run.job.id}/events") as listener:
        listener.wait_for_status(run.job.id, Status.DOWNLOADING)
        for percent in (10.0, 20.0, 30.0):
            job = progress(served_engine, run, percent)
            events.emit(signals, events.event_of(job, "progress"))
            listener.wait_for(_is_at(percent))
        events.emit(signals, events.event_of(finish(served_engine, run), "job"))
        assert listener.ended.wait(PATIENCE)
    shown = [percent_of(e) or 0.0 for e in listener.events]
    assert shown == sorted(shown)
    assert listener.events[-1][2]["status"] == "SUCCESS"
    assert {e[0] for e in listener.events} == {"snapshot", "job", "progress"}


def test_an_older_signal_that_comes_late_takes_nothing_back(
    serve: Any, served_engine: sa.Engine, signals: redis_library.Redis
) -> None:
    served = serve()
    run = start(served_engine)
    with listening(f"{served.url}/v1/jobs/{run.job.id}/events") as listener:
        old = events.event_of(progress(served_engine, run, 10.0), "progress")
        for percent in (40.0, 50.0):
            job = progress(served_engine, run, percent)
            events.emit(signals, events.event_of(job, "progress"))
            listener.wait_for(_is_at(percent))
        events.emit(signals, old)
        events.emit(signals, events.event_of(progress(served_engine, run, 60.0), "progress"))
        listener.wait_for(lambda seen: [e for e in seen if percent_of(e) == 60.0])
    shown = [percent_of(e) or 0.0 for e in listener.events]
    assert shown == sorted(shown)


def test_nothing_is_missed_without_any_signal(serve: Any, served_engine: sa.Engine) -> None:
    served = serve()
    some = [start(served_engine) for _ in range(5)]
    ids = ",".join(run.job.id for run in some)
    with listening(f"{served.url}/v1/events?ids={ids}") as listener:
        for run in some:
            listener.wait_for_status(run.job.id, Status.DOWNLOADING)

        def seconds() -> float:
            run = some.pop()
            finish(served_engine, run)
            begun = time.monotonic()
            listener.wait_for_status(run.job.id, Status.SUCCESS)
            return time.monotonic() - begun

        assert fastest(seconds, below=6, tries=4) < 6
        run = some[0]
        with write(served_engine) as connection:
            moves.delete(connection, run.job.id, now=time.time())
        listener.wait_for(lambda seen: [e for e in seen if e[0] == "deleted"])


def test_streams_work_while_redis_is_dead(
    serve: Any, served_engine: sa.Engine, own_redis: RedisServer
) -> None:
    served = serve(SLUICE_REDIS_URL=own_redis.url)
    run = start(served_engine)
    with listening(f"{served.url}/v1/events") as listener:
        listener.wait_for_status(run.job.id, Status.DOWNLOADING)
        own_redis.kill9()
        finish(served_engine, run)
        listener.wait_for_status(run.job.id, Status.SUCCESS)
        own_redis.restart_empty()
        other = start(served_engine)
        listener.wait_for_status(other.job.id, Status.DOWNLOADING)


def test_a_wrong_clock_hides_no_end(serve: Any, served_engine: sa.Engine) -> None:
    """A worker whose clock is an hour behind stamps its writes far in the past."""
    served = serve()
    run = start(served_engine)
    with listening(f"{served.url}/v1/events") as listener:
        listener.wait_for_status(run.job.id, Status.DOWNLOADING)
        # The hub must have told it once, so that it knows the job as one that runs.
        progress(served_engine, run, 5.0)
        listener.wait_for(lambda seen: [e for e in seen if percent_of(e) == 5.0])
        with write(served_engine) as connection:
            factories.finish(connection, run, now=time.time() - 3600)
        listener.wait_for_status(run.job.id, Status.SUCCESS)


def test_a_client_that_comes_back_is_told_what_it_missed(
    serve: Any, served_engine: sa.Engine
) -> None:
    served = serve()
    first, second = start(served_engine), start(served_engine)
    with listening(f"{served.url}/v1/events") as listener:
        _, last, _ = listener.wait_for_status(second.job.id, Status.DOWNLOADING)
    finish(served_engine, first)
    with listening(f"{served.url}/v1/events", Last_Event_ID=last) as listener:
        listener.wait_for_status(first.job.id, Status.SUCCESS)
        assert "snapshot" not in {e[0] for e in listener.events}


@pytest.mark.parametrize("last", ["nonsense", "0-1", "99999999999999-1", "1\u00b2-1"])
def test_an_unknown_or_old_id_gets_a_snapshot_first(
    serve: Any, served_engine: sa.Engine, last: str
) -> None:
    served = serve()
    run = start(served_engine)
    finish(served_engine, run)
    headers = {b"Last-Event-ID": last.encode("latin-1")}
    with httpx.stream("GET", f"{served.url}/v1/events", headers=headers, timeout=60) as response:
        text = ""
        for chunk in response.iter_text():
            text += chunk
            if '"SUCCESS"' in text:
                break
    assert text.index("event: snapshot") < text.index("event: job")
    assert run.job.id in text


def asked(url: str, last: str) -> httpx.Response:
    """Of whoever comes back, and saw this last."""
    return httpx.get(url, headers={"Last-Event-ID": last}, timeout=PATIENCE)


def test_an_ended_job_ends_the_coming_back(serve: Any, served_engine: sa.Engine) -> None:
    served = serve()
    run = start(served_engine)
    finish(served_engine, run)
    url = f"{served.url}/v1/jobs/{run.job.id}/events"
    with listening(url) as listener:
        assert listener.ended.wait(PATIENCE)
    assert listener.events[-1][2]["status"] == "SUCCESS"

    def ended_for_good() -> bool:
        later = f"{int((time.time() + 4.9) * 1000)}-1"
        status = asked(url, later).status_code
        assert status in (200, 204)
        return status == 204

    until(ended_for_good)


def test_who_was_told_of_the_end_is_not_told_again(serve: Any, served_engine: sa.Engine) -> None:
    served = serve()
    run = start(served_engine)
    url = f"{served.url}/v1/jobs/{run.job.id}/events"
    with listening(url) as listener:
        listener.wait_for_status(run.job.id, Status.DOWNLOADING)
        with write(served_engine) as connection:
            factories.finish(connection, run, now=time.time())
        assert listener.ended.wait(PATIENCE)
    name, last, job = listener.events[-1]
    assert (name, job["status"]) == ("job", "SUCCESS")
    assert asked(url, last).status_code == 204
    # The end as it is told to who comes later says the same.
    lines = httpx.get(url, timeout=PATIENCE).text.splitlines()
    told = [line for line in lines if line.startswith("id: ")]
    assert asked(url, told[-1][4:]).status_code == 204


def test_the_end_after_a_retry_is_another_one(serve: Any, served_engine: sa.Engine) -> None:
    served = serve()
    run = start(served_engine)
    url = f"{served.url}/v1/jobs/{run.job.id}/events"
    with write(served_engine) as connection:
        moves.cancel(connection, run.job.id, now=time.time())
    with listening(url) as listener:
        assert listener.ended.wait(PATIENCE)
    last = listener.events[-1][1]
    with write(served_engine) as connection:
        moves.retry(connection, run.job.id, now=time.time())
        moves.cancel(connection, run.job.id, now=time.time())
    answer = asked(url, last)
    assert answer.status_code == 200
    assert '"CANCELED"' in answer.text


def test_a_parent_moves_with_its_children(serve: Any, served_engine: sa.Engine) -> None:
    served = serve()
    with write(served_engine) as connection:
        parent, children = factories.make_collection(connection, 2, now=time.time())
    with (
        listening(f"{served.url}/v1/jobs/{parent.id}/events") as one,
        listening(f"{served.url}/v1/events") as every,
    ):
        # Once from the start, once compared: from now on nothing but a child's move tells it anew.
        every.wait_for(lambda seen: len([e for e in seen if e[2].get("id") == parent.id]) > 1)
        with write(served_engine) as connection:
            moves.cancel(connection, children[0].id, now=time.time())
        one.wait_for(lambda seen: [e for e in seen if _canceled(e) == 1])


def _canceled(event: tuple[str, str, dict[str, Any]]) -> int | None:
    """Children that were canceled, as told by one event."""
    count: int | None = event[2].get("children", {}).get("canceled")
    return count


def test_clients_that_left_are_freed(serve: Any) -> None:
    served = serve()
    with served.client() as client:
        with listening(f"{served.url}/v1/events") as listener:
            listener.wait_for(lambda seen: seen)
            assert client.get("/v1/stats").json()["sse_clients"] == 1
        numbers = itertools.count()

        def are_freed() -> bool:
            # A lost client shows at the next thing that is sent to it.
            client.post("/v1/jobs", json={"url": f"https://media.example/{next(numbers)}"})
            return not client.get("/v1/stats").json()["sse_clients"]

        until(are_freed, every=0.2)


def test_streams_of_two_processes_tell_the_same_and_each_resumes_the_others(
    serve: Any, served_engine: sa.Engine, signals: redis_library.Redis
) -> None:
    one, two = serve(), serve()
    run = start(served_engine)
    with (
        listening(f"{one.url}/v1/events") as here,
        listening(f"{two.url}/v1/events") as there,
    ):
        for listener in (here, there):
            listener.wait_for_status(run.job.id, Status.DOWNLOADING)
        job = progress(served_engine, run, 40.0)
        events.emit(signals, events.event_of(job, "progress"))
        for listener in (here, there):
            listener.wait_for(_is_at(40.0))
        other = start(served_engine)
        _, last, _ = here.wait_for_status(other.job.id, Status.DOWNLOADING)
        there.wait_for_status(other.job.id, Status.DOWNLOADING)
    # While nobody listens, and over the process that the client never spoke to.
    finish(served_engine, run)
    with listening(f"{two.url}/v1/events", Last_Event_ID=last) as listener:
        listener.wait_for_status(run.job.id, Status.SUCCESS)
        assert "snapshot" not in {e[0] for e in listener.events}


def test_who_leaves_within_the_start_is_told_the_rest_when_it_comes_back(
    serve: Any, served_engine: sa.Engine
) -> None:
    served = serve()
    runs_ = [start(served_engine) for _ in range(3)]
    with listening(f"{served.url}/v1/events") as listener:
        listener.wait_for(lambda seen: len([e for e in seen if e[0] == "job"]) >= 3)
        _, last, _ = listener.wait_for_status(runs_[-1].job.id, Status.DOWNLOADING)
    # So long ago that what a client missed since is not told a second time for safety's sake.
    known = str(int(last.partition("-")[0]) - 60_000)
    for run in runs_:
        finish(served_engine, run)
    with listening(f"{served.url}/v1/events", Last_Event_ID=f"{known}-1") as listener:
        listener.wait_for(lambda seen: len([e for e in seen if e[0] == "job"]) >= 3)
        ids = [e[1].partition("-")[0] for e in listener.events if e[0] == "job"][:3]
    # Whoever saw the first alone knows no more than before, and comes back with that.
    assert ids[:2] == [known, known]
    assert int(ids[2]) > int(known)
