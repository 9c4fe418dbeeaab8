"""Long encodes in segments, by real ffmpeg: as one run, and none of them twice."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sluice_core.adapters.storage import Storage, open_storage
from sluice_core.domain.errors import CanceledRunError, HandBackError, SluiceError
from sluice_core.domain.lanes import Actor
from sluice_core.domain.paths import RunId
from sluice_core.domain.presets import Preset, VideoEncode, load_presets
from sluice_core.runtime.children.spec import LOCK_NAME
from sluice_core.runtime.pieces import Owner
from sluice_testing.clips import picture_times
from sluice_testing.waiting import until
from sluice_transcoder import encode, segments
from sluice_transcoder.children import Workplace
from sluice_transcoder.kept import Shelf
from sluice_transcoder.line import Line, Turn
from sluice_transcoder.progress import EncodeProgress
from sluice_transcoder.segments import Cutting
from sluice_transcoder.tools import Tools
from sluice_transcoder.transcode import Result, transcode

Make = Callable[..., Path]

PRESETS = load_presets()
#: Smaller than the sources, so that they are encoded.
SMALL = replace(PRESETS["480p"], max_height=72)
FAST = ("-preset", "ultrafast")
X264 = ("-c:v", "libx264", "-preset", "veryfast", "-bf", "3")
SOUND = ("-c:a", "aac")
JOB = "01JZZZZZZZZZZZZZZZZZZZZZZZ"


def pattern(seconds: float, rate: str = "25") -> tuple[str, ...]:
    return ("-f", "lavfi", "-i", f"testsrc2=size=160x90:rate={rate}:duration={seconds}")


def tone(seconds: float) -> tuple[str, ...]:
    return ("-f", "lavfi", "-i", f"sine=duration={seconds}")


@dataclass
class Desk:
    """Runs of one job, each with a scratch folder of its own, over one storage."""

    tools: Tools
    place: Workplace
    root: Path
    storage: Storage
    epoch: int = 0
    owner: Owner = Owner.SELF
    seen: list[EncodeProgress] = field(default_factory=list)

    def run(
        self,
        *sources: Path,
        preset: Preset = SMALL,
        length: float = 4.0,
        name: str = "source",
        stop: Callable[[], str | None] = lambda: None,
        on_join: Callable[[int], None] = lambda _bytes: None,
        line: Line | None = None,
    ) -> Result:
        self.epoch += 1
        self.seen = []
        scratch = self.root / f"run.{self.epoch}"
        scratch.mkdir()
        run = RunId(JOB, Actor.TRANSCODE, self.epoch)
        return transcode(
            sources,
            preset,
            scratch,
            tools=self.tools,
            threads=1,
            place=replace(self.place, scratch=scratch, stop=stop),
            cutting=Cutting(
                seconds=length,
                sources=[(name, path.stat().st_size) for path in sources],
                shelf=Shelf(self.storage, run, scratch, lambda: self.owner),
                on_join=on_join,
                line=line or Line(),
            ),
            on_progress=self.seen.append,
        )

    def whole(self, *sources: Path, preset: Preset = SMALL) -> Result:
        return self.run(*sources, preset=preset, length=0)

    def left(self) -> list[str]:
        """Files of the newest run, but for its lock."""
        found = (self.root / f"run.{self.epoch}").iterdir()
        return sorted(path.name for path in found if path.name != LOCK_NAME)

    def kept(self) -> list[str]:
        return sorted(self.storage.keys(f"work/{JOB}/"))


@pytest.fixture
def desk(tools: Tools, place: Workplace, tmp_path: Path) -> Desk:
    (tmp_path / "storage").mkdir()
    storage = open_storage(f"file://{tmp_path}/storage")
    storage.check()
    return Desk(tools, place, tmp_path, storage)


def encoded(logs: list[dict[str, object]]) -> list[object]:
    """Numbers of the segments that were encoded."""
    return [line["number"] for line in logs if line["event"] == "segment_encoded"]


def b_frames(make: Make) -> list[Path]:
    return [make("b.mp4", *pattern(20), *tone(20), *X264, "-g", "50", *SOUND)]


def open_groups(make: Make) -> list[Path]:
    params = "open-gop=1:keyint=52:min-keyint=52:scenecut=0:bframes=3:b-adapt=0"
    return [make("o.mp4", *pattern(20, "30000/1001"), *tone(20), *X264, "-x264-params", params)]


def vp9(make: Make) -> list[Path]:
    codec = ("-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-g", "50")
    return [make("v.webm", *pattern(20), *tone(20), *codec, "-c:a", "libopus")]


def variable_rate(make: Make) -> list[Path]:
    some = "select='not(mod(n,7))+lt(mod(n,100),40)'"
    rate = ("-vf", some, "-fps_mode", "vfr", "-g", "40")
    return [make("r.mp4", *pattern(20, "50"), *tone(20), *rate, *X264, *SOUND)]


def no_sound(make: Make) -> list[Path]:
    return [make("n.mkv", *pattern(20), *X264, "-g", "50")]


def longer_sound(make: Make) -> list[Path]:
    return [make("l.mp4", *pattern(20), *tone(26), *X264, "-g", "50", *SOUND)]


def late_pictures(make: Make) -> list[Path]:
    late = ("-vf", "setpts=PTS+0.7/TB", "-g", "48")
    return [make("p.mp4", *pattern(20, "24"), *tone(20), *late, *X264, *SOUND)]


def two_files(make: Make) -> list[Path]:
    pictures = make("f.mp4", *pattern(20), *X264, "-g", "50")
    return [pictures, make("f.webm", *tone(20), "-c:a", "libopus")]


def rotated(make: Make) -> list[Path]:
    [source] = b_frames(make)
    return [make("t.mp4", "-display_rotation", "90", "-i", source, "-c", "copy")]


@pytest.mark.parametrize(
    ("source", "to"),
    [
        (b_frames, "mp4"),
        (open_groups, "mp4"),
        (open_groups, "mkv"),
        (vp9, "mp4"),
        (variable_rate, "mp4"),
        (variable_rate, "mkv"),
        (no_sound, "mp4"),
        (longer_sound, "mp4"),
        (late_pictures, "mp4"),
        (two_files, "mkv"),
        (rotated, "mp4"),
    ],
)
def test_joined_segments_are_what_one_run_gives(
    source: Callable[[Make], list[Path]], to: str, make: Make, desk: Desk
) -> None:
    sources = source(make)
    preset = replace(SMALL, containers=(to,))
    one = desk.whole(*sources, preset=preset)
    with capture_logs() as logs:
        cut = desk.run(*sources, preset=preset)
    assert len(encoded(logs)) >= 4, logs
    assert not [line for line in logs if line["log_level"] == "warning"]
    assert desk.left() == [cut.path.name]
    assert cut.share == 1.0
    single, joined = (picture_times(found.path) for found in (one, cut))
    assert len(joined) == len(single)
    # Matroska rounds to milliseconds.
    assert joined == pytest.approx(single, abs=0.002 if to == "mkv" else 0.0001)
    frame = (single[-1] - single[0]) / (len(single) - 1)
    assert cut.probe.duration == pytest.approx(one.probe.duration, abs=frame)
    for of_cut, of_one in zip(cut.probe.streams, one.probe.streams, strict=True):
        assert of_cut.codec == of_one.codec
        assert of_cut.shown_size == of_one.shown_size
        assert of_cut.start_time == pytest.approx(of_one.start_time, abs=0.002)
        assert of_cut.duration == pytest.approx(of_one.duration, abs=frame)
    assert cut.probe.layout.fast_start == one.probe.layout.fast_start


def test_the_joined_file_can_be_decoded_to_its_end(make: Make, desk: Desk) -> None:
    result = desk.run(*open_groups(make))
    ran = subprocess.run(
        [desk.tools.ffmpeg, "-v", "error", "-i", result.path, "-f", "null", "-"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert ran.stderr == b""


def test_progress_is_of_the_whole_and_never_goes_back(make: Make, desk: Desk) -> None:
    desk.run(*b_frames(make))
    percents = [value.percent or 0.0 for value in desk.seen]
    assert percents == sorted(percents)
    assert 0 < percents[0] < 40
    assert percents[-1] > 97


def test_no_more_help_is_wanted_once_all_segments_are_there(make: Make, desk: Desk) -> None:
    left: list[int] = []

    class Watched(Line):
        def withdraw(self) -> None:
            left.append(len(self._left))

    desk.run(*b_frames(make), line=Watched(), on_join=lambda _bytes: left.append(-1))
    assert left == [0, -1]


class Stop(Line):
    """Stops the run whose line it is in the middle of its third segment, however short that is."""

    def __init__(self, desk: Desk, word: str) -> None:
        super().__init__()
        self._part = lambda: desk.root / f"run.{desk.epoch}" / "segment.00002.part"
        self._word = word
        self._is_third = False

    def turn(self) -> Turn | None:
        turn = super().turn()
        self._is_third = turn is not None and turn.number == 2
        return turn

    def __call__(self) -> str | None:
        if not self._is_third:
            return None
        until(lambda: self._part().exists())
        return self._word


def stopped(desk: Desk, source: Path) -> None:
    """A run that had two segments when it ended."""
    stop = Stop(desk, "drained")
    with pytest.raises(HandBackError):
        desk.run(source, stop=stop, line=stop)
    assert len(desk.kept()) == 2
    assert desk.left() == []


def test_the_next_run_goes_on_at_the_first_segment_that_is_not_done(make: Make, desk: Desk) -> None:
    [source] = b_frames(make)
    stopped(desk, source)
    with capture_logs() as logs:
        result = desk.run(source)
    assert encoded(logs) == [2, 3, 4]
    assert desk.seen[0].percent == pytest.approx(20, abs=2)
    assert result.share == pytest.approx(0.6, abs=0.05)
    assert len(picture_times(result.path)) == 500
    assert desk.left() == ["result.mp4"]
    # Of its own epoch only.
    assert len(desk.kept()) == 5
    assert [key for key in desk.kept() if "segments.1/" in key] == desk.kept()[:2]


@pytest.mark.parametrize("how", ["content", "length", "gone"])
def test_a_kept_segment_that_is_not_what_it_was_is_not_used(
    how: str, make: Make, desk: Desk
) -> None:
    [source] = b_frames(make)
    stopped(desk, source)
    path = desk.root / "storage" / desk.kept()[1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    if how != "gone":
        path.write_bytes(data[:-1] if how == "length" else data)
    with capture_logs() as logs:
        result = desk.run(source)
    assert encoded(logs) == [1, 2, 3, 4]
    assert len(picture_times(result.path)) == 500


def test_a_storage_that_is_away_for_a_while_costs_no_segment(
    make: Make, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    [source] = b_frames(make)
    stopped(desk, source)
    right, tries = desk.storage.stat, list[str]()

    def stat(key: str) -> object:
        tries.append(key)
        if len(tries) < 3:
            raise SluiceError("away", code="storage_error")
        return right(key)

    monkeypatch.setattr(desk.storage, "stat", stat)
    with capture_logs() as logs:
        desk.run(source)
    assert encoded(logs) == [2, 3, 4]
    monkeypatch.setattr(segments, "STORAGE_PATIENCE", 0.0)
    tries.clear()
    with pytest.raises(SluiceError, match="away"):
        desk.run(source)


@pytest.mark.parametrize("what", ["preset", "source", "length", "version"])
def test_segments_of_another_plan_are_not_used(what: str, make: Make, desk: Desk) -> None:
    [source] = b_frames(make)
    stopped(desk, source)
    changes: dict[str, object] = {}
    if what == "preset":
        video = VideoEncode(encoder="libx264", crf=30, speed="veryfast")
        changes = {"preset": replace(SMALL, video=video)}
    elif what == "source":
        changes = {"name": "another"}
    elif what == "length":
        changes = {"length": 6.0}
    else:
        desk.tools = replace(desk.tools, version="ffmpeg version 0")
    with capture_logs() as logs:
        desk.run(source, **changes)  # type: ignore[arg-type]
    assert encoded(logs) == list(range(3 if what == "length" else 5))


def test_a_segment_stored_after_the_job_was_over_is_taken_away(make: Make, desk: Desk) -> None:
    [source] = b_frames(make)
    desk.owner = Owner.NOBODY
    stop = Stop(desk, "canceled")
    with pytest.raises(CanceledRunError):
        desk.run(source, stop=stop, line=stop)
    assert desk.kept() == []
    assert desk.left() == []


def test_a_storage_that_refuses_segments_ends_no_encode(
    make: Make, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_key: str, _path: Path) -> None:
        raise SluiceError("no", code="storage_error")

    monkeypatch.setattr(desk.storage, "put", refuse)
    result = desk.run(*b_frames(make))
    assert len(picture_times(result.path)) == 500


def test_no_room_for_the_joined_file_is_told_before_it_is_written(make: Make, desk: Desk) -> None:
    asked: list[int] = []

    def refuse(size: int) -> None:
        asked.append(size)
        raise SluiceError("full", code="disk_full")

    with pytest.raises(SluiceError, match="full"):
        desk.run(*b_frames(make), on_join=refuse)
    assert asked == [sum(int(key.rsplit("-", 2)[1]) for key in desk.kept())]
    assert desk.left() == []


def test_what_is_not_as_one_run_gives_it_is_done_in_one_run(
    make: Make, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    [source] = b_frames(make)
    right = encode.trim

    def a_picture_short(segment: encode.Segment) -> str:
        return right(replace(segment, start=(segment.start or 0.0) + 0.04))

    monkeypatch.setattr(encode, "trim", a_picture_short)
    with capture_logs() as logs:
        result = desk.run(source)
    assert [line["reason"] for line in logs if line["event"] == "encoded_in_one_run"] == [
        "segment 0 has 99 pictures of 100"
    ]
    # Told by the first, not after all of them.
    assert encoded(logs) == []
    assert len(picture_times(result.path)) == 500


@pytest.mark.parametrize("fault", ["lost", "moved", "sound"])
def test_a_joined_file_that_is_not_right_is_not_taken(
    fault: str, make: Make, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    [source] = b_frames(make)
    command = encode.join_command

    def wrong(*args: object, **kwargs: object) -> list[str]:
        words = command(*args, **kwargs)  # type: ignore[arg-type]
        script = next(Path(w.removeprefix("file:")) for w in words if w.endswith("segment.list"))
        if fault == "lost":
            script.write_text(script.read_text().replace("file 'segment.00002.mp4'\n", ""))
        elif fault == "moved":
            script.write_text(script.read_text().replace("duration 4.0", "duration 4.1", 1))
        else:
            words[words.index("-itsoffset") + 1] = "0.300000"
        return words

    monkeypatch.setattr(encode, "join_command", wrong)
    one = desk.whole(source)
    with capture_logs() as logs:
        result = desk.run(source)
    [reason] = [line["reason"] for line in logs if line["event"] == "encoded_in_one_run"]
    assert {"lost": "400", "moved": "0.100 s", "sound": "0.300 s"}[fault] in reason
    assert picture_times(result.path) == picture_times(one.path)
