"""Real ffmpeg over real files: what comes in, what must come out."""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread

import psutil
import pytest

from sluice_core.domain.errors import CanceledRunError, HandBackError, SluiceError
from sluice_core.domain.presets import Preset, VideoEncode, load_presets
from sluice_core.runtime.children import Limits, is_alive
from sluice_testing.clips import picture_times
from sluice_testing.waiting import fastest, until
from sluice_transcoder.children import Workplace, convert
from sluice_transcoder.plan import Action, ToneMap
from sluice_transcoder.progress import EncodeProgress
from sluice_transcoder.tools import Tools
from sluice_transcoder.transcode import Result, transcode

PRESETS = load_presets()
Media = Callable[[str], Path]
Make = Callable[..., Path]
Run = Callable[..., Result]

H264 = ("-c:v", "libx264", "-preset", "ultrafast", "-c:a", "aac")
CLIP = (
    *("-f", "lavfi", "-i", "testsrc2=size=160x90:rate=25:duration=4"),
    *("-f", "lavfi", "-i", "sine=duration=4"),
)


#: A minute of small pictures, encoded as slowly as x264 can: there is time to interfere.
SLOW = replace(
    PRESETS["480p"],
    max_height=160,
    video=VideoEncode(encoder="libx264", crf=21, speed="placebo"),
)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


@pytest.fixture
def run_preset(tools: Tools, place: Workplace, out: Path) -> Run:
    def run(preset: str | Preset, *sources: Path, **changes: object) -> Result:
        return transcode(
            sources,
            preset if isinstance(preset, Preset) else PRESETS[preset],
            out,
            tools=tools,
            threads=1,
            place=replace(place, **changes),  # type: ignore[arg-type]
        )

    return run


def codecs(result: Result) -> list[str]:
    return [stream.codec for stream in result.probe.streams]


@pytest.mark.parametrize(
    ("preset", "path", "wanted"),
    [
        ("1080p", "/mp4/small.mp4", "keep mp4 h264 aac"),
        ("1080p", "/mp4/late-index.mp4", "remux mp4 h264 aac"),
        ("1080p", "/mp4/hevc.mp4", "encode mp4 h264 aac"),
        ("1080p", "/mp4/silent.mp4", "keep mp4 h264"),
        ("480p", "/mp4/plain.mp4", "encode mp4 h264 aac"),
        ("720p", "/webm/vp9.webm", "encode mp4 h264 aac"),
        ("best", "/webm/vp9.webm", "keep webm vp9 opus"),
        ("best", "/audio/cover.mp3", "keep mp3 mp3 mjpeg"),
        ("720p", "/audio/cover.mp3", "encode m4a aac"),
        ("720p", "/audio/cover.m4a", "keep m4a aac mjpeg"),
        ("audio-m4a", "/audio/cover.mp3", "encode m4a aac"),
        ("audio-mp3", "/audio/cover.m4a", "encode mp3 mp3"),
        ("audio-m4a", "/mp4/small.mp4", "remux m4a aac"),
        ("audio-mp3", "/mp4/small.mp4", "encode mp3 mp3"),
        ("audio-opus", "/mp4/small.mp4", "encode opus opus"),
        ("audio-opus", "/webm/vp9.webm", "remux opus opus"),
        ("original", "/mp4/late-index.mp4", "keep mp4 h264 aac"),
        ("original", "/hls/ts/v0-000.ts", "keep ts h264 aac"),
        ("best", "/hls/ts/v0-000.ts", "remux mp4 h264 aac"),
    ],
)
def test_from_one_file(preset: str, path: str, wanted: str, media: Media, run_preset: Run) -> None:
    result = run_preset(preset, media(path))
    assert f"{result.action} {result.extension} {' '.join(codecs(result))}" == wanted
    assert result.path.name == f"result.{result.extension}"
    assert list(result.path.parent.iterdir()) == [result.path]
    assert result.content_type.split("/")[0] == result.kind
    if PRESETS[preset].fast_start:
        assert result.probe.layout.fast_start
        assert not result.probe.layout.fragmented


