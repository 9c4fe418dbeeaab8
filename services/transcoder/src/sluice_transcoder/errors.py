"""ffmpeg's and ffprobe's last words, as our codes."""

from __future__ import annotations

import re

from sluice_core.domain.errors import ErrorClass, SluiceError

_MANUAL, _PERMANENT, _TRANSIENT = ErrorClass.MANUAL, ErrorClass.PERMANENT, ErrorClass.TRANSIENT

#: First match wins, so what explains the others stands first: a full disk also makes
#: "Conversion failed!", and a cut file also makes "Invalid data found". The system's own words are
#: those of glibc and of musl: which one it is depends on the build.
_TABLE: tuple[tuple[re.Pattern[str], str, ErrorClass | None, str], ...] = tuple(
    (re.compile(pattern), code, error_class, words)
    for pattern, code, error_class, words in (
        (r"No space left on device|[Qq]uota exceeded", "disk_full", None, ""),
        (r"File too large", "too_large", None, ""),
        (
            r"Cannot allocate memory|Out of memory|Error allocating|malloc of size",
            "transcode_failed",
            _TRANSIENT,
            "the converter ran out of memory",
        ),
        (
            (
                r"Read-only file system|Permission denied|Input/output error|I/O error"
                r"|Stale file handle"
            ),
            "storage_error",
            None,
            "",
        ),
        (
            r"No such file or directory",
            "storage_error",
            None,
            "a file or folder went missing meanwhile",
        ),
        (
            r"matches no streams|does not contain any stream",
            "bad_media",
            None,
            "a stream went missing",
        ),
        (
            (
                r"Unknown encoder|No such filter|Unrecognized option|Option not found"
                r"|Error parsing |Error setting (?:preset|option)|invalid preset|Undefined constant"
            ),
            "transcode_failed",
            _MANUAL,
            "this ffmpeg lacks what the preset asks for",
        ),
        (
            r"partial file|File ended prematurely|Truncat(?:ed|ing) |truncated",
            "incomplete",
            None,
            "the media ends too early",
        ),
        (
            r"not on whitelist",
            "bad_media",
            None,
            "what arrived points at other files instead of holding media",
        ),
        (
            (
                r"moov atom not found|Invalid data found when processing input"
                r"|could not find codec parameters|EBML header parsing failed|Header missing"
            ),
            "bad_media",
            None,
            "",
        ),
        (
            (
                r"[Cc]ould not find tag for codec|codec not currently supported in container"
                r"|Only \S+ .* supported|[Uu]nsupported codec|Decoder .*not found"
            ),
            "transcode_failed",
            _PERMANENT,
            "the codec does not go into the wanted file",
        ),
    )
)

#: In a run that ended well: what was read is less than what should be there.
_CUT_SHORT = re.compile(r"partial file|File ended prematurely")

_SIGXFSZ = 25

#: ffmpeg's status after a signal that it obeyed; whatever it then says of its input is due to that.
_ASKED = 255
#: What else has that status.
_NOT_PERMITTED = "Operation not permitted"
#: What ffmpeg's reader says once a signal came; as its input's last words they have status 0.
_EXIT_REQUESTED = "Immediate exit requested"
_NOT_OPENED = "Error opening input"


def error_from(
    *, exit_code: int | None, signal: int | None, stderr: str, probing: bool = False
) -> SluiceError:
    """The failure of one run that ended by itself.

    Args:
        exit_code: its status, None when a signal ended it.
        signal: the number of that signal.
        stderr: the end of what it wrote there.
        probing: it was ffprobe, for which an unknown fault means unreadable media.

    """
    for pattern, code, error_class, words in _TABLE:
        if pattern.search(stderr):
            return SluiceError(words, code=code, error_class=error_class)
    if signal == _SIGXFSZ:
        return SluiceError(code="too_large")
    if probing and signal is None:
        return SluiceError(code="bad_media")
    how = f"signal {signal}" if signal is not None else f"status {exit_code}"
    return SluiceError(
        f"the converter ended with {how}: {last_line(stderr)}", code="transcode_failed"
    )


def obeyed_signal(exit_code: int | None, stderr: str) -> bool:
    """Whether ffmpeg ended because a signal asked it to, once it had opened its input."""
    if _EXIT_REQUESTED in stderr:
        return True
    return exit_code == _ASKED and _NOT_PERMITTED not in stderr


def opened_nothing(stderr: str) -> bool:
    """Whether ffmpeg ended while it opened its input, for whatever reason."""
    return _NOT_OPENED in stderr


def is_cut_short(stderr: str) -> bool:
    """Whether a run that ended with status 0 says that its input was not whole."""
    return _CUT_SHORT.search(stderr) is not None


def last_line(stderr: str) -> str:
    """The last line that says something, without ffmpeg's memory addresses."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return re.sub(r" @ 0x[0-9a-f]+", "", lines[-1]) if lines else "no words"
