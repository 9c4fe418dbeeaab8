from __future__ import annotations

from dataclasses import replace

import pytest

from sluice_core.adapters.layout import Layout
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.presets import Preset, load_presets
from sluice_transcoder.containers import CONTAINERS
from sluice_transcoder.plan import Action, Plan, ToneMap, make_plan
from sluice_transcoder.probe import Probe, Stream, StreamKind

PRESETS = load_presets()
FAST = Layout(fast_start=True)

H264 = Stream(
    index=0,
    kind=StreamKind.VIDEO,
    codec="h264",
    pix_fmt="yuv420p",
    width=1280,
    height=720,
    duration=10.0,
)
AAC = Stream(index=1, kind=StreamKind.AUDIO, codec="aac", channels=2, duration=10.0)
COVER = Stream(index=1, kind=StreamKind.VIDEO, codec="mjpeg", attached_pic=True, width=600)


def video(codec: str = "h264", **changes: object) -> Stream:
    return replace(H264, codec=codec, **changes)  # type: ignore[arg-type]


def audio(codec: str = "aac", **changes: object) -> Stream:
    return replace(AAC, codec=codec, **changes)  # type: ignore[arg-type]


def source(container: str, *streams: Stream, layout: Layout = FAST, demuxer: str = "x") -> Probe:
    return Probe(
        size=1000,
        demuxer=demuxer,
        container=CONTAINERS[container],
        layout=layout,
        streams=streams,
        duration=10.0,
    )


def plan(preset: str, *probes: Probe, tone_map: ToneMap = ToneMap.SCALE) -> Plan:
    return make_plan(probes, PRESETS[preset], tone_map=tone_map)


def outcome(made: Plan) -> tuple[str, str]:
    return made.action.value, made.container.name


def filters(made: Plan) -> str:
    assert made.video is not None
    return ",".join(made.video.filters)


MP4 = source("mp4", H264, AAC)


def test_every_container_of_the_presets_is_known() -> None:
    assert {name for preset in PRESETS.values() for name in preset.containers} <= set(CONTAINERS)


@pytest.mark.parametrize(
    ("preset", "probe", "wanted"),
    [
        ("1080p", MP4, ("keep", "mp4")),
        ("best", MP4, ("keep", "mp4")),
        ("original", MP4, ("keep", "mp4")),
        # The index behind the media, or fragments: another order, no other pictures.
        ("1080p", source("mp4", H264, AAC, layout=Layout()), ("remux", "mp4")),
        ("1080p", replace(MP4, layout=replace(FAST, fragmented=True)), ("remux", "mp4")),
        ("best", source("mp4", H264, AAC, layout=Layout()), ("keep", "mp4")),
        # The right codecs in another box.
        ("1080p", source("ts", H264, AAC), ("remux", "mp4")),
        ("best", source("ts", H264, AAC), ("remux", "mp4")),
        ("original", source("ts", H264, AAC), ("keep", "ts")),
        ("best", source("mkv", video("vp8"), audio("aac")), ("keep", "mkv")),
        ("best", source("mov", H264, audio("pcm_s16le")), ("remux", "mkv")),
        ("best", source("avi", video("vp8"), audio("vorbis")), ("remux", "webm")),
        # Codecs that not every player takes.
        ("1080p", source("webm", video("vp9"), audio("opus")), ("encode", "mp4")),
        ("best", source("webm", video("vp9"), audio("opus")), ("keep", "webm")),
        ("1080p", source("mp4", video("hevc"), AAC), ("encode", "mp4")),
        ("1080p", source("mp4", H264, audio("ac3")), ("encode", "mp4")),
        ("1080p", source("mp4", video(pix_fmt="yuv420p10le"), AAC), ("encode", "mp4")),
        ("1080p", source("mp4", video(pix_fmt="yuv444p"), AAC), ("encode", "mp4")),
        ("480p", MP4, ("encode", "mp4")),
        # Without sound.
        ("1080p", source("mp4", H264), ("keep", "mp4")),
        ("480p", source("webm", video("vp9")), ("encode", "mp4")),
        # Sound alone: what people wanted to see is not there, but what is there is theirs.
        ("720p", source("mp3", audio("mp3"), COVER), ("encode", "m4a")),
        ("720p", source("m4a", AAC, COVER), ("keep", "m4a")),
        ("best", source("mp3", audio("mp3"), COVER), ("keep", "mp3")),
        ("best", source("webm", audio("opus")), ("remux", "opus")),
        ("best", source("wav", audio("pcm_s16le")), ("remux", "mka")),
        ("audio-mp3", source("mp3", audio("mp3"), COVER), ("keep", "mp3")),
        ("audio-mp3", MP4, ("encode", "mp3")),
        ("audio-m4a", MP4, ("remux", "m4a")),
        ("audio-m4a", source("m4a", AAC, COVER), ("keep", "m4a")),
        ("audio-m4a", source("m4a", AAC, layout=Layout()), ("remux", "m4a")),
        ("audio-opus", source("webm", video("vp9"), audio("opus")), ("remux", "opus")),
        ("audio-opus", source("opus", audio("opus")), ("keep", "opus")),
        ("audio-opus", source("ogg", audio("vorbis")), ("encode", "opus")),
    ],
)
def test_one_source(preset: str, probe: Probe, wanted: tuple[str, str]) -> None:
    assert outcome(plan(preset, probe)) == wanted


