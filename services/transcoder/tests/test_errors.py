"""Last words of ffmpeg 8.1, recorded from runs with these faults."""

from __future__ import annotations

import pytest

from sluice_core.domain.errors import ErrorClass
from sluice_transcoder.errors import (
    error_from,
    is_cut_short,
    last_line,
    obeyed_signal,
    opened_nothing,
)

DISK_FULL = """\
[out#0/matroska @ 0x7ff3e6cf8180] Error writing trailer: No space left on device
[out#0/matroska @ 0x7ff3e6cf8180] Error closing file: No space left on device
"""
TOO_LARGE = "[out#0/mp4 @ 0x7f8c98942180] Error writing trailer: File too large\n"
HTML = """\
[in#0 @ 0x7f919275c040] Error opening input: Invalid data found when processing input
Error opening input file file:/tmp/h.mp4.
Error opening input files: Invalid data found when processing input
"""
NO_INDEX = """\
[in#0 @ 0x7f8c2bea7040] moov atom not found
[in#0 @ 0x7f8c2bea8040] Error opening input: Invalid data found when processing input
"""
CUT_MP4 = """\
[h264 @ 0x7f4ff24a9c00] Invalid NAL unit size (3264 > 2811).
[in#0/mov,mp4,m4a,3gp,3g2,mj2 @ 0x7f4ff2646040] stream 1, offset 0x4fe5: partial file
"""
CUT_MKV = "[in#0/matroska,webm @ 0x7ff817489040] File ended prematurely\n"
MISSING = """\
[in#0 @ 0x7fcf6beaa040] Error opening input: No such file or directory
Error opening input files: No such file or directory
"""
NO_ENCODER = """\
[vost#0:0 @ 0x7ffb38f15080] Unknown encoder 'libnope'
[vost#0:0 @ 0x7ffb38f15080] Error selecting an encoder
Error opening output files: Encoder not found
"""
NO_FILTER = """\
[AVFilterGraph @ 0x7fe6bfd10100] Error parsing a filter description around:
[AVFilterGraph @ 0x7fe6bfd10100] Error parsing filterchain 'nope=3' around:
Error opening output files: Invalid argument
"""
BAD_SPEED = """\
x264 [error]: invalid preset 'nope'
[libx264 @ 0x7f939814dc00] Error setting preset/tune nope/(null).
"""
NO_STREAM = """\
Stream map '' matches no streams.
To ignore this, add a trailing '?' to the map.
Failed to set value '0:7' for option 'map': Invalid argument
Error parsing options for output file file:o.mp4.
"""
WRONG_CONTAINER = """\
[webm @ 0x7f5990ee4840] Only VP8 or VP9 or AV1 video and Vorbis or Opus audio and WebVTT subtitles \
are supported for WebM.
"""
OTHER_PROTOCOL = """\
[file @ 0x7f7eaf664c40] Protocol 'file' not on whitelist 'pipe'!
[in#0 @ 0x7f7eaf664640] Error opening input: Invalid argument
"""
NO_MEMORY = """\
x264 [error]: malloc of size 44329344 failed
[vf#0:0 @ 0x7f7e77f2d080] Error sending frames to consumers: Generic error in an external library
"""
READ_ONLY = "[out#0/mp4 @ 0x1] Error opening output file:/data/o.mp4: Read-only file system\n"
MUSL_READ = "[in#0 @ 0x7fa8ca195680] Error opening input: I/O error\n"
MUSL_MEMORY = "Error while filtering: Out of memory\n"
MUSL_QUOTA = "[out#0/mp4 @ 0x1] Error writing trailer: Quota exceeded\n"
STRANGE = "[abc @ 0x7f0000000000] Something never seen before\n\n"


