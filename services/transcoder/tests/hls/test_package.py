"""Real ffmpeg makes packages, real ffprobe reads them from their master playlist on."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import m3u8
import pytest

from sluice_core.domain.errors import CanceledRunError, HandBackError, SluiceError
from sluice_core.domain.presets import Preset, Rung, VideoEncode, load_presets
from sluice_core.runtime.children import Limits, is_alive
from sluice_testing.waiting import fastest
from sluice_transcoder.children import Workplace
from sluice_transcoder.hls.package import MASTER, Package, package
from sluice_transcoder.progress import EncodeProgress
from sluice_transcoder.tools import Tools

Media = Callable[[str], Path]
Make = Callable[..., Path]
Run = Callable[..., Package]

PRESET = load_presets()["hls"]
#: Two small rungs: what is tested of a ladder shows on two as well.
SMALL = replace(
    PRESET,
    video=VideoEncode(encoder="libx264", crf=28, speed="ultrafast"),
    ladder=(Rung(160, 300), Rung(90, 150)),
)
#: As slow as x264 can be: there is time to interfere.
SLOW = replace(SMALL, video=VideoEncode(encoder="libx264", crf=21, speed="placebo"))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


@pytest.fixture
def run(tools: Tools, place: Workplace, out: Path, media: Media) -> Run:
    """Makes a package of files, or of the sample site's by their path there."""

    def run_small(*named: Path | str, preset: Preset = SMALL, **changes: Any) -> Package:
        called = {k: changes.pop(k) for k in ("on_plan", "on_progress") if k in changes}
        sources = [media(name) if isinstance(name, str) else name for name in named]
        return package(
            sources, preset, out, tools=tools, threads=1, place=replace(place, **changes), **called
        )

    return run_small


def read(tools: Tools, path: Path, *words: str) -> Any:
    """ffprobe's answer on a playlist or a file."""
    argv = [tools.ffprobe, "-v", "error", "-of", "json", *words, path]
    ran = subprocess.run(argv, check=True, capture_output=True, timeout=60)
    assert not ran.stderr
    return json.loads(ran.stdout)


def streams(tools: Tools, out: Path) -> list[tuple[str, int, int]]:
    found = read(tools, out / "hls" / MASTER, "-show_streams")["streams"]
    return [(s["codec_name"], s.get("width", 0), s.get("height", 0)) for s in found]


def key_frames(tools: Tools, path: Path) -> list[str]:
    shown = ("-select_streams", "v:0", "-show_entries", "packet=pts_time,flags")
    packets = read(tools, path, *shown)["packets"]
    return [packet["pts_time"] for packet in packets if "K" in packet["flags"]]


def starts(tools: Tools, path: Path) -> dict[str, float]:
    found = read(tools, path, "-show_entries", "stream=codec_type,start_time")["streams"]
    return {s["codec_type"]: float(s["start_time"]) for s in found}


def test_a_package_is_read_from_its_master_playlist_on(run: Run, tools: Tools, out: Path) -> None:
    made = run("/mp4/long.mp4", preset=replace(SMALL, ladder=PRESET.ladder[-1:]))
    kinds = [(file.name, file.kind, file.content_type) for file in made.files]
    playlist = ("playlist", "application/vnd.apple.mpegurl")
    assert kinds == [
        (MASTER, *playlist),
        ("180p.m3u8", *playlist),
        ("180p.mp4", "video", "video/mp4"),
        ("audio.m3u8", *playlist),
        ("audio.mp4", "audio", "audio/mp4"),
    ]
    assert sorted(out.rglob("*")) == sorted([out / "hls", *(file.path for file in made.files)])
    assert streams(tools, out) == [("aac", 0, 0), ("h264", 320, 180)]
    found = read(tools, out / "hls" / MASTER, "-show_format")["format"]
    assert float(found["duration"]) == pytest.approx(60, abs=0.1)
    assert made.duration == pytest.approx(60, abs=0.1)


