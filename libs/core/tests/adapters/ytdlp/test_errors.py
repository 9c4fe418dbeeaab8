"""Messages as yt-dlp 2026.10 gave them, by type, by status, by words."""

import errno
import io

import pytest
from yt_dlp.networking.common import Response
from yt_dlp.networking.exceptions import (
    CertificateVerifyError,
    HTTPError,
    IncompleteRead,
    TransportError,
)
from yt_dlp.utils import DownloadError, ExtractorError, GeoRestrictedError, UnsupportedError

from sluice_core.adapters.egress import BlockedAddressError
from sluice_core.adapters.ytdlp.errors import clean_message, map_error, parse_retry_after
from sluice_core.domain.errors import CODES, ErrorClass, SluiceError

NOW = 1_700_000_000.0


def http(status, **headers):
    return HTTPError(
        Response(io.BytesIO(), "https://example.com/login?members-only", headers, status)
    )


def wrapped(cause):
    """As `YoutubeDL.trouble` and `ExtractorError` wrap a cause."""
    inner = ExtractorError("Unable to download webpage", cause=cause)
    return DownloadError(f"ERROR: [generic] {inner}", (type(inner), inner, None))


def said(message):
    inner = ExtractorError(message, expected=True)
    return DownloadError(f"ERROR: {message}", (type(inner), inner, None))


STATUS = [
    (301, "server_error"),
    (304, "server_error"),
    (400, "forbidden"),
    (401, "login_required"),
    (402, "login_required"),
    (403, "forbidden"),
    (404, "not_found"),
    (408, "timeout"),
    (410, "gone"),
    (416, "incomplete"),
    (418, "forbidden"),
    (429, "rate_limited"),
    (451, "geo_blocked"),
    (500, "server_error"),
    (502, "server_error"),
    (503, "server_error"),
    (504, "server_error"),
    (599, "server_error"),
]


@pytest.mark.parametrize(("status", "code"), STATUS)
def test_status(status, code):
    assert map_error(wrapped(http(status)), now=NOW).code == code
    assert map_error(http(status), now=NOW).code == code


@pytest.mark.parametrize(("status", "code"), STATUS)
def test_status_that_is_left_in_words_alone(status, code):
    error = DownloadError(f"ERROR: \r[download] Got error: HTTP Error {status}: Some Reason")
    assert map_error(error, now=NOW).code == code


TYPES = [
    (UnsupportedError("https://example.com/"), "no_media"),
    (GeoRestrictedError("not here"), "geo_blocked"),
    (CertificateVerifyError(cause=OSError("self-signed certificate")), "network"),
    (TransportError(cause=TimeoutError("The read operation timed out")), "timeout"),
    (TransportError("[Errno 111] Connection refused"), "network"),
    (
        TransportError("Received response with content-encoding: gzip, but failed to decode it."),
        "server_error",
    ),
    (IncompleteRead(5, 10), "incomplete"),
    (OSError(errno.ENOSPC, "No space left on device"), "disk_full"),
    (OSError(errno.EFBIG, "File too large"), "too_large"),
    (OSError(errno.EROFS, "Read-only file system"), "storage_error"),
    (MemoryError(), "too_large"),
    (BlockedAddressError("10.0.0.1 port 80"), "blocked_address"),
    (TransportError(cause=BlockedAddressError("10.0.0.1 port 80")), "blocked_address"),
    (SluiceError(code="too_large"), "too_large"),
]


@pytest.mark.parametrize(("error", "code"), TYPES, ids=lambda value: type(value).__name__)
def test_type_of_the_cause(error, code):
    assert map_error(wrapped(error), now=NOW).code == code


