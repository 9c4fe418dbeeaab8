from __future__ import annotations

from sluice_api.events.buffer import Buffer
from sluice_api.events.messages import Message, Watch


def message(job_id: str, version: int, kind: str = "progress") -> Message:
    return Message(kind, job_id, None, version, is_last=False, wire=f"{kind}{version}".encode())


def wires(buffer: Buffer, limit: int = 100) -> list[bytes]:
    return [m.wire for m in buffer.take(limit)]


def test_the_latest_of_each_job_is_kept() -> None:
    buffer = Buffer()
    for version in range(1, 1000):
        buffer.put(message("a", version))
    buffer.put(message("b", 1, "job"))
    assert wires(buffer) == [b"progress999", b"job1"]
    assert wires(buffer) == []


def test_a_state_is_not_lost_to_the_progress_after_it() -> None:
    buffer = Buffer()
    buffer.put(message("a", 1, "job"))
    buffer.put(message("a", 2))
    buffer.put(message("a", 3))
    assert wires(buffer) == [b"job1", b"progress3"]
    buffer.put(message("a", 4))
    buffer.put(message("a", 5, "job"))
    assert wires(buffer) == [b"job5"]


def test_what_comes_late_takes_nothing_back() -> None:
    buffer = Buffer()
    buffer.put(message("a", 5))
    buffer.put(message("a", 4))
    assert wires(buffer) == [b"progress5"]


def test_a_newer_event_does_not_overtake_what_its_id_covers() -> None:
    buffer = Buffer()
    buffer.put(message("a", 1))
    buffer.put(message("b", 1))
    buffer.put(message("a", 2))
    assert wires(buffer) == [b"progress1", b"progress2"]


def test_it_is_bounded_and_says_so() -> None:
    buffer = Buffer(max_jobs=3)
    for n in range(3):
        buffer.put(message(str(n), 1))
    assert not buffer.overflowed
    buffer.put(message("0", 2))
    assert not buffer.overflowed
    buffer.put(message("3", 1))
    assert buffer.overflowed
    assert len(buffer) == 3


def test_a_watch_wants_its_own() -> None:
    assert Watch().wants("a", None)
    assert not Watch(ids=frozenset("b")).wants("a", None)
    assert not Watch(only_key="k").wants("a", "other")
    assert Watch(ids=frozenset("a"), only_key="k").wants("a", "k")
