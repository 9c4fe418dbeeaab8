"""Where an encode may be cut: the plan alone, as a table."""

from __future__ import annotations

from array import array
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from sluice_core.adapters.layout import Layout
from sluice_core.domain.presets import load_presets
from sluice_transcoder.containers import CONTAINERS
from sluice_transcoder.cut import (
    MAX_SEGMENTS,
    PacketReader,
    Pictures,
    may_cut,
    packets_command,
    plan_segments,
)
from sluice_transcoder.plan import make_plan
from sluice_transcoder.probe import Probe, Stream, StreamKind

PRESETS = load_presets()


def pictures(seconds: float, *, fps: float = 25.0, every: float = 2.0) -> Pictures:
    times = array("d", (n / fps for n in range(int(seconds * fps))))
    keys = array("d", (t for n, t in enumerate(times) if n % round(every * fps) == 0))
    return Pictures(times, keys)


@pytest.mark.parametrize(
    ("seconds", "every", "length", "firsts"),
    [
        (20, 2, 4, [0, 4, 8, 12, 16]),
        # The first key frame after the length, not the one before it.
        (20, 3, 4, [0, 6, 12]),
        # What is left is less than half a segment: it stays with the one before.
        (21, 2, 5, [0, 6, 12, 18]),
        (20, 2, 5, [0, 6, 12]),
        # One key frame: no cut.
        (20, 20, 4, [0]),
        (20, 15, 4, [0, 15]),
        (3, 1, 4, [0]),
        # Too long a way from the key frame before.
        (100, 31, 20, [0]),
        (100, 29, 20, [0, 29, 58, 87]),
    ],
)
def test_cuts_are_at_key_frames(
    seconds: float, every: float, length: float, firsts: list[float]
) -> None:
    found = pictures(seconds, every=every)
    segments = plan_segments(found, length=length)
    assert [segment.first for segment in segments] == firsts
    assert sum(segment.frames for segment in segments) == len(found.times)
    assert (segments[0].start, segments[-1].end) == (None, None)
    for before, after in pairwise(segments):
        assert before.end == after.start
        assert before.last < (after.start or 0) < after.first


def test_pictures_of_an_open_group_belong_to_the_moment_in_which_they_are_shown() -> None:
    reader = PacketReader(1.0)
    # Decoding order: pictures that follow a key frame are shown in front of it.
    for time, flags in (
        (1.0, "K__"),
        (1.2, "___"),
        (1.1, "___"),
        (1.6, "K__"),
        (1.4, "___"),
        (1.9, "___"),
    ):
        reader.feed(f"packet,{time},{flags}")
    reader.feed("stream,CRC32:0a1b2c3d")
    found = reader.pictures()
    assert found is not None
    assert list(found.times) == pytest.approx([0.0, 0.1, 0.2, 0.4, 0.6, 0.9])
    first, second = plan_segments(found, length=0.5)
    assert (first.frames, second.frames, found.headers) == (4, 2, "CRC32:0a1b2c3d")


@pytest.mark.parametrize(
    "lines",
    [
        ["packet,N/A,K__"],
        ["packet,0.0,K__", "packet,0.0,___"],
        ["packet,0.0"],
        [],
    ],
)
def test_times_that_tell_nothing_are_not_trusted(lines: list[str]) -> None:
    reader = PacketReader(0.0)
    for line in lines:
        reader.feed(line)
    assert reader.pictures() is None


def test_what_an_edit_list_hides_is_no_picture() -> None:
    reader = PacketReader(0.0)
    for line in ("packet,-0.08,KD_", "packet,-0.04,_D_", "packet,0.0,___", "packet,0.04,___"):
        reader.feed(line)
    found = reader.pictures()
    assert found is not None
    assert (list(found.times), list(found.keys)) == ([0.0, 0.04], [])


def test_segments_and_pictures_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pictures(4000, fps=2, every=1)
    assert len(plan_segments(found, length=1)) <= MAX_SEGMENTS
    monkeypatch.setattr("sluice_transcoder.cut.MAX_PICTURES", 3)
    reader = PacketReader(0.0)
    for number in range(5):
        reader.feed(f"packet,{number},K__")
    assert reader.pictures() is None


def test_only_the_planned_stream_is_listed(tmp_path: Path) -> None:
    words = packets_command(Path("/ffprobe"), tmp_path / "a.mp4", stream=3)
    assert words[words.index("-select_streams") + 1] == "3"


SOURCE = Probe(
    size=1,
    demuxer="mov,mp4,m4a,3gp,3g2,mj2",
    container=CONTAINERS["mp4"],
    layout=Layout(),
    duration=130.0,
    streams=(
        Stream(index=0, kind=StreamKind.VIDEO, codec="hevc", width=1920, height=1080),
        Stream(index=1, kind=StreamKind.AUDIO, codec="aac", channels=2),
    ),
)


def with_codec(codec: str) -> tuple[Stream, ...]:
    return (replace(SOURCE.streams[0], codec=codec), SOURCE.streams[1])


@pytest.mark.parametrize(
    ("preset", "source", "length", "cut"),
    [
        ("720p", SOURCE, 60, True),
        ("720p", SOURCE, 65, False),
        ("720p", SOURCE, 0, False),
        ("audio-mp3", SOURCE, 60, False),
        ("original", SOURCE, 60, False),
        ("720p", replace(SOURCE, duration=None), 60, False),
        ("720p", replace(SOURCE, demuxer="matroska,webm"), 60, True),
        ("720p", replace(SOURCE, demuxer="flv"), 60, False),
        # Guesses its duration, and may start its times anew.
        ("720p", replace(SOURCE, demuxer="mpegts"), 60, False),
        ("720p", replace(SOURCE, streams=with_codec("vp9")), 60, True),
        ("720p", replace(SOURCE, streams=with_codec("vp8")), 60, False),
    ],
)
def test_what_is_cut_at_all(preset: str, source: Probe, length: float, *, cut: bool) -> None:
    plan = make_plan([source], PRESETS[preset])
    assert may_cut(plan, [source], length=length) is cut
