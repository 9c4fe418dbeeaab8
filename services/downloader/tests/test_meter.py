import pytest

from sluice_downloader.meter import Meter


def report(size, total=None, *, estimated=False, speed=None):
    return {"bytes": size, "total": total, "estimated": estimated, "speed": speed}


def test_two_tracks_are_one_figure():
    meter = Meter([100, 100])
    meter.begin(0)
    assert meter.read(report(50, 100, speed=10.0)).percent == 25.0
    meter.finished(100)
    meter.begin(1)
    progress = meter.read(report(50, 100, speed=10.0))
    assert (progress.percent, progress.bytes, progress.total_bytes) == (75.0, 150, 200)
    assert progress.eta_seconds == 5.0


def test_an_unknown_size_is_said_and_bytes_still_move():
    meter = Meter([None])
    progress = meter.read(report(50, None, speed=5.0))
    assert (progress.percent, progress.total_bytes, progress.eta_seconds) == (None, None, None)
    assert (progress.bytes, progress.bytes_per_second) == (50, 5.0)


def test_an_estimate_that_was_too_small_never_shows_more_than_all():
    meter = Meter([100])
    assert meter.read(report(150, None)).percent == 100.0


def test_what_came_from_an_earlier_run_counts():
    meter = Meter([100])
    meter.resumed(60)
    assert meter.position == (0, 60, 0)
    assert meter.read(report(70, 100)).percent == 70.0


@pytest.mark.parametrize(("estimated", "told"), [(True, False), (False, True)])
def test_only_an_exact_size_is_a_promise(estimated, told):
    meter = Meter([None])
    assert not meter.size_was_told
    meter.read(report(5, 10, estimated=estimated))
    assert meter.size_was_told is told


def test_bytes_that_come_again_are_counted():
    meter = Meter([100, 100])
    meter.resumed(60)
    meter.resumed(50)  # the child could use no more of them
    meter.read(report(80, 100))
    meter.read(report(5, 100))  # the site began anew
    meter.finished(100)
    meter.begin(1)
    meter.read(report(5, 100))
    assert meter.refetched == 10 + 75


def test_what_arrived_is_counted_apart_from_what_was_there():
    meter = Meter([100, 100])
    meter.resumed(40)
    meter.read({"bytes": 70, "total": 100})
    meter.read({"bytes": 100, "total": 100})
    meter.finished(100)
    assert (meter.fetched, meter.refetched) == (60, 0)
    meter.begin(1)
    meter.read({"bytes": 50, "total": 100})
    # The server knows no ranges: it begins anew.
    meter.resumed(0)
    meter.read({"bytes": 100, "total": 100})
    assert (meter.fetched, meter.refetched) == (60 + 50 + 100, 50)
