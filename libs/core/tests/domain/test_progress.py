from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sluice_core.domain.job import Progress
from sluice_core.domain.progress import ProgressGate

MIB = 1024 * 1024


def writes(readings: list[tuple[float, Progress]]) -> list[tuple[float, Progress]]:
    gate = ProgressGate()
    found = []
    for now, reading in readings:
        admitted = gate.admit(reading, now)
        if admitted is not None:
            found.append((now, admitted))
    return found


def fragments(count: int, seconds: float) -> list[tuple[float, Progress]]:
    return [
        (
            seconds * n / count,
            Progress(percent=100 * n / count, bytes=n * MIB, total_bytes=count * MIB),
        )
        for n in range(count + 1)
    ]


def test_eight_hundred_fragments_make_some_sixty_writes() -> None:
    for seconds in (1, 8, 40, 80, 110):
        found = writes(fragments(800, seconds))
        assert len(found) <= 60, seconds
        assert found[0][1].percent == 0


def test_what_is_shown_is_fresh_and_near() -> None:
    """Within 2 s always; within 5 % while the download takes longer than a few seconds."""
    for seconds in (10, 40, 110, 1000):
        readings = fragments(800, seconds)
        gate = ProgressGate()
        shown, shown_at = Progress(percent=0), 0.0
        for now, reading in readings:
            admitted = gate.admit(reading, now)
            if admitted is not None:
                shown, shown_at = admitted, now
            assert now - shown_at < 2.0 + seconds / 800
            assert reading.percent is not None
            assert shown.percent is not None
            assert reading.percent - shown.percent <= 5


def test_a_slow_download_is_written_by_time() -> None:
    found = writes([(n / 10, Progress(percent=n / 1000, bytes=n)) for n in range(601)])
    assert 29 <= len(found) <= 31


def test_the_same_reading_again_and_again() -> None:
    """Two writers a second at most would be a flood for no news; one per 2 s is a sign of life."""
    found = writes([(n / 100, Progress(percent=50.0)) for n in range(1000)])
    assert len(found) <= 5


def test_unknown_size_still_moves() -> None:
    found = writes([(n / 10, Progress(bytes=n * MIB, bytes_per_second=1.0)) for n in range(101)])
    assert len(found) == 6
    assert [p.bytes for _, p in found] == [n * 20 * MIB for n in range(6)]
    assert all(p.percent is None for _, p in found)


def test_a_size_that_becomes_known_is_told() -> None:
    found = writes([(0.0, Progress(bytes=1)), (0.5, Progress(percent=1.0, bytes=2))])
    assert len(found) == 2


@given(
    st.lists(
        st.tuples(
            st.floats(0, 3, allow_nan=False),
            st.one_of(st.none(), st.floats(0, 100, allow_nan=False)),
        ),
        max_size=60,
    )
)
def test_percent_never_goes_back(steps: list[tuple[float, float | None]]) -> None:
    now = 0.0
    readings = []
    for wait, percent in steps:
        now += wait
        readings.append((now, Progress(percent=percent)))
    found = [p.percent for _, p in writes(readings)]
    known = [p for p in found if p is not None]
    assert known == sorted(known)
    # Once known, it is never unknown again.
    assert None not in found[len(found) - len(known) :]


@given(st.lists(st.floats(0, 0.3, allow_nan=False), min_size=2, max_size=60))
def test_writes_keep_their_distance(waits: list[float]) -> None:
    now = 0.0
    readings = []
    for n, wait in enumerate(waits):
        now += wait
        readings.append((now, Progress(percent=min(100.0, 7.0 * n))))
    times = [at for at, _ in writes(readings)]
    assert all(later - earlier >= 0.2 for earlier, later in pairwise(times))
