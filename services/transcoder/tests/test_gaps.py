"""Sources with named gaps: what is there becomes a file in its own time, other losses are found."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sluice_core.domain.errors import SluiceError
from sluice_core.domain.gaps import Gap, Span
from sluice_core.domain.presets import load_presets
from sluice_transcoder.children import Workplace, probe
from sluice_transcoder.gaps import look
from sluice_transcoder.hls.package import package
from sluice_transcoder.plan import make_plan
from sluice_transcoder.tools import Tools
from sluice_transcoder.transcode import transcode
from sluice_transcoder.verify import check_length

PRESETS = load_presets()
Media = Callable[[str], Path]

THIRD = Gap("video", "1", "not_found", "fragments", 1, 4, 1.0, (Span(3, 3, 2.0, 3.0),))
LAST = Gap("video", "1", "not_found", "fragments", 1, 4, 1.0, (Span(4, 4, 3.0, 4.0),))


@pytest.fixture
def dash(media: Media, tmp_path: Path) -> Callable[..., Path]:
    """One representation of the sample, of these parts alone."""

    def join(number: int, *parts: int) -> Path:
        path = tmp_path / f"{number}.media"
        names = [f"init-{number}.m4s", *(f"part-{number}-{part:03d}.m4s" for part in parts)]
        path.write_bytes(b"".join(media(f"/dash/{name}").read_bytes() for name in names))
        return path

    return join


def times(tools: Tools, path: Path, stream: str) -> list[float]:
    ran = subprocess.run(
        [
            *(tools.ffprobe, "-v", "error", "-select_streams", stream),
            *("-show_entries", "packet=pts_time", "-of", "csv=p=0", path),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return sorted(float(line.strip(",")) for line in ran.stdout.split())


def made_of(
    preset: str, sources: list[Path], gaps: list[Gap | None], tools: Tools, place: Workplace
) -> list[Path]:
    lacking = [
        look(path, gap, tools=tools, place=place) for path, gap in zip(sources, gaps, strict=True)
    ]
    ends_early = any(one.ends_early for one in lacking)
    run = package if PRESETS[preset].ladder else transcode
    out = place.scratch.parent / "out"
    out.mkdir(exist_ok=True)
    made = run(
        sources,
        PRESETS[preset],
        out,
        tools=tools,
        threads=1,
        place=replace(place, ends_early=ends_early),
        lacking=lacking,
    )
    return [file.path for file in made.files]


@pytest.mark.parametrize("preset", ["best", "480p", "hls"])
def test_pictures_after_a_gap_stay_with_their_sound(
    preset: str, dash: Callable[..., Path], tools: Tools, place: Workplace
) -> None:
    sources = [dash(1, 1, 2, 4), dash(2, 1, 2, 3, 4, 5)]
    made = made_of(preset, sources, [THIRD, None], tools, place)
    films = [path for path in made if path.suffix == ".mp4"]
    film = next((path for path in films if path.name == "360p.mp4"), films[0])
    seen = times(tools, film, "v")
    assert seen[-1] - seen[0] == pytest.approx(3.96, abs=0.03)
    sound = films[-1] if preset == "hls" else film
    heard = times(tools, sound, "a")
    assert heard[-1] - seen[0] == pytest.approx(4.0, abs=0.1)


@pytest.mark.parametrize("preset", ["audio-mp3", "audio-opus"])
def test_sound_after_a_gap_comes_when_it_should(
    preset: str, dash: Callable[..., Path], tools: Tools, place: Workplace
) -> None:
    gap = replace(THIRD, kind="audio", stream="2", total=5)
    [made] = made_of(preset, [dash(2, 1, 2, 4, 5)], [gap], tools, place)
    heard = times(tools, made, "a")
    assert heard[-1] == pytest.approx(4.0, abs=0.1)


def test_pictures_that_end_before_their_sound(
    dash: Callable[..., Path], tools: Tools, place: Workplace
) -> None:
    sources = [dash(1, 1, 2, 3), dash(2, 1, 2, 3, 4, 5)]
    [made] = made_of("480p", sources, [LAST, None], tools, place)
    assert times(tools, made, "v")[-1] == pytest.approx(2.96, abs=0.03)
    assert times(tools, made, "a")[-1] == pytest.approx(4.0, abs=0.1)


def cut(path: Path, target: Path, share: float) -> Path:
    data = path.read_bytes()
    target.write_bytes(data[: int(len(data) * share)])
    return target


def end_of(path: Path, whole: Path) -> Gap:
    has, total = path.stat().st_size, whole.stat().st_size
    spans = (Span(has, total - 1),)
    return Gap("muxed", "0", "incomplete", "bytes", total - has, total, None, spans)


@pytest.mark.parametrize("preset", ["best", "480p", "audio-m4a", "original"])
def test_a_file_without_its_end(
    preset: str, media: Media, tools: Tools, place: Workplace, tmp_path: Path
) -> None:
    whole = media("/mp4/plain.mp4")
    source = cut(whole, tmp_path / "cut", 0.7)
    [made] = made_of(preset, [source], [end_of(source, whole)], tools, place)
    found = look(source, end_of(source, whole), tools=tools, place=place)
    assert found.gap is not None
    [span] = found.gap.spans
    assert span.start is not None
    assert 1.9 < span.start < 2.2
    assert (span.end, found.gap.seconds) == (3.0, pytest.approx(3.0 - span.start))
    if preset == "original":
        assert made.read_bytes() == source.read_bytes()
    else:
        assert times(tools, made, "a")[-1] == pytest.approx(span.start, abs=0.1)


def test_half_of_it_must_play(media: Media, tools: Tools, place: Workplace, tmp_path: Path) -> None:
    whole = media("/mp4/plain.mp4")
    source = cut(whole, tmp_path / "cut", 0.4)
    with pytest.raises(SluiceError) as failure:
        look(source, end_of(source, whole), tools=tools, place=place)
    assert failure.value.code == "incomplete"


def test_an_index_that_is_missing_can_t_be_kept(
    media: Media, tools: Tools, place: Workplace, tmp_path: Path
) -> None:
    whole = media("/mp4/late-index.mp4")
    source = cut(whole, tmp_path / "cut", 0.7)
    with pytest.raises(SluiceError) as failure:
        look(source, end_of(source, whole), tools=tools, place=place)
    assert failure.value.code == "incomplete"


def test_what_nobody_named_is_still_a_failure(
    media: Media, tools: Tools, place: Workplace, tmp_path: Path
) -> None:
    whole = media("/mp4/plain.mp4")
    source = cut(whole, tmp_path / "cut", 0.7)
    with pytest.raises(SluiceError) as failure:
        made_of("480p", [source], [THIRD], tools, place)
    assert failure.value.code == "incomplete"


@pytest.mark.parametrize(("gap", "promised"), [(LAST, 3.0), (THIRD, 4.0)])
def test_a_loss_beyond_the_named_one_is_found(
    gap: Gap, promised: float, dash: Callable[..., Path], tools: Tools, place: Workplace
) -> None:
    """A named end is taken off what must come of it; a hole in the middle leaves time as it is."""
    source = dash(1, 1, 2, 3, 4)
    found = probe(source, ffprobe=tools.ffprobe, place=place)
    seen = look(source, gap, tools=tools, place=place).seen(found)
    duration = make_plan([seen], PRESETS["480p"]).duration
    assert duration == pytest.approx(promised)
    check_length(promised, duration)
    with pytest.raises(SluiceError) as failure:
        check_length(promised - 1, duration)
    assert failure.value.code == "incomplete"