def test_as_served_is_the_same_file_and_costs_no_copy(
    media: Media, run_preset: Run, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copyfile(media("/mp4/plain.mp4"), source)
    result = run_preset("original", source)
    assert result.path.samefile(source)


def test_as_served_survives_where_links_are_not_possible(
    media: Media, run_preset: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(_source: Path, _target: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("sluice_transcoder.transcode.os.link", no_link)
    source = media("/mp4/small.mp4")
    result = run_preset("original", source)
    assert not result.path.samefile(source)
    assert result.path.read_bytes() == source.read_bytes()


def test_pictures_and_sound_are_merged_without_encoding(make: Make, run_preset: Run) -> None:
    pictures = make("v.mp4", *CLIP, *H264, "-map", "0:v")
    sound = make("a.m4a", *CLIP, *H264, "-map", "1:a")
    result = run_preset("1080p", pictures, sound)
    assert (result.action, codecs(result)) == (Action.REMUX, ["h264", "aac"])
    assert result.probe.duration == pytest.approx(4.0, abs=0.1)


def test_tracks_of_webm_stay_webm(make: Make, run_preset: Run) -> None:
    vp9 = ("-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8")
    pictures = make("v.webm", *CLIP, *vp9, "-map", "0:v")
    sound = make("a.webm", *CLIP, "-map", "1:a", "-c:a", "libopus")
    result = run_preset("best", pictures, sound)
    assert (result.action, result.extension) == (Action.REMUX, "webm")
    assert result.content_type == "video/webm"


def test_a_picture_shrinks_and_the_shape_stays(media: Media, run_preset: Run) -> None:
    (stream,) = run_preset("480p", media("/mp4/plain.mp4")).probe.videos
    assert (stream.width, stream.height, stream.pix_fmt) == (854, 480, "yuv420p")


def test_odd_sizes_lose_one_line(media: Media, run_preset: Run) -> None:
    (stream,) = run_preset("720p", media("/mp4/odd.mp4")).probe.videos
    assert (stream.width, stream.height, stream.pix_fmt) == (320, 180, "yuv420p")


@pytest.mark.parametrize("tone_map", [ToneMap.SCALE, ToneMap.NONE])
def test_ten_bit_hdr_becomes_eight_bit(
    tone_map: ToneMap, media: Media, tools: Tools, place: Workplace, out: Path
) -> None:
    source = media("/mp4/tenbit.mp4")
    if tone_map is not ToneMap.NONE and tools.tone_map is not tone_map:
        pytest.skip(f"this ffmpeg tone-maps by {tools.tone_map}")
    result = transcode(
        [source],
        PRESETS["720p"],
        out,
        tools=replace(tools, tone_map=tone_map),
        threads=1,
        place=place,
    )
    (stream,) = result.probe.videos
    assert stream.pix_fmt == "yuv420p"
    assert stream.hdr is (tone_map is ToneMap.NONE)


def test_rotation_is_kept_by_a_copy_and_applied_by_encoding(
    media: Media, make: Make, run_preset: Run
) -> None:
    rotated = media("/mp4/rotated.mp4")
    (stream,) = run_preset("720p", rotated).probe.videos
    assert (stream.shown_size, stream.rotation) == ((180, 320), 270)
    ts = make("rotated.mkv", "-i", rotated, "-c:v", "copy", "-c:a", "libopus")
    (stream,) = run_preset("720p", ts).probe.videos
    assert (stream.shown_size, stream.rotation) == ((180, 320), 270)
    hevc = make(
        "hevc.mp4", "-noautorotate", "-i", rotated, "-c:v", "libx265", "-x265-params", "log-level=0"
    )
    turned = make("turned.mp4", "-display_rotation", "90", "-i", hevc, "-c", "copy")
    (stream,) = run_preset("720p", turned).probe.videos
    assert (stream.codec, stream.width, stream.height, stream.rotation) == ("h264", 180, 320, 0)


@pytest.mark.parametrize("preset", ["1080p", "480p"])
def test_a_variable_frame_rate_keeps_each_picture_in_its_time(
    preset: str, media: Media, make: Make, run_preset: Run
) -> None:
    source = media("/mp4/vfr.mp4")
    if preset == "480p":
        scaled = ("-vf", "scale=1280:720", "-fps_mode", "vfr", *H264)
        source = make("large.mp4", "-i", source, *scaled)
    result = run_preset(preset, source)
    assert (result.action is Action.ENCODE) == (preset == "480p")
    before, after = picture_times(source), picture_times(result.path)
    assert len(after) == len(before)
    assert max(abs(a - b) for a, b in zip(after, before, strict=True)) < 0.03
    assert result.probe.duration == pytest.approx(3.0, abs=0.2)


@pytest.mark.parametrize("preset", ["original", "best", "1080p", "480p", "audio-mp3"])
@pytest.mark.parametrize("path", ["/mp4/plain.mp4", "/mp4/late-index.mp4", "/webm/vp9.webm"])
def test_a_body_cut_short_is_never_a_success(
    preset: str, path: str, media: Media, run_preset: Run, out: Path
) -> None:
    whole = media(path).read_bytes()
    cut = out.parent / "cut"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SluiceError) as caught:
        run_preset(preset, cut)
    assert caught.value.code == "incomplete"
    assert list(out.iterdir()) == []


def without_length(path: Path) -> bytes:
    """The Matroska file with an unknown segment size, as a live muxer writes it."""
    data = bytearray(path.read_bytes())
    size_at = data.index(b"\x18\x53\x80\x67") + 4
    data[size_at : size_at + 8] = b"\x01" + b"\xff" * 7
    return bytes(data)


@pytest.mark.parametrize("preset", ["original", "best", "1080p", "720p"])
def test_where_the_structure_tells_nothing_the_end_is_looked_for(
    preset: str, make: Make, tmp_path: Path, run_preset: Run
) -> None:
    vp8 = ("-c:v", "libvpx", "-deadline", "realtime", "-c:a", "libopus")
    codec = vp8 if preset == "720p" else H264
    data = without_length(make("whole.mkv", *CLIP, *codec))
    source = tmp_path / "source.mkv"
    source.write_bytes(data)
    assert run_preset(preset, source).probe.duration == pytest.approx(4.0, abs=0.1)
    source.write_bytes(data[: len(data) // 2])
    with pytest.raises(SluiceError) as caught:
        run_preset(preset, source)
    assert caught.value.code == "incomplete"


def test_a_cut_flac_is_no_success(make: Make, tmp_path: Path, run_preset: Run) -> None:
    whole = make("tone.flac", "-f", "lavfi", "-i", "sine=duration=20")
    assert run_preset("original", whole).action is Action.KEEP
    cut = tmp_path / "cut.flac"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    with pytest.raises(SluiceError, match=r"of 20\.0 s") as caught:
        run_preset("original", cut)
    assert caught.value.code == "incomplete"


def test_a_cut_file_without_any_duration_is_told_by_ffmpeg(
    make: Make, tmp_path: Path, run_preset: Run
) -> None:
    whole = make("live.mkv", *CLIP, *H264, "-f", "matroska", "-live", "1").read_bytes()
    cut = tmp_path / "cut.mkv"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SluiceError) as caught:
        run_preset("1080p", cut)
    assert caught.value.code == "incomplete"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "incomplete"),
        (b"<!doctype html><html><body><video></body></html>", "bad_media"),
        (bytes(range(256)) * 64, "bad_media"),
    ],
)
@pytest.mark.parametrize("preset", ["original", "720p"])
def test_what_is_no_media_is_refused(
    preset: str, content: bytes, code: str, tmp_path: Path, run_preset: Run
) -> None:
    path = tmp_path / "page.mp4"
    path.write_bytes(content)
    with pytest.raises(SluiceError) as caught:
        run_preset(preset, path)
    assert caught.value.code == code