def test_what_the_master_playlist_says_is_so(run: Run, tools: Tools, out: Path) -> None:
    run("/mp4/long.mp4")
    folder = out / "hls"
    master = m3u8.loads((folder / MASTER).read_text())
    sizes = {p.uri: (p.stream_info.resolution, p.stream_info.frame_rate) for p in master.playlists}
    assert sizes == {"160p.m3u8": ((284, 160), 25.0), "90p.m3u8": ((160, 90), 25.0)}
    sound = _rates(folder, "audio")
    for variant in master.playlists:
        name = variant.uri.removesuffix(".m3u8")
        rates, info = _rates(folder, name), variant.stream_info
        assert info.average_bandwidth == pytest.approx(rates[0] + sound[0], rel=0.01)
        assert info.bandwidth == pytest.approx(rates[1] + sound[1], rel=0.01)
        [stream] = read(tools, folder / f"{name}.mp4", "-show_streams")["streams"]
        profile = {"High": "6400", "Constrained Baseline": "42c0"}[stream["profile"]]
        assert info.codecs == f"avc1.{profile}{stream['level']:02x},mp4a.40.2"


def _rates(folder: Path, name: str) -> tuple[float, float]:
    """Bits per second: of the file, and of its largest whole segment."""
    segments = m3u8.loads((folder / f"{name}.m3u8").read_text()).segments
    whole = [s for s in segments if s.duration > 3]
    rates = [8 * int(s.byterange.split("@")[0]) / s.duration for s in whole]
    seconds = sum(s.duration for s in segments)
    return 8 * (folder / f"{name}.mp4").stat().st_size / seconds, max(rates)


def test_every_rendition_has_its_key_frames_at_the_same_times(
    make: Make, run: Run, tools: Tools, out: Path
) -> None:
    # Every 1.2 s another picture: x264 by itself would put key frames there.
    cuts = "testsrc2=size=320x180:rate=25:duration=9,negate=enable='mod(floor(t/1.2),2)'"
    source = make("cuts.mp4", "-f", "lavfi", "-i", cuts, "-c:v", "libx264")
    # Its fastest speed sees no change of scene.
    run(source, preset=replace(SMALL, video=PRESET.video))
    large, small = (key_frames(tools, out / "hls" / f"{n}p.mp4") for n in (160, 90))
    assert large == small
    apart = [float(time) - float(large[0]) for time in large]
    assert apart == pytest.approx([0, 2, 4, 6, 8], abs=0.05)
    segments = m3u8.loads((out / "hls" / "160p.m3u8").read_text()).segments
    assert [segment.duration for segment in segments] == pytest.approx([6, 3])


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/mp4/silent.mp4", [("h264", 160, 90), ("h264", 284, 160)]),
        ("/audio/cover.mp3", [("aac", 0, 0)]),
        ("/mp4/odd.mp4", [("aac", 0, 0), ("h264", 160, 90), ("h264", 284, 160)]),
        ("/mp4/rotated.mp4", [("aac", 0, 0), ("h264", 90, 160), ("h264", 160, 284)]),
        ("/mp4/tenbit.mp4", [("aac", 0, 0), ("h264", 160, 90), ("h264", 284, 160)]),
        ("/webm/vp9.webm", [("aac", 0, 0), ("h264", 160, 90), ("h264", 284, 160)]),
        ("/hls/ts/v0-000.ts", [("aac", 0, 0), ("h264", 160, 90), ("h264", 284, 160)]),
    ],
)
def test_any_source(
    path: str, wanted: list[tuple[str, int, int]], run: Run, tools: Tools, out: Path
) -> None:
    run(path)
    assert streams(tools, out) == wanted


