from sluice_core.domain.beats import BeatWatch

PATIENCE = 15.0


def looks(watch, beats, *, start=0.0, every=2.0):
    """Feed one reading after another; returns (time, lost) of the first loss."""
    for number, reading in enumerate(beats):
        now = start + number * every
        lost = watch.observe(reading, now)
        if lost:
            return now, lost
    return None


def test_a_beat_that_stands_still_is_lost_after_the_patience():
    found = looks(BeatWatch(patience=PATIENCE), [[("a", 7), ("b", n)] for n in range(20)])
    assert found == (16.0, ["a"])


def test_a_beat_that_moves_is_never_lost():
    assert looks(BeatWatch(patience=PATIENCE), [[("a", n // 2)] for n in range(100)]) is None


def test_time_without_looking_does_not_count():
    watch = BeatWatch(patience=PATIENCE)
    watch.observe([("a", 1)], 0.0)
    # This process was suspended for an hour: one gap adds `max_step` at most.
    assert watch.observe([("a", 1)], 3600.0) == []
    assert watch.observe([("a", 1)], 3602.0) == []


def test_a_failed_reading_starts_the_patience_anew():
    watch = BeatWatch(patience=PATIENCE)
    for now in range(0, 14, 2):
        assert watch.observe([("a", 1)], float(now)) == []
    watch.failed()
    for now in range(14, 28, 2):
        assert watch.observe([("a", 1)], float(now)) == []
    assert looks(watch, [[("a", 1)]] * 10, start=28.0) is not None


def test_a_lost_run_is_told_once_and_an_ended_one_forgotten():
    watch = BeatWatch(patience=4.0)
    assert looks(watch, [[("a", 1), ("b", 1)], [("a", 1)], [("a", 1)]]) == (4.0, ["a"])
    assert watch.observe([], 6.0) == []