@pytest.mark.parametrize("name", ["list.m3u8", "list.ffconcat", "list.mp4"])
def test_a_file_that_names_other_files_opens_none(
    name: str, media: Media, tmp_path: Path, run_preset: Run
) -> None:
    secret = media("/hls/ts/v0-000.ts")
    path = tmp_path / name
    path.write_text(
        f"ffconcat version 1.0\nfile '{secret}'\n"
        if name.endswith("concat")
        else f"#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\nfile://{secret}\n#EXT-X-ENDLIST\n"
    )
    with pytest.raises(SluiceError) as caught:
        run_preset("best", path)
    assert caught.value.code == "bad_media"


@pytest.mark.parametrize("name", ["-i.mp4", "http:a.mp4", "%d.mp4", "a'b c\n.mp4", "名前🎬.mp4"])
def test_a_name_is_a_name(name: str, media: Media, tmp_path: Path, run_preset: Run) -> None:
    source = tmp_path / name
    shutil.copyfile(media("/mp4/hevc.mp4"), source)
    assert codecs(run_preset("720p", source)) == ["h264", "aac"]


def test_progress_grows_and_is_told(
    media: Media, tools: Tools, place: Workplace, out: Path
) -> None:
    seen: list[EncodeProgress] = []
    transcode(
        [media("/mp4/long.mp4")],
        replace(PRESETS["480p"], max_height=160),
        out,
        tools=tools,
        threads=1,
        place=place,
        on_progress=seen.append,
    )
    percents = [value.percent for value in seen if value.percent is not None]
    assert percents == sorted(percents)
    assert percents[-1] > 95


