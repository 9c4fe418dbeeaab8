from __future__ import annotations

from fractions import Fraction

import pytest

from sluice_core.domain.errors import SluiceError
from sluice_transcoder.hls.playlist import (
    Media,
    Segment,
    SoundGroup,
    Variant,
    avc_codec,
    master_text,
    read_master,
    read_media,
)

#: As ffmpeg 8.1 writes it.
TEXT = """\
#EXTM3U
#EXT-X-VERSION:7
#EXT-X-TARGETDURATION:6
#EXT-X-MEDIA-SEQUENCE:0
#EXT-X-PLAYLIST-TYPE:VOD
#EXT-X-INDEPENDENT-SEGMENTS
#EXT-X-MAP:URI="360p.mp4",BYTERANGE="829@0"
#EXTINF:6.000000,
#EXT-X-BYTERANGE:600000@829
360p.mp4
#EXTINF:6.000000,
#EXT-X-BYTERANGE:300000@600829
360p.mp4
#EXTINF:1.000000,
#EXT-X-BYTERANGE:200000@900829
360p.mp4
#EXT-X-ENDLIST
"""


def media(*segments: tuple[float, int]) -> Media:
    return Media("v.mp4", 0, tuple(Segment(seconds, 0, size) for seconds, size in segments))


def test_a_media_playlist_tells_where_its_bytes_are() -> None:
    found = read_media(TEXT)
    assert (found.uri, found.header, found.seconds) == ("360p.mp4", 829, 13.0)
    assert found.segments[1] == Segment(6.0, 600_829, 300_000)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("#EXTM3U\n", ""),
        ("#EXT-X-ENDLIST\n", ""),
        ("#EXT-X-BYTERANGE:300000@600829\n", ""),
        ("#EXT-X-BYTERANGE:300000@600829", "#EXT-X-BYTERANGE:many@600829"),
        ("@600829\n360p.mp4", "@600829\nother.mp4"),
        ('#EXT-X-MAP:URI="360p.mp4",BYTERANGE="829@0"\n', ""),
        ("829@0", "829@5"),
        (TEXT, "#EXTM3U\n#EXT-X-ENDLIST\n"),
        (TEXT, ""),
        (TEXT, "<!doctype html>"),
    ],
)
def test_anything_else_is_refused(old: str, new: str) -> None:
    assert old in TEXT
    with pytest.raises(ValueError, match=r"\w"):
        read_media(TEXT.replace(old, new))


@pytest.mark.parametrize(
    ("segments", "kbits"),
    [
        ([(6.0, 600_000), (6.0, 300_000)], 800),
        # A short end alone is no peak; with what stands before it, it may be.
        ([(6.0, 600_000), (6.0, 300_000), (0.1, 100_000)], 800),
        ([(6.0, 300_000), (1.0, 400_000)], 800),
        ([(6.0, 300_000), (3.0, 300_000)], 800),
        ([(0.5, 50_000)], 800),
    ],
)
def test_the_peak_is_what_a_player_meets(segments: list[tuple[float, int]], kbits: int) -> None:
    assert media(*segments).peak == pytest.approx(kbits * 1000)


def test_the_average_is_of_everything() -> None:
    assert media((6.0, 600_000), (4.0, 400_000)).average == pytest.approx(800_000)


def test_the_master_playlist() -> None:
    large = Variant(
        uri="1080p.m3u8",
        media=media((6.0, 3_000_000), (6.0, 1_500_000)),
        codec="avc1.640028",
        size=(1920, 1080),
        frame_rate=Fraction(30000, 1001),
    )
    small = Variant(
        uri="240p.m3u8",
        media=media((6.0, 150_000), (6.0, 150_000)),
        codec="avc1.640015",
        size=(426, 240),
    )
    sound = SoundGroup(uri="audio.m3u8", media=media((6.0, 96_000), (6.0, 90_000)), channels=2)
    text = master_text([large, small], sound)
    assert (
        text
        == """\
#EXTM3U
#EXT-X-VERSION:7
#EXT-X-INDEPENDENT-SEGMENTS
#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio",NAME="Sound",DEFAULT=YES,AUTOSELECT=YES,CHANNELS="2",\
URI="audio.m3u8"
#EXT-X-STREAM-INF:BANDWIDTH=328000,AVERAGE-BANDWIDTH=324000,CODECS="avc1.640015,mp4a.40.2",\
RESOLUTION=426x240,AUDIO="audio"
240p.m3u8
#EXT-X-STREAM-INF:BANDWIDTH=4128000,AVERAGE-BANDWIDTH=3124000,CODECS="avc1.640028,mp4a.40.2",\
RESOLUTION=1920x1080,FRAME-RATE=29.970,AUDIO="audio"
1080p.m3u8
"""
    )
    read = read_master(text)
    assert dict(read.variants) == {"240p.m3u8": (426, 240), "1080p.m3u8": (1920, 1080)}
    assert read.sounds == ("audio.m3u8",)


def test_sound_alone_is_a_variant() -> None:
    sound = Variant(uri="audio.m3u8", media=media((6, 96_000)), codec="mp4a.40.2")
    text = master_text([sound], None)
    assert text.splitlines()[3:] == [
        '#EXT-X-STREAM-INF:BANDWIDTH=128000,AVERAGE-BANDWIDTH=128000,CODECS="mp4a.40.2"',
        "audio.m3u8",
    ]
    assert read_master(text).variants == (("audio.m3u8", None),)
    with pytest.raises(ValueError, match="names no renditions"):
        read_master(TEXT)


def test_the_codec_is_what_the_header_says() -> None:
    assert avc_codec(b"\0\0\0\x30avcC\x01\x64\x00\x1f\xff\xe1") == "avc1.64001f"
    for header in (b"", b"....avcC\x01\x64"):
        with pytest.raises(SluiceError):
            avc_codec(header)