@pytest.mark.parametrize(
    ("preset", "streams", "containers", "wanted"),
    [
        ("1080p", (H264, AAC), ("mp4", "m4a"), ("remux", "mp4")),
        ("1080p", (video("vp9"), audio("opus")), ("webm", "webm"), ("encode", "mp4")),
        ("best", (video("vp9"), audio("opus")), ("webm", "webm"), ("remux", "webm")),
        ("best", (video("av1"), audio("opus")), ("mp4", "webm"), ("remux", "mp4")),
        ("best", (H264, audio("vorbis")), ("mp4", "ogg"), ("remux", "mkv")),
        ("original", (H264, AAC), ("mp4", "m4a"), ("remux", "mp4")),
        ("audio-m4a", (H264, AAC), ("mp4", "m4a"), ("remux", "m4a")),
    ],
)
def test_pictures_and_sound_apart(
    preset: str,
    streams: tuple[Stream, Stream],
    containers: tuple[str, str],
    wanted: tuple[str, str],
) -> None:
    pictures, sound = (source(c, s) for c, s in zip(containers, streams, strict=True))
    made = plan(preset, pictures, sound)
    assert outcome(made) == wanted
    assert [(track.source, track.stream) for track in made.audio] == [(1, 1)]


def test_only_what_must_be_is_encoded() -> None:
    made = plan("1080p", source("mkv", H264, audio("opus", channels=6)))
    assert made.video is not None
    assert made.video.encode is None
    assert made.audio[0].encode is not None
    assert (made.audio[0].codec, made.audio[0].channels) == ("aac", 2)


@pytest.mark.parametrize(
    ("preset", "size", "wanted"),
    [
        ("480p", (1280, 720), "scale=854:480,format=yuv420p"),
        ("480p", (720, 1280), "scale=480:854,format=yuv420p"),
        ("480p", (1281, 721), "scale=852:480,format=yuv420p"),
        ("720p", (320, 180), "format=yuv420p"),
        ("720p", (321, 181), "crop=320:180:0:0,format=yuv420p"),
        ("720p", (1, 1), "scale=2:2,format=yuv420p"),
    ],
)
def test_pictures_shrink_to_even_sizes_and_never_grow(
    preset: str, size: tuple[int, int], wanted: str
) -> None:
    made = plan(preset, source("webm", video("vp9", width=size[0], height=size[1])))
    assert filters(made) == wanted


def test_upright_and_lying_pictures_of_one_size_are_the_same_to_a_preset() -> None:
    assert plan("720p", source("mp4", video(width=720, height=1280))).action is Action.KEEP
    assert plan("720p", source("mp4", video(rotation=90))).action is Action.KEEP


def test_a_rotated_picture_is_scaled_as_it_is_shown() -> None:
    assert filters(plan("480p", source("mp4", video(rotation=90)))) == (
        "scale=480:854,format=yuv420p"
    )


@pytest.mark.parametrize(
    ("tone_map", "words"), [(ToneMap.SCALE, "out_transfer"), (ToneMap.ZSCALE, "tonemap=hable")]
)
def test_hdr_becomes_sdr_where_the_tools_can(tone_map: ToneMap, words: str) -> None:
    hdr = source("mp4", video("hevc", pix_fmt="yuv420p10le", transfer="smpte2084"))
    assert words in filters(plan("1080p", hdr, tone_map=tone_map))
    assert filters(plan("1080p", hdr, tone_map=ToneMap.NONE)) == "format=yuv420p"


def test_interlaced_pictures_are_made_progressive() -> None:
    made = plan("1080p", source("ts", video("mpeg2video", interlaced=True)))
    assert filters(made) == "bwdif=mode=send_frame,format=yuv420p"


def test_the_main_picture_and_the_main_sound_are_taken() -> None:
    small = video(index=0, width=320, height=180)
    large = video(index=1, width=1920, height=1080)
    other = audio(index=2, channels=6)
    main = audio(index=3, default=True)
    made = plan("1080p", source("mkv", small, large, other, main))
    assert made.video is not None
    assert made.video.stream == 1
    assert [track.stream for track in made.audio] == [3]
    kept = plan("best", source("ts", small, large, other, main))
    assert [track.stream for track in kept.audio] == [2, 3]


@pytest.mark.parametrize(
    ("preset", "probe"),
    [
        ("audio-mp3", source("mp4", H264)),
        ("1080p", source("mp3", COVER)),
        ("best", source("mkv", replace(AAC, kind=StreamKind.SUBTITLE))),
    ],
)
def test_nothing_to_take_is_told(preset: str, probe: Probe) -> None:
    with pytest.raises(SluiceError, match="there is no") as caught:
        plan(preset, probe)
    assert caught.value.code == "no_media"


def test_no_container_for_it_is_told() -> None:
    narrow: Preset = replace(PRESETS["best"], containers=("webm",))
    with pytest.raises(SluiceError, match="no container of preset best") as caught:
        make_plan([MP4], narrow)
    assert (caught.value.code, caught.value.error_class) == ("transcode_failed", "permanent")


def test_the_result_must_last_as_long_as_the_longest_chosen_stream() -> None:
    longer = source("m4a", audio(duration=12.0))
    assert plan("1080p", source("mp4", H264), longer).duration == 12.0
    assert plan("audio-m4a", source("mp4", video(duration=99.0), AAC)).duration == 10.0
    assert plan("audio-m4a", source("aac", AAC, demuxer="aac")).duration is None