@pytest.mark.parametrize(
    ("word", "error"), [("canceled", CanceledRunError), ("drained", HandBackError)]
)
def test_a_stop_ends_ffmpeg_and_leaves_nothing(
    word: str, error: type[Exception], media: Media, run_preset: Run, out: Path
) -> None:
    def seconds() -> float:
        asked_at: list[float] = []
        started: list[tuple[int, int]] = []

        def stop() -> str | None:
            if not (out / ".result.mp4.part").exists():
                return None
            asked_at.append(time.monotonic())
            return word

        with pytest.raises(error):
            run_preset(SLOW, media("/mp4/long.mp4"), stop=stop, on_start=_into(started))
        took = time.monotonic() - asked_at[0]
        assert len(started) == 2
        assert not any(is_alive(*child) for child in started)
        assert list(out.iterdir()) == []
        return took

    assert fastest(seconds, below=2) < 2


def _into(started: list[tuple[int, int]]) -> Callable[[int, int], None]:
    return lambda *child: started.append(child)


def test_a_signal_while_the_input_is_opened_tells_nothing_of_the_media(
    make: Make, tools: Tools, place: Workplace, tmp_path: Path, out: Path
) -> None:
    """ffmpeg ends then with the status and the words of a file that is no media."""
    content = make("clip.mkv", *CLIP, *H264).read_bytes()
    pipe, target = tmp_path / "pipe", out / "clip.mp4"
    os.mkfifo(pipe)
    started: list[int] = []

    def feed() -> None:
        with pipe.open("wb", buffering=0) as writer:
            writer.write(content[:10])
            ffmpeg = psutil.Process(started[0])
            until(lambda: not _unread(writer) and ffmpeg.status() == psutil.STATUS_SLEEPING)
            ffmpeg.terminate()
        # Until then the first one may still hold the other end.
        until(lambda: len(started) > 1)
        with pipe.open("wb") as writer:
            writer.write(content)

    Thread(target=feed, daemon=True).start()
    convert(
        [
            *(str(tools.ffmpeg), "-nostdin", "-y", "-v", "error", "-progress", "pipe:1"),
            *("-i", f"file:{pipe}", "-c", "copy", f"file:{target}"),
        ],
        output=target,
        on_line=lambda _line: None,
        marker=lambda: None,
        place=replace(place, on_start=lambda pid, _time: started.append(pid)),
    )
    assert len(started) == 2
    assert target.stat().st_size


def _unread(pipe: io.FileIO) -> int:
    """Bytes that wait in it."""
    waiting = fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4)
    return int.from_bytes(waiting, sys.byteorder)


def test_too_long_is_the_hard_limit(media: Media, run_preset: Run) -> None:
    with pytest.raises(SluiceError) as caught:
        run_preset(SLOW, media("/mp4/long.mp4"), deadline_s=0.3)
    assert caught.value.code == "hard_time_limit"


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (Limits(file_size=20_000), "too_large"),
        (Limits(memory=40_000_000), "transcode_failed"),
    ],
)
def test_limits_are_told_as_what_they_are(
    limits: Limits, code: str, media: Media, run_preset: Run, out: Path
) -> None:
    with pytest.raises(SluiceError) as caught:
        run_preset("480p", media("/mp4/plain.mp4"), limits=limits)
    assert caught.value.code == code
    assert list(out.iterdir()) == []


def test_a_source_that_is_gone_is_a_storage_fault(run_preset: Run, tmp_path: Path) -> None:
    with pytest.raises(SluiceError) as caught:
        run_preset("best", tmp_path / "nowhere.mp4")
    assert caught.value.code == "storage_error"
