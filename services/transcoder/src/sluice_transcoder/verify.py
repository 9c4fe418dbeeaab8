"""Honest completion: whether the sources are whole, and whether the result is what was planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice_core.domain.errors import SluiceError
from sluice_transcoder.plan import Action

if TYPE_CHECKING:
    from sluice_transcoder.plan import Plan
    from sluice_transcoder.probe import Probe

#: Encoders pad and trim by a frame or two, containers round; half a second is beyond both.
_SLACK_SECONDS = 0.5
_SLACK_SHARE = 0.01

#: The last packet starts up to its own length before the end, a still picture's long before.
_TAIL_SECONDS = 1.5

#: A longer result is no loss; only one that makes no sense is refused.
_SURPLUS_SECONDS = 5.0
_SURPLUS_SHARE = 0.1


def check_source(probe: Probe) -> None:
    """Refuse a source that is not whole.

    Raises:
        SluiceError: `incomplete` when bytes are missing, `bad_media` when nothing plays.

    """
    if not probe.layout.complete:
        raise SluiceError("the end of the media is missing", code="incomplete")
    if not probe.videos and not probe.audios:
        raise SluiceError("there are no pictures and no sound in it", code="bad_media")


def needs_reading(probe: Probe) -> bool:
    """Whether only reading to the end can tell that a file kept as it is, is whole."""
    exact = probe.duration is not None and not probe.duration_is_guess
    return exact and not probe.layout.tells_length


def check_tail(probe: Probe, last: float) -> None:
    """Refuse a source whose packets end long before its header says.

    Args:
        probe: the source.
        last: seconds from its start to its last packet.

    Raises:
        SluiceError: `incomplete`.

    """
    duration = probe.duration or 0.0
    if last < duration - max(_TAIL_SECONDS, duration * _SLACK_SHARE):
        raise SluiceError(f"only {last:.1f} s of {duration:.1f} s could be read", code="incomplete")


def check_result(result: Probe, plan: Plan, *, written: float | None = None) -> None:
    """Refuse a result that is not what was planned.

    Args:
        result: the finished file, probed.
        plan: what it was made by.
        written: seconds that ffmpeg says it wrote, None when nothing ran.

    Raises:
        SluiceError: `incomplete` when the media ends too early, `transcode_failed` otherwise.

    """
    if not result.size:
        raise SluiceError("the result is empty", code="transcode_failed")
    if not result.layout.complete:
        raise SluiceError("the end of the result is missing", code="transcode_failed")
    _check_streams(result, plan)
    _check_duration(result, plan, written)


def _check_streams(result: Probe, plan: Plan) -> None:
    if plan.action is Action.KEEP:
        # Kept as served, with whatever else is in it.
        return
    wanted_video = [plan.video.codec] if plan.video else []
    got_video = [stream.codec for stream in result.videos]
    wanted_audio = [track.codec for track in plan.audio]
    got_audio = [stream.codec for stream in result.audios]
    if got_video != wanted_video or got_audio != wanted_audio:
        raise SluiceError(
            f"the result holds {_words(got_video + got_audio)}"
            f" instead of {_words(wanted_video + wanted_audio)}",
            code="transcode_failed",
        )


def _check_duration(result: Probe, plan: Plan, written: float | None) -> None:
    """What the sources promise; where they only guess, what ffmpeg says it wrote."""
    expected = plan.duration if plan.duration is not None else written
    if expected:
        check_length(result.duration or 0.0, expected)


def check_length(got: float, expected: float) -> None:
    """Refuse a result of `got` seconds where there should be `expected`.

    Raises:
        SluiceError: `incomplete` when it ends too early, `transcode_failed` when far too late.

    """
    if got < expected - max(_SLACK_SECONDS, expected * _SLACK_SHARE):
        raise SluiceError(f"only {got:.1f} s of {expected:.1f} s could be read", code="incomplete")
    if got > expected + max(_SURPLUS_SECONDS, expected * _SURPLUS_SHARE):
        raise SluiceError(
            f"the result lasts {got:.1f} s instead of {expected:.1f} s", code="transcode_failed"
        )


def _words(codecs: list[str]) -> str:
    return " and ".join(codecs) or "nothing"