def test_pictures_and_sound_of_two_files(make: Make, run: Run, tools: Tools, out: Path) -> None:
    pictures = make("v.mp4", "-f", "lavfi", "-i", "testsrc2=size=160x90:duration=3")
    sound = make("a.m4a", "-f", "lavfi", "-i", "sine=duration=2")
    assert run(pictures, sound).duration == pytest.approx(3, abs=0.1)
    assert streams(tools, out) == [("aac", 0, 0), ("h264", 160, 90)]


@pytest.mark.parametrize("late", [0.0, 0.7])
def test_sound_stays_with_its_picture(
    late: float, make: Make, run: Run, tools: Tools, out: Path
) -> None:
    pictures = ("-f", "lavfi", "-i", "testsrc2=size=160x90:rate=25:duration=5")
    sound = ("-itsoffset", str(late), "-f", "lavfi", "-i", "sine=duration=4")
    source = make("late.mp4", *pictures, *sound, "-c:v", "libx264", "-bf", "0", "-c:a", "aac")
    run(source)
    before, after = starts(tools, source), starts(tools, out / "hls" / MASTER)
    apart = (after["audio"] - after["video"]) - (before["audio"] - before["video"])
    # The encoder's own lead-in of 1,024 samples comes before the sound.
    assert apart == pytest.approx(-0.023, abs=0.002)


def test_a_variable_frame_rate_keeps_its_pictures(
    media: Media, run: Run, tools: Tools, out: Path
) -> None:
    source = media("/mp4/vfr.mp4")
    run(source)
    counted = ("-count_packets", "-select_streams", "v:0", "-show_streams")
    frames = [
        read(tools, path, *counted)["streams"][0]["nb_read_packets"]
        for path in (source, out / "hls" / "160p.mp4", out / "hls" / "90p.mp4")
    ]
    assert len(set(frames)) == 1


def test_progress_grows_and_tells_the_bytes_of_all_files(run: Run, out: Path) -> None:
    seen: list[EncodeProgress] = []
    run("/mp4/long.mp4", on_progress=seen.append)
    percents = [value.percent for value in seen if value.percent is not None]
    assert percents == sorted(percents)
    assert 95 < percents[-1] < 100
    assert seen[-1].bytes > (out / "hls" / "160p.mp4").stat().st_size * 0.8


@pytest.mark.parametrize(
    ("word", "error"), [("canceled", CanceledRunError), ("drained", HandBackError)]
)
def test_a_stop_ends_ffmpeg_and_leaves_nothing(
    word: str, error: type[Exception], run: Run, place: Workplace, out: Path
) -> None:
    def seconds() -> float:
        asked_at: list[float] = []
        started: list[tuple[int, int]] = []

        def stop() -> str | None:
            if not list(place.scratch.glob(".hls.part/*.mp4")):
                return None
            asked_at.append(time.monotonic())
            return word

        with pytest.raises(error):
            run("/mp4/long.mp4", preset=SLOW, stop=stop, on_start=lambda *c: started.append(c))
        took = time.monotonic() - asked_at[0]
        assert not any(is_alive(*child) for child in started)
        assert list(out.iterdir()) == []
        assert [path.name for path in place.scratch.iterdir()] == [".writer.lock"]
        return took

    assert fastest(seconds, below=2) < 2


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"limits": Limits(file_size=20_000)}, "too_large"),
        ({"deadline_s": 0.3}, "hard_time_limit"),
        ({"stall_s": 0.05}, "stalled"),
    ],
)
def test_limits_are_told_as_what_they_are(
    changes: dict[str, Any], code: str, run: Run, out: Path
) -> None:
    with pytest.raises(SluiceError) as caught:
        run("/mp4/long.mp4", preset=SLOW, **changes)
    assert caught.value.code == code
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("path", ["/mp4/plain.mp4", "/mp4/late-index.mp4", "/webm/vp9.webm"])
def test_a_body_cut_short_is_never_a_success(path: str, media: Media, run: Run, out: Path) -> None:
    whole = media(path).read_bytes()
    cut = out.parent / "cut"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SluiceError) as caught:
        run(cut)
    assert caught.value.code == "incomplete"
    assert list(out.iterdir()) == []


