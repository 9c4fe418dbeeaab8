"""When schedules fire, above all when clocks are changed."""

from __future__ import annotations

from datetime import datetime

import pytest

from sluice_core.adapters.cron import ScheduleError, in_zone, next_after, upcoming
from sluice_core.domain.schedule import Trigger, next_of_interval

BERLIN = "Europe/Berlin"


def unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        # An ordinary day.
        ("30 2 * * *", "UTC", "2026-03-29T00:00Z", ["2026-03-29T02:30Z", "2026-03-30T02:30Z"]),
        # Berlin leaves out 02:00 to 03:00: right after the gap, once, and on time the day after.
        (
            "30 2 * * *",
            BERLIN,
            "2026-03-28T12:00Z",
            ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"],
        ),
        # Two times within the gap become one firing.
        (
            "15,45 2 * * *",
            BERLIN,
            "2026-03-28T12:00Z",
            ["2026-03-29T03:00+02:00", "2026-03-30T02:15+02:00"],
        ),
        # Berlin has 02:00 to 03:00 twice: the first one alone.
        (
            "30 2 * * *",
            BERLIN,
            "2026-10-24T12:00Z",
            ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"],
        ),
        # Asked within the second one, whose times have passed on the clock's face.
        (
            "30 2 * * *",
            BERLIN,
            "2026-10-25T02:10+01:00",
            ["2026-10-26T02:30+01:00", "2026-10-27T02:30+01:00"],
        ),
        # Every so many minutes goes on through both.
        (
            "*/30 * * * *",
            BERLIN,
            "2026-03-29T01:29+01:00",
            ["2026-03-29T01:30+01:00", "2026-03-29T03:00+02:00", "2026-03-29T03:30+02:00"],
        ),
        (
            "*/30 * * * *",
            BERLIN,
            "2026-10-25T02:00+02:00",
            [
                "2026-10-25T02:30+02:00",
                "2026-10-25T02:00+01:00",
                "2026-10-25T02:30+01:00",
                "2026-10-25T03:00+01:00",
            ],
        ),
        # Lord Howe changes by half an hour.
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T12:00+10:30",
            ["2026-10-04T02:30+11:00", "2026-10-05T02:15+11:00"],
        ),
        # In Apia a whole day was left out: right after it.
        ("0 12 * * *", "Pacific/Apia", "2011-12-29T12:00-10:00", ["2011-12-31T00:00+14:00"]),
        # Day of month or day of week, as cron has it.
        ("0 0 13 * 5", "UTC", "2026-02-12T00:00Z", ["2026-02-13T00:00Z", "2026-02-20T00:00Z"]),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00Z", ["2028-02-29T00:00Z"]),
    ],
)
def test_cron(expression: str, zone: str, after: str, expected: list[str]) -> None:
    found = upcoming(Trigger(cron=expression, timezone=zone), unix(after), len(expected))
    assert [in_zone(moment, zone) for moment in found] == [
        in_zone(unix(text), zone) for text in expected
    ]


@pytest.mark.parametrize(
    ("every", "anchor", "after", "expected"),
    [
        # From the anchor, which may lie ahead.
        (3600, "2026-01-01T00:10Z", "2026-01-01T05:00Z", "2026-01-01T05:10Z"),
        (3600, "2026-01-01T00:10Z", "2026-01-01T05:10Z", "2026-01-01T06:10Z"),
        (3600, "2026-06-01T00:10Z", "2026-01-01T05:00Z", "2026-01-01T05:10Z"),
        # A day of 23 hours is left behind: an interval is real seconds.
        (86_400, "2026-03-28T12:00+01:00", "2026-03-28T12:00+01:00", "2026-03-29T13:00+02:00"),
    ],
)
def test_interval(every: float, anchor: str, after: str, expected: str) -> None:
    trigger = Trigger(every=every, anchor=unix(anchor))
    assert next_after(trigger, unix(after)) == unix(expected)


@pytest.mark.parametrize("every", [1.0, 0.1 * 30, 7.3, 86_400 / 7])
def test_an_interval_always_moves_on(every: float) -> None:
    at = 1_800_000_000.123
    for _ in range(1000):
        then = next_of_interval(every, 0.3, at)
        assert at < then <= at + every * 1.001
        at = then


@pytest.mark.parametrize(
    ("expression", "zone", "words"),
    [
        ("* * * *", "UTC", "five fields"),
        ("* * * * * *", "UTC", "five fields"),
        ("", "UTC", "five fields"),
        ("61 * * * *", "UTC", "bad minute"),
        ("* * 30 2 *", "UTC", "day-of-month"),
        ("* * * * *", "Mars/Olympus", "time zone"),
        ("* * * * *", "America", "time zone"),
        ("* * * * *", "../../etc/passwd", "time zone"),
        ("* * * * *", "", "time zone"),
        ("* * * * *", "a\0b", "time zone"),
    ],
)
def test_wrong(expression: str, zone: str, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        next_after(Trigger(cron=expression, timezone=zone), 0.0)


def test_never() -> None:
    assert next_after(Trigger(cron="0 0 1 1 *"), unix("9997-06-01T00:00Z")) is not None
    assert next_after(Trigger(every=86_400), unix("9997-12-31T23:00Z")) is None


@pytest.mark.parametrize("fields", [{}, {"cron": "* * * * *", "every": 60.0}, {"every": 0.5}])
def test_a_trigger_is_one_thing(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="interval"):
        Trigger(**fields)  # type: ignore[arg-type]