@pytest.mark.parametrize(
    ("stderr", "code", "error_class"),
    [
        (DISK_FULL, "disk_full", ErrorClass.TRANSIENT),
        (TOO_LARGE, "too_large", ErrorClass.PERMANENT),
        (HTML, "bad_media", ErrorClass.PERMANENT),
        (NO_INDEX, "bad_media", ErrorClass.PERMANENT),
        (CUT_MP4, "incomplete", ErrorClass.TRANSIENT),
        (CUT_MKV, "incomplete", ErrorClass.TRANSIENT),
        (MISSING, "storage_error", ErrorClass.TRANSIENT),
        (READ_ONLY, "storage_error", ErrorClass.TRANSIENT),
        (NO_ENCODER, "transcode_failed", ErrorClass.MANUAL),
        (NO_FILTER, "transcode_failed", ErrorClass.MANUAL),
        (BAD_SPEED, "transcode_failed", ErrorClass.MANUAL),
        (NO_STREAM, "bad_media", ErrorClass.PERMANENT),
        (WRONG_CONTAINER, "transcode_failed", ErrorClass.PERMANENT),
        (OTHER_PROTOCOL, "bad_media", ErrorClass.PERMANENT),
        (NO_MEMORY, "transcode_failed", ErrorClass.TRANSIENT),
        (MUSL_READ, "storage_error", ErrorClass.TRANSIENT),
        (MUSL_MEMORY, "transcode_failed", ErrorClass.TRANSIENT),
        (MUSL_QUOTA, "disk_full", ErrorClass.TRANSIENT),
        (STRANGE, "transcode_failed", ErrorClass.TRANSIENT),
    ],
)
def test_last_words(stderr: str, code: str, error_class: ErrorClass) -> None:
    error = error_from(exit_code=1, signal=None, stderr=stderr)
    assert (error.code, error.error_class) == (code, error_class)


@pytest.mark.parametrize(
    ("signal", "code", "words"),
    [(25, "too_large", "larger than allowed"), (11, "transcode_failed", "ended with signal 11")],
)
def test_ended_by_a_signal(signal: int, code: str, words: str) -> None:
    error = error_from(exit_code=None, signal=signal, stderr="")
    assert error.code == code
    assert words in error.message


def test_a_prober_at_a_loss_means_unplayable_media() -> None:
    assert error_from(exit_code=1, signal=None, stderr="", probing=True).code == "bad_media"
    crash = error_from(exit_code=None, signal=11, stderr="", probing=True)
    assert crash.code == "transcode_failed"


def test_an_unknown_fault_keeps_its_last_line_without_addresses() -> None:
    error = error_from(exit_code=234, signal=None, stderr=STRANGE)
    assert error.message == (
        "the converter ended with status 234: [abc] Something never seen before"
    )
    assert last_line("") == "no words"


def test_short_input_is_seen_although_the_status_is_0() -> None:
    assert is_cut_short(CUT_MP4)
    assert is_cut_short(CUT_MKV)
    assert not is_cut_short("[h264 @ 0x1] Invalid NAL unit size (3264 > 2811).")


#: After SIGTERM: while it demuxed, and after its input's last words.
ASKED_MIDWAY = """\
[in#0/matroska,webm @ 0x7fea29f42040] File ended prematurely
[in#0/matroska,webm @ 0x7fea29f4c680] Error during demuxing: Immediate exit requested
"""
ASKED_LATER = "[in#0/matroska,webm @ 0x7f1a08b38040] File ended prematurely\n"
NOT_PERMITTED = "[out#0 @ 0x1] Error opening output file:o.mp4: Operation not permitted\n"


@pytest.mark.parametrize(
    ("exit_code", "stderr", "obeyed"),
    [
        (255, "", True),
        (255, ASKED_MIDWAY, True),
        (255, ASKED_LATER, True),
        (0, "[in#0 @ 0x1] Error opening input: Immediate exit requested\n", True),
        (255, NOT_PERMITTED, False),
        (183, HTML, False),
        (0, ASKED_LATER, False),
        (None, "", False),
    ],
)
def test_an_end_that_a_signal_asked_for(
    exit_code: int | None, stderr: str, *, obeyed: bool
) -> None:
    assert obeyed_signal(exit_code, stderr) is obeyed


def test_an_end_before_anything_was_open() -> None:
    assert opened_nothing(HTML)
    assert opened_nothing(MISSING)
    assert not opened_nothing(DISK_FULL)
    assert not opened_nothing(ASKED_LATER)