def _cut_last_bytes(folder: Path) -> None:
    path = folder / "90p.mp4"
    path.write_bytes(path.read_bytes()[:-100])


def _drop_a_segment(folder: Path) -> None:
    path = folder / "90p.m3u8"
    *kept, _, _, _, end = path.read_text().splitlines()
    path.write_text("\n".join([*kept, end]) + "\n")


def _swap_renditions(folder: Path) -> None:
    for suffix in ("mp4", "m3u8"):
        one, other = folder / f"160p.{suffix}", folder / f"90p.{suffix}"
        one.rename(folder / "x")
        other.rename(one)
        (folder / "x").rename(other)


def _sound_for_pictures(folder: Path) -> None:
    shutil.copyfile(folder / "audio.mp4", folder / "90p.mp4")
    text = (folder / "audio.m3u8").read_text()
    (folder / "90p.m3u8").write_text(text.replace("audio.mp4", "90p.mp4"))


def _no_end(folder: Path) -> None:
    path = folder / "audio.m3u8"
    path.write_text(path.read_text().replace("#EXT-X-ENDLIST\n", ""))


def _shifted(folder: Path) -> None:
    path = folder / "90p.m3u8"
    path.write_text(re.sub(r"EXTINF:2\.0+,", "EXTINF:1.5,", path.read_text(), count=1))


def _other_file(folder: Path) -> None:
    path = folder / "90p.m3u8"
    path.write_text(path.read_text().replace("90p.mp4", "160p.mp4"))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_cut_last_bytes, "the end of 90p is missing"),
        (_drop_a_segment, "not that of its file"),
        (_other_file, "not that of its file"),
        (_swap_renditions, "not that of its file"),
        (_sound_for_pictures, "does not hold the pictures"),
        (_no_end, "the playlist of audio can't be used"),
        (_shifted, "not cut at the same times"),
    ],
)
def test_a_broken_package_is_refused(
    spoil: Callable[[Path], None],
    words: str,
    run: Run,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sluice_transcoder import transcode as module  # noqa: PLC0415  # what is patched

    good = module.convert

    def convert(*args: Any, **kwargs: Any) -> None:
        good(*args, **kwargs)
        spoil(kwargs["output"])

    monkeypatch.setattr(module, "convert", convert)
    # Three seconds in two segments are enough to spoil.
    monkeypatch.setattr("sluice_transcoder.hls.command.SEGMENT_SECONDS", 2)
    with pytest.raises(SluiceError, match=words) as caught:
        run("/mp4/small.mp4")
    assert caught.value.code == "transcode_failed"
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("90p.m3u8", "91p.m3u8"),
        ("RESOLUTION=160x90", "RESOLUTION=320x180"),
        ('URI="audio.m3u8"', 'URI="other.m3u8"'),
        ("#EXTM3U", "#EXT"),
    ],
)
def test_a_master_playlist_that_names_something_else_is_refused(
    old: str, new: str, run: Run, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sluice_transcoder.hls import package as module  # noqa: PLC0415  # what is patched

    good = module.master_text

    def master_text(*args: Any) -> str:
        text = good(*args)
        assert old in text
        return text.replace(old, new)

    monkeypatch.setattr(module, "master_text", master_text)
    with pytest.raises(SluiceError, match="master playlist") as caught:
        run("/mp4/small.mp4")
    assert caught.value.code == "transcode_failed"
    assert list(out.iterdir()) == []


def test_a_percent_sign_in_a_folder_is_no_pattern(
    media: Media, tools: Tools, tmp_path: Path
) -> None:
    scratch = tmp_path / "100%v %03d"
    scratch.mkdir()
    place = Workplace(scratch=scratch, deadline_s=120)
    made = package([media("/mp4/small.mp4")], SMALL, scratch, tools=tools, threads=1, place=place)
    assert all(file.path.is_file() for file in made.files)