WORDS = [
    ("[youtube] abc: Sign in to confirm your age. This video may be inappropriate for some users.",
     "age_restricted"),
    ("[youtube] abc: Sign in to confirm you\u2019re not a bot.",
     "login_required"),
    ("[youtube] abc: Private video. Sign in if you've been granted access to this video",
     "login_required"),
    ("[youtube] abc: Join this channel to get access to members-only content like this video",
     "login_required"),
    ("[youtube] abc: This video is no longer available because the account has been terminated.",
     "gone"),
    ("[youtube] abc: Video unavailable. This video has been removed by the uploader", "gone"),
    ("[youtube] abc: Video unavailable", "not_found"),
    ("[youtube] abc: The uploader has not made this video available in your country",
     "geo_blocked"),
    ("[BBC] abc: This video is not available from your location due to geo restriction.",
     "geo_blocked"),
    ("[youtube] abc: This live event will begin in 3 hours.", "live_not_started"),
    ("[youtube] abc: Premieres in 26 minutes", "live_not_started"),
    ("[twitch:stream] abc: The channel is not currently live", "live_not_started"),
    ("[generic] abc: This video is DRM protected", "drm_protected"),
    ("The requested site is known to use DRM protection. It will NOT be supported.",
     "drm_protected"),
    ("[vimeo] 1: This video is only available for registered users. Use --username and --password",
     "login_required"),
    ("[instagram] abc: Requested content is not available, rate-limit reached or login required.",
     "rate_limited"),
    ("[generic] abc: No video formats found!; please report this issue on  https://github.com/",
     "no_media"),
    ("[generic] abc: Requested format is not available. Use --list-formats for a list",
     "no_media"),
    ("[twitter] 1: No video could be found in this tweet", "internal"),
    ("Did not get any data blocks", "bad_media"),
    ("The downloaded file is empty", "bad_media"),
    ("fragment 3 not found, unable to continue", "incomplete"),
    ("unable to write data: [Errno 28] No space left on device", "disk_full"),
    ("unable to write data: [Errno 27] File too large", "too_large"),
    ("\r[download] Got error: 1048576 bytes read, 1048576 more expected", "incomplete"),
    ("\r[download] Got error: The read operation timed out", "timeout"),
    ("\r[download] Got error: ('Connection aborted.', ConnectionResetError(104))", "network"),
    ("No connection adapters were found for 'file:///etc/passwd'", "unsupported_url"),
    ("Invalid IPv6 URL", "unsupported_url"),
    ("[generic] Unable to parse https://example.com/sign-in/private-video/DRM", "internal"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "code"), WORDS)
def test_words(message, code):
    assert map_error(said(message), now=NOW).code == code


def test_reason_behind_a_bare_403():
    inner = ExtractorError("This video is not available in your country", cause=http(403))
    assert map_error(inner, now=NOW).code == "geo_blocked"
    assert map_error(wrapped(http(403)), now=NOW).code == "forbidden"


def test_broken_certificate_needs_a_person():
    error = map_error(wrapped(CertificateVerifyError(cause=OSError("expired"))), now=NOW)
    assert error.error_class is ErrorClass.MANUAL


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("", None),
        ("7", 7.0),
        ("-3", 0.0),
        ("1e99", 604800.0),
        ("nan", None),
        ("soon", None),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0.0),
    ],
)
def test_retry_after(text, seconds):
    assert parse_retry_after(text, NOW) == seconds


def test_rate_limit_carries_the_wait():
    error = map_error(wrapped(http(429, **{"Retry-After": "12"})), now=NOW)
    assert (error.code, error.retry_after) == ("rate_limited", 12.0)


def test_message_for_people_has_none_of_the_noise():
    text = (
        "ERROR: [youtube] dQw4w9WgXcQ: Video unavailable; please report this issue on  "
        "https://github.com/yt-dlp/yt-dlp/issues?q= , filling out the appropriate issue template. "
        "Confirm you are on the latest version using  yt-dlp -U"
    )
    assert clean_message(text) == "Video unavailable"


@pytest.mark.parametrize(
    ("said_by_ytdlp", "told"),
    [
        ("HTTPSConnection(host='a.b', port=443): Failed to resolve 'a.b' ([Errno -2] No)",
         "Failed to resolve 'a.b' (No)"),
        ("HTTPConnectionPool(host='127.0.0.1', port=80): Read timed out. (read timeout=20.0)",
         "Read timed out."),
        ("Got error: 1048576 bytes read, 1048576 more expected. Giving up after 3 retries",
         "1048576 bytes read, 1048576 more expected"),
        ("('Connection aborted.', BadStatusLine('\\x16'))", "the site's answer is not HTTP"),
        ("('Connection aborted.', HTTPException('got more than 100 headers'))",
         "the connection was aborted: got more than 100 headers"),
        ("('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
         "the connection was aborted: Connection reset by peer"),
        ("\r[download] Got error: ('Connection aborted.', RemoteDisconnected('Remote end closed'))",
         "the connection was aborted: Remote end closed"),
        ("unable to write data: [Errno 28] No space left on device",
         "unable to write data: No space left on device"),
    ],
)  # fmt: skip
def test_message_for_people_has_none_of_the_librarys_own_names(said_by_ytdlp, told):
    assert clean_message(said_by_ytdlp) == told


def test_some_words_are_ours():
    assert map_error(said("Did not get any data blocks"), now=NOW).message == (
        "the site sent an empty file"
    )
    assert map_error(
        said("No connection adapters were found for 'file:///x'"), now=NOW
    ).message == ("it leads to a link that is neither http nor https")


def test_every_code_is_one_of_the_contract():
    codes = {code for _, code in STATUS + TYPES + WORDS}
    assert codes <= set(CODES)
