"""How each sample file is made: ffmpeg argument lists, and nothing that runs them.

All media comes from ffmpeg's own test sources, a few seconds long and small, with bit-exact flags
and one thread, so that one ffmpeg gives the same bytes everywhere.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

_BITEXACT = ("-fflags", "+bitexact", "-flags:v", "+bitexact", "-flags:a", "+bitexact")
_X264 = ("-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-threads", "1")
_AAC = ("-c:a", "aac", "-b:a", "64k", "-ac", "1")
_FAST = ("-movflags", "+faststart")
#: A key frame each second, so that segments and cuts have somewhere to be.
_GOP = ("-g", "25", "-keyint_min", "25", "-sc_threshold", "0")


@dataclass(frozen=True, slots=True)
class Recipe:
    """One folder of sample files.

    `steps` run in order in an empty folder, as arguments of ffmpeg. `mount` is the URL folder that
    serves the result: the named `outputs`, or every file of the folder when there are none.
    """

    name: str
    mount: str
    outputs: tuple[str, ...]
    steps: tuple[tuple[str, ...], ...]

    @property
    def key(self) -> str:
        """Name in the cache: changes whenever the recipe does."""
        digest = hashlib.sha256(json.dumps([self.name, self.steps]).encode()).hexdigest()
        return f"{self.name}-{digest[:12]}"


def _video(size: str = "320x180", seconds: float = 3, rate: int = 25) -> tuple[str, ...]:
    return ("-f", "lavfi", "-i", f"testsrc2=size={size}:rate={rate}:duration={seconds}")


def _tone(hertz: int = 440, seconds: float = 3) -> tuple[str, ...]:
    source = f"sine=frequency={hertz}:sample_rate=48000:duration={seconds}"
    return ("-f", "lavfi", "-i", source)


def _one(mount: str, output: str, *args: str) -> Recipe:
    """A recipe of one command and one file."""
    step = (*args, *_BITEXACT, output)
    return Recipe(output.replace(".", "-"), mount, (output,), (step,))


def _direct_video() -> tuple[Recipe, ...]:
    x264 = (*_X264, *_GOP)
    hevc = ("-c:v", "libx265", "-preset", "ultrafast", "-tag:v", "hvc1", "-threads", "1")
    quiet = "log-level=none:pools=none:frame-threads=1"
    tags = "color_primaries=bt2020:color_trc=smpte2084:colorspace=bt2020nc:range=tv"
    hdr = ("-vf", f"format=yuv420p10le,setparams={tags}")
    vfr = "select='not(between(mod(n,10),3,5))'"
    return (
        _one("/mp4/", "plain.mp4", *_video("1280x720"), *_tone(), *x264, *_AAC, *_FAST),
        _one("/mp4/", "small.mp4", *_video(), *_tone(), *x264, *_AAC, *_FAST),
        _one("/mp4/", "second.mp4", *_video("256x144"), *_tone(880), *x264, *_AAC, *_FAST),
        _one("/mp4/", "long.mp4", *_video(seconds=60), *_tone(seconds=60), *x264, *_AAC, *_FAST),
        _one("/mp4/", "late-index.mp4", *_video(), *_tone(), *x264, *_AAC),
        _one(
            "/mp4/",
            "hevc.mp4",
            *(*_video(), *_tone(), *hevc, "-pix_fmt", "yuv420p"),
            *("-x265-params", quiet, *_AAC, *_FAST),
        ),
        _one(
            "/mp4/",
            "tenbit.mp4",
            *(*_video(), *_tone(), "-c:v", "libx264", "-preset", "ultrafast"),
            *("-pix_fmt", "yuv420p10le", "-threads", "1", *_GOP, *hdr, *_AAC, *_FAST),
        ),
        _one("/mp4/", "silent.mp4", *_video(), *x264, *_FAST),
        _one(
            "/mp4/",
            "odd.mp4",
            *(
                *_video(),
                *_tone(),
                "-vf",
                "format=yuv444p,scale=321:181",
                "-c:v",
                "libx264",
                "-preset",
                "ultrafast",
            ),
            *("-pix_fmt", "yuv444p", "-threads", "1", *_AAC, *_FAST),
        ),
        _one(
            "/mp4/",
            "vfr.mp4",
            *(*_video(), *_tone(), "-vf", vfr, "-fps_mode", "vfr", *x264, *_AAC, *_FAST),
        ),
        Recipe(
            "rotated-mp4",
            "/mp4/",
            ("rotated.mp4",),
            (
                (*_video(), *_tone(), *x264, *_AAC, *_BITEXACT, "upright.mp4"),
                (
                    *("-display_rotation", "90", "-i", "upright.mp4", "-c", "copy"),
                    *(*_FAST, *_BITEXACT, "rotated.mp4"),
                ),
            ),
        ),
        _one(
            "/webm/",
            "vp9.webm",
            *(*_video(), *_tone(), "-c:v", "libvpx-vp9", "-deadline", "realtime"),
            *("-cpu-used", "8", "-b:v", "200k", "-threads", "1", "-c:a", "libopus"),
        ),
    )


def _with_cover(output: str, *codec: str) -> Recipe:
    """Audio with a picture: the picture first, as a second endless source would cut the sound."""
    picture = ("-f", "lavfi", "-i", "testsrc2=size=160x160:rate=1:duration=1", "-frames:v", "1")
    jpeg = ("-c:v", "mjpeg", "-pix_fmt", "yuvj420p", "-threads", "1", *_BITEXACT, "cover.jpg")
    both = ("-i", "cover.jpg", "-map", "0:a", "-map", "1:v", "-c:v", "copy")
    attach = ("-disposition:v", "attached_pic", *_BITEXACT, output)
    return Recipe(
        output.replace(".", "-"),
        "/audio/",
        (output,),
        ((*picture, *jpeg), (*_tone(), *both, *codec, *attach)),
    )


def _audio() -> tuple[Recipe, ...]:
    mp3 = ("-c:a", "libmp3lame", "-b:a", "64k")
    return (
        _one("/audio/", "tone.mp3", *_tone(), *mp3),
        _one("/audio/", "tone.m4a", *_tone(), *_AAC, *_FAST),
        _with_cover("cover.mp3", *mp3, "-id3v2_version", "3"),
        _with_cover("cover.m4a", *_AAC, *_FAST),
    )


def _ladder() -> tuple[str, ...]:
    """Two renditions of one source: 320x180 and 640x360, key frames aligned."""
    return (
        *(*_video("640x360", 4), *_tone(seconds=4)),
        *("-filter_complex", "[0:v]split[a][b];[a]scale=320:180[low]"),
        *("-map", "[low]", "-map", "[b]", *_X264, *_GOP, "-b:v:0", "150k", "-b:v:1", "400k"),
    )


def _hls(segments: str, *extra: str, audio_maps: int, streams: str) -> tuple[str, ...]:
    maps = ("-map", "1:a") * audio_maps
    return (
        *(*_ladder(), *maps, *_AAC, *_BITEXACT, "-f", "hls", "-hls_time", "1"),
        *("-hls_playlist_type", "vod", "-hls_list_size", "0", "-master_pl_name", "master.m3u8"),
        *("-var_stream_map", streams, "-hls_segment_filename", segments, *extra, "v%v.m3u8"),
    )


def _adaptive() -> tuple[Recipe, ...]:
    grouped = "a:0,agroup:tone,default:yes,language:en v:0,agroup:tone v:1,agroup:tone"
    fmp4 = ("-hls_segment_type", "fmp4", "-hls_fmp4_init_filename", "init-%v.mp4")
    muxed = "v:0,a:0 v:1,a:1"
    return (
        Recipe("hls-ts", "/hls/ts/", (), (_hls("v%v-%03d.ts", audio_maps=2, streams=muxed),)),
        Recipe(
            "hls-audio", "/hls/audio/", (), (_hls("v%v-%03d.ts", audio_maps=1, streams=grouped),)
        ),
        Recipe(
            "hls-fmp4",
            "/hls/fmp4/",
            (),
            (_hls("v%v-%03d.m4s", *fmp4, audio_maps=2, streams=muxed),),
        ),
        Recipe(
            "dash",
            "/dash/",
            (),
            (
                (
                    *(*_ladder(), "-map", "1:a", *_AAC, *_BITEXACT, "-f", "dash"),
                    *("-seg_duration", "1", "-use_template", "1", "-use_timeline", "1"),
                    *("-adaptation_sets", "id=0,streams=v id=1,streams=a"),
                    *("-init_seg_name", "init-$RepresentationID$.m4s"),
                    *("-media_seg_name", "part-$RepresentationID$-$Number%03d$.m4s"),
                    "manifest.mpd",
                ),
            ),
        ),
    )


RECIPES: tuple[Recipe, ...] = (*_direct_video(), *_audio(), *_adaptive())


def recipe_for(path: str) -> tuple[Recipe, str] | None:
    """The recipe that makes the file behind a URL path, and the file's name in its folder."""
    folder, _, name = path.rpartition("/")
    if not name or name.startswith("."):
        return None
    for recipe in RECIPES:
        if recipe.mount == folder + "/" and (not recipe.outputs or name in recipe.outputs):
            return recipe, name
    return None
