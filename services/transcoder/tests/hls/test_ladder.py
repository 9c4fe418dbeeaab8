from __future__ import annotations

from dataclasses import replace

import pytest

from sluice_core.adapters.layout import Layout
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.presets import Rung, load_presets
from sluice_transcoder.containers import CONTAINERS
from sluice_transcoder.hls.ladder import LadderPlan, plan_ladder, rungs_for
from sluice_transcoder.plan import ToneMap
from sluice_transcoder.probe import Probe, Stream, StreamKind

PRESET = load_presets()["hls"]
PEAKS = {rung.height: rung.max_bitrate for rung in PRESET.ladder}

SEEN = Stream(
    index=0,
    kind=StreamKind.VIDEO,
    codec="vp9",
    pix_fmt="yuv420p",
    width=1920,
    height=1080,
    duration=10.0,
)
HEARD = Stream(index=1, kind=StreamKind.AUDIO, codec="aac", channels=6, duration=9.0)
COVER = Stream(index=1, kind=StreamKind.VIDEO, codec="mjpeg", attached_pic=True, width=600)


def source(*streams: Stream, demuxer: str = "matroska") -> Probe:
    return Probe(
        size=1000,
        demuxer=demuxer,
        container=CONTAINERS["mkv"],
        layout=Layout(),
        streams=streams,
        duration=10.0,
    )


def plan(*streams: Stream) -> LadderPlan:
    return plan_ladder([source(*streams)], PRESET, tone_map=ToneMap.SCALE)


def sizes(made: LadderPlan) -> list[tuple[str, int, int]]:
    assert made.pictures is not None
    return [(r.name, r.width, r.height) for r in made.pictures.renditions]


@pytest.mark.parametrize(
    ("shorter", "heights"),
    [
        (2160, [1080, 720, 480, 360, 240]),
        (1080, [1080, 720, 480, 360, 240]),
        (720, [720, 480, 360, 240]),
        (360, [360, 240]),
        (240, [240]),
        # Between two rungs: the source's own size, unless the next smaller one is nearly as good.
        (1078, [1078, 720, 480, 360, 240]),
        (1001, [1000, 720, 480, 360, 240]),
        (800, [720, 480, 360, 240]),
        (361, [360, 240]),
        # Below the smallest: never none.
        (180, [180]),
        (91, [90]),
        (1, [2]),
    ],
)
def test_never_larger_than_the_source_and_never_none(shorter: int, heights: list[int]) -> None:
    assert [rung.height for rung in rungs_for(PRESET.ladder, shorter)] == heights


def test_a_size_of_its_own_has_the_peak_of_the_larger_rung() -> None:
    assert rungs_for(PRESET.ladder, 1078)[0] == Rung(1078, PEAKS[1080])
    assert rungs_for(PRESET.ladder, 180) == (Rung(180, PEAKS[240]),)


@pytest.mark.parametrize(
    ("width", "height", "rotation", "wanted"),
    [
        (640, 360, 0, [("360p", 640, 360), ("240p", 426, 240)]),
        (360, 640, 0, [("360p", 360, 640), ("240p", 240, 426)]),
        (640, 360, 90, [("360p", 360, 640), ("240p", 240, 426)]),
        (321, 181, 0, [("180p", 320, 180)]),
        (1000, 240, 0, [("240p", 1000, 240)]),
    ],
)
def test_sizes_are_even_and_of_the_shape_that_is_shown(
    width: int, height: int, rotation: int, wanted: list[tuple[str, int, int]]
) -> None:
    assert sizes(plan(replace(SEEN, width=width, height=height, rotation=rotation))) == wanted


def test_pictures_are_made_whole_once_and_sized_each() -> None:
    hdr = replace(SEEN, interlaced=True, transfer="smpte2084", height=360, width=640)
    pictures = plan(hdr).pictures
    assert pictures is not None
    assert pictures.shared == ("bwdif=mode=send_frame",)
    large, small = (",".join(rendition.filters) for rendition in pictures.renditions)
    assert large.startswith("scale=out_primaries=bt709")
    assert small.startswith("scale=426:240,scale=out_primaries=bt709")
    assert large.endswith("format=yuv420p,setsar=1")


def test_pixels_that_are_not_square_keep_their_shape() -> None:
    pictures = plan(replace(SEEN, square_pixels=False)).pictures
    assert pictures is not None
    assert not any("setsar=1" in rendition.filters for rendition in pictures.renditions)


def test_sound_is_stereo_at_most_and_as_long_as_its_own_stream() -> None:
    made = plan(SEEN, HEARD)
    assert made.sound is not None
    assert (made.sound.track.stream, made.sound.track.channels) == (1, 2)
    assert (made.sound.seconds, made.duration) == (9.0, 10.0)
    assert made.names == ("1080p", "720p", "480p", "360p", "240p", "audio")


def test_without_sound_and_without_pictures() -> None:
    silent, blind = plan(SEEN), plan(HEARD, COVER)
    assert (silent.sound, len(silent.names)) == (None, 5)
    assert (blind.pictures, blind.names) == (None, ("audio",))
    with pytest.raises(SluiceError) as caught:
        plan(COVER)
    assert caught.value.code == "no_media"


def test_pictures_and_sound_may_come_from_two_files() -> None:
    made = plan_ladder([source(SEEN), source(replace(HEARD, index=0))], PRESET)
    assert made.pictures is not None
    assert made.sound is not None
    assert (made.pictures.source, made.sound.track.source) == (0, 1)


def test_the_room_that_it_may_take_is_what_the_peaks_allow() -> None:
    kbits = sum(PEAKS.values()) + 128
    assert plan(SEEN, HEARD).most_bytes == kbits * 1000 // 8 * 10
    guessed = plan_ladder([source(SEEN, demuxer="mpegts")], PRESET)
    assert guessed.most_bytes is None
