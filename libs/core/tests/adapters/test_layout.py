from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sluice_core.adapters.layout import Layout, read_layout

CLIP = (
    *("-f", "lavfi", "-i", "testsrc2=size=160x90:rate=25:duration=2"),
    *("-f", "lavfi", "-i", "sine=duration=2"),
)
H264 = (*CLIP, "-c:v", "libx264", "-preset", "ultrafast", "-g", "25", "-c:a", "aac")
TONE = ("-f", "lavfi", "-i", "sine=duration=2")

#: Each container that tells its own length, and how a clip in it is made.
FORMATS: dict[str, tuple[str, ...]] = {
    "late.mp4": H264,
    "fast.mp4": (*H264, "-movflags", "+faststart"),
    "dash.mp4": (*H264, "-movflags", "+dash+global_sidx"),
    "clip.mov": H264,
    "clip.mkv": H264,
    "clip.webm": (*CLIP, "-c:v", "libvpx", "-deadline", "realtime", "-c:a", "libopus"),
    "clip.avi": (*CLIP, "-c:v", "mpeg4", "-c:a", "libmp3lame"),
    "clip.flv": (*H264, "-ar", "44100"),
    "clip.ts": H264,
    "tone.wav": TONE,
    "tone.mp3": (*TONE, "-c:a", "libmp3lame"),
    "tone.opus": (*TONE, "-c:a", "libopus"),
}

Make = Callable[..., Path]


@pytest.mark.parametrize("name", FORMATS)
def test_a_whole_file_is_whole(name: str, make: Make) -> None:
    assert read_layout(make(name, *FORMATS[name])).complete


@pytest.mark.parametrize("keep", [0.98, 0.5, 0.1])
@pytest.mark.parametrize("name", FORMATS)
def test_a_file_cut_short_is_not(name: str, keep: float, make: Make) -> None:
    whole = make(name, *FORMATS[name]).read_bytes()
    cut = make("unused.wav", *TONE).with_name(f"cut-{name}")
    # An odd place, as a connection breaks anywhere.
    cut.write_bytes(whole[: int(len(whole) * keep) | 1])
    if name == "tone.mp3" and keep > 0.9:
        # Within the slack for tags; half a second of sound at most.
        return
    assert not read_layout(cut).complete


def test_a_fragmented_file_cut_between_fragments_is_not_whole(make: Make) -> None:
    whole = make("dash.mp4", *FORMATS["dash.mp4"]).read_bytes()
    cut = make("unused.wav", *TONE).with_name("cut.mp4")
    cut.write_bytes(whole[: whole.rindex(b"moof") - 4])
    assert not read_layout(cut).complete


def test_where_the_index_is(make: Make) -> None:
    layouts = {name: read_layout(make(name, *FORMATS[name])) for name in list(FORMATS)[:3]}
    assert [layout.fast_start for layout in layouts.values()] == [False, True, True]
    assert [layout.fragmented for layout in layouts.values()] == [False, False, True]


def test_ebml_tells_its_doctype(make: Make) -> None:
    assert read_layout(make("clip.webm", *FORMATS["clip.webm"])).doctype == "webm"
    assert read_layout(make("clip.mkv", *H264)).doctype == "matroska"


def test_a_length_that_is_not_told_is_no_gap(make: Make) -> None:
    live = make("live.mkv", *H264, "-f", "matroska", "-live", "1")
    assert read_layout(live) == Layout(doctype="matroska")
    assert read_layout(make("pipe.wav", *TONE, "-f", "wav", "-write_bext", "0")).complete


#: Nothing, text, and the first bytes of each format.
SCRAPS = [
    *(b"", b"\0", b"<!doctype html>", b"ID3", b"\xff", b"\x47"),
    *(b"RIFF", b"OggS", b"FLV\1", b"\x1a\x45\xdf\xa3", b"\0\0\0\x08ftyp"),
]


@pytest.mark.parametrize("content", SCRAPS)
def test_scraps_raise_nothing(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "scrap"
    path.write_bytes(content)
    assert isinstance(read_layout(path), Layout)


@pytest.mark.parametrize("junk", [b"\0" * 5, b"some site appends this text", b"\xff" * 40])
def test_junk_behind_the_media_is_no_gap(junk: bytes, make: Make) -> None:
    path = make("fast.mp4", *FORMATS["fast.mp4"])
    with path.open("ab") as file:
        file.write(junk)
    assert read_layout(path).complete
