from __future__ import annotations

from dataclasses import replace

import pytest

from sluice_core.adapters.layout import Layout
from sluice_core.domain.errors import SluiceError
from sluice_transcoder.containers import CONTAINERS
from sluice_transcoder.plan import Action, AudioPlan, Plan, VideoPlan
from sluice_transcoder.probe import Probe, Stream, StreamKind
from sluice_transcoder.verify import check_result, check_source, check_tail, needs_reading

H264 = Stream(index=0, kind=StreamKind.VIDEO, codec="h264")
AAC = Stream(index=1, kind=StreamKind.AUDIO, codec="aac")
GOOD = Probe(
    size=1000,
    demuxer="mov,mp4",
    container=CONTAINERS["mp4"],
    layout=Layout(tells_length=True),
    streams=(H264, AAC),
    duration=100.0,
)
PLAN = Plan(
    action=Action.REMUX,
    container=CONTAINERS["mp4"],
    video=VideoPlan(source=0, stream=0, codec="h264"),
    audio=(AudioPlan(source=0, stream=1, codec="aac"),),
    duration=100.0,
    kind="video",
)


@pytest.mark.parametrize("duration", [99.5, 100.0, 101.0, 105.0])
def test_what_was_planned_is_right(duration: float) -> None:
    check_result(replace(GOOD, duration=duration), PLAN, written=100.0)


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (replace(GOOD, duration=98.0), "incomplete"),
        (replace(GOOD, duration=None), "incomplete"),
        (replace(GOOD, duration=120.0), "transcode_failed"),
        (replace(GOOD, size=0), "transcode_failed"),
        (replace(GOOD, streams=(H264,)), "transcode_failed"),
        (replace(GOOD, streams=(AAC,)), "transcode_failed"),
        (replace(GOOD, streams=(replace(H264, codec="vp9"), AAC)), "transcode_failed"),
        (replace(GOOD, layout=Layout(complete=False)), "transcode_failed"),
    ],
)
def test_another_result_is_refused(result: Probe, code: str) -> None:
    with pytest.raises(SluiceError) as caught:
        check_result(result, PLAN, written=100.0)
    assert caught.value.code == code


def test_short_media_may_differ_by_a_frame_or_two() -> None:
    short = replace(PLAN, duration=1.0)
    check_result(replace(GOOD, duration=0.6), short)
    with pytest.raises(SluiceError):
        check_result(replace(GOOD, duration=0.4), short)


def test_where_the_sources_guess_what_was_written_counts() -> None:
    guessed = replace(PLAN, duration=None)
    check_result(replace(GOOD, duration=50.0), guessed, written=50.0)
    with pytest.raises(SluiceError) as caught:
        check_result(replace(GOOD, duration=20.0), guessed, written=50.0)
    assert caught.value.code == "incomplete"


def test_a_kept_file_may_hold_more() -> None:
    cover = Stream(index=2, kind=StreamKind.SUBTITLE, codec="mov_text")
    kept = replace(GOOD, streams=(H264, AAC, AAC, cover))
    check_result(kept, replace(PLAN, action=Action.KEEP))


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (replace(GOOD, layout=Layout(complete=False)), "incomplete"),
        (replace(GOOD, streams=()), "bad_media"),
        (replace(GOOD, streams=(replace(H264, attached_pic=True),)), "bad_media"),
    ],
)
def test_a_bad_source_is_refused(source: Probe, code: str) -> None:
    with pytest.raises(SluiceError) as caught:
        check_source(source)
    assert caught.value.code == code
    check_source(GOOD)


def test_only_what_tells_nothing_is_read_to_its_end() -> None:
    silent = replace(GOOD, layout=Layout())
    assert needs_reading(silent)
    assert not needs_reading(GOOD)
    assert not needs_reading(replace(silent, duration=None))
    assert not needs_reading(replace(silent, demuxer="mp3"))


def test_the_last_packet_must_be_near_the_end() -> None:
    check_tail(GOOD, 98.6)
    with pytest.raises(SluiceError, match=r"only 98\.0 s of 100\.0 s") as caught:
        check_tail(GOOD, 98.0)
    assert caught.value.code == "incomplete"
