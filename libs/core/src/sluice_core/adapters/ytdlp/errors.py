"""yt-dlp's failures as codes of ours.

yt-dlp wraps causes in several ways (`cause`, `exc_info`, `__context__`), so the whole chain is
looked at: what the guard or we said, then what the server said, then types, then words.
"""

from __future__ import annotations

import errno
import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NamedTuple

from yt_dlp.networking.exceptions import (  # type: ignore[import-untyped]
    CertificateVerifyError,
    HTTPError,
    IncompleteRead,
    NoSupportingHandlers,
    TransportError,
    UnsupportedRequest,
)
from yt_dlp.utils import (  # type: ignore[import-untyped]
    ContentTooShortError,
    GeoRestrictedError,
    UnsupportedError,
    UserNotLive,
)

from sluice_core.adapters.egress import BlockedAddressError
from sluice_core.domain.errors import ErrorClass, SluiceError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Longer waits are not believed, in seconds.
_MAX_RETRY_AFTER = 7 * 24 * 3600.0

#: Statuses by which a site refuses; others that are no success are answers to something else.
_REFUSED = range(400, 500)

_BY_STATUS = {
    401: "login_required",
    402: "login_required",
    403: "forbidden",
    404: "not_found",
    407: "network",
    408: "timeout",
    410: "gone",
    416: "incomplete",
    425: "rate_limited",
    429: "rate_limited",
    451: "geo_blocked",
}

_BY_ERRNO = {
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "disk_full",
    errno.EFBIG: "too_large",
    errno.EROFS: "storage_error",
    errno.EACCES: "storage_error",
    errno.EIO: "storage_error",
}


class _Words(NamedTuple):
    code: str
    pattern: re.Pattern[str]
    #: What people are told in place of words that only yt-dlp's authors understand.
    said: str = ""


def _words(code: str, pattern: str, said: str = "") -> _Words:
    return _Words(code, re.compile(pattern, re.IGNORECASE), said)


#: First match wins; `_SITE_SAYS` also holds against a bare 403, which hides the reason.
_SITE_SAYS = (
    _words("drm_protected", r"\bDRM\b|\bwidevine\b|\bfairplay\b|\bplayready\b"),
    _words(
        "age_restricted",
        r"confirm your age|age.?(restricted|verification|gate|check)|inappropriate for some users"
        r"|\b18\+|adults? only|mature content",
    ),
    _words(
        "geo_blocked",
        r"geo.?(restrict|block)|in your (country|region)|from your (country|location|region)"
        r"|not available (in|from) (your|this) (country|region|location)",
    ),
    _words("rate_limited", r"rate.?limit|too many requests|try again later|HTTP Error 429"),
    _words(
        "login_required",
        r"\blog ?in\b|\bsign ?in\b|registered users|--cookies|members.only|members of"
        r"|private video|is private|account credentials|subscri(bers?|ption) (only|required)"
        r"|requires? (authentication|a subscription|payment)|not a bot",
    ),
    _words(
        "live_not_started",
        r"live event (will|has not)|premieres? (in|will|is)|has not (yet )?(started|begun|aired)"
        r"|will begin (in|at|shortly)|is upcoming|not currently (live|broadcasting)|is offline",
    ),
    _words(
        "gone",
        r"has been (removed|deleted|taken down|terminated)|was (removed|deleted)"
        r"|no longer (available|exists?)|account .*terminated|copyright (claim|grounds|strike)",
    ),
)

_YTDLP_SAYS = (
    _words(
        "no_media",
        r"no video formats found|requested format is not available|no (video|media|audio)s? "
        r"(found|in)|there('s| is) no video|does not contain|no (downloadable|playable) "
        r"|no entries",
    ),
    _words(
        "unsupported_url",
        r"no connection adapters|unknown url type",
        "it leads to a link that is neither http nor https",
    ),
    _words("unsupported_url", r"unsupported url|is not a valid url|live (hls|dash)|websocket"),
    _words(
        "not_found", r"(video|page|media|post) (is )?(unavailable|not found)|does(n.t| not) exist"
    ),
    _words(
        "bad_media",
        r"did not get any data blocks|downloaded file is empty",
        "the site sent an empty file",
    ),
    _words(
        "unsupported_url",
        r"invalid ipv6 url|netloc .* contains invalid characters|port could not be cast",
        "it leads to something that is no link",
    ),
    _words("incomplete", r"fragment \d+ not found|content too short|bytes read, \d+ more expected"),
    _words("timeout", r"timed? ?out"),
    _words("disk_full", r"no space left|disk quota"),
    _words("too_large", r"file too large"),
    # What the downloader says once its tries are used up; it drops the exception's type.
    _words("network", r"got error:|connection (reset|refused|aborted|broken)|failed to resolve"),
)

_LINK = re.compile(r"\b[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)

_STATUS = re.compile(r"HTTP Error ([345]\d\d)\b")

#: yt-dlp's own additions, which say nothing to a person.
_NOISE = re.compile(
    r"^ERROR:\s*|^\[[\w:.+ -]+\]\s*(?:[\w-]{1,64}:\s+)?|\(caused by .*|; please report this issue.*"
    r"|\s*Use --list-formats.*|\s*Confirm you are on the latest version.*|\x1b\[[0-9;]*m"
    # What urllib3 and the downloader put around the reason.
    r"|^HTTPS?Connection(?:Pool)?\([^)]*\):\s*|\[Errno -?\d+\]\s*|\s*\(read timeout=[\d.]+\)"
    r"|^Got error:\s*|\.?\s*Giving up after \d+ retries$"
)

#: How urllib3 tells of a connection that ended: the repr of a tuple.
_ABORTED = re.compile(r"\('Connection aborted\.', (?P<kind>\w+)\((?P<args>.*)\)\)", re.DOTALL)


def map_error(error: BaseException, *, now: float) -> SluiceError:
    """Return what an exception out of yt-dlp means; `now` is the time as Unix seconds."""
    chain = list(_chain(error))
    # A link in a message may have any word in it.
    text = _LINK.sub("", " ".join(str(part) for part in chain))
    for part in chain:
        if isinstance(part, SluiceError):
            return part
        if isinstance(part, BlockedAddressError):
            return SluiceError(code=part.code)
    for part in chain:
        if isinstance(part, HTTPError):
            return _from_http(part, text, now)
    for part in chain:
        if (mapped := _from_type(part)) is not None:
            return mapped
    status = _STATUS.search(text)
    if status is not None:
        return _from_status(int(status[1]), text, f"the site answered {status[1]}", None)
    return _from_words(text, clean_message(str(error)))


def clean_message(text: str) -> str:
    """What is left for a person of one of yt-dlp's messages."""
    previous = None
    while text != previous:
        previous, text = text, _NOISE.sub("", text).strip()
    if (aborted := _ABORTED.search(text)) is not None:
        return _how_it_was_aborted(aborted["kind"], aborted["args"])
    return text.splitlines()[0].strip() if text else ""


def _how_it_was_aborted(kind: str, args: str) -> str:
    if kind == "BadStatusLine":
        # It holds whatever bytes the site sent.
        return "the site's answer is not HTTP"
    reason = args.rpartition(", ")[2].strip("'\"")
    return f"the connection was aborted: {reason}" if reason else "the connection was aborted"


def _chain(error: BaseException) -> Iterator[BaseException]:
    todo: list[object] = [error]
    seen: set[int] = set()
    while todo:
        part = todo.pop(0)
        if not isinstance(part, BaseException) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        exc_info = getattr(part, "exc_info", None)
        todo += exc_info if isinstance(exc_info, tuple) else ()
        todo += [getattr(part, name, None) for name in ("cause", "reason", "__cause__")]
        todo += [part.__context__, *part.args, *getattr(part, "unexpected_errors", ())]


def _from_http(error: HTTPError, text: str, now: float) -> SluiceError:
    status: int = error.status
    retry_after = parse_retry_after(error.response.headers.get("Retry-After"), now)
    if error.redirect_loop:
        return SluiceError("the link redirects in a circle", code="server_error")
    message = f"the site answered {status} {error.reason or ''}".strip()
    return _from_status(status, text, message, retry_after)


def _from_status(status: int, text: str, message: str, retry_after: float | None) -> SluiceError:
    code = _BY_STATUS.get(status)
    if code == "forbidden":
        code = next((words.code for words in _SITE_SAYS if words.pattern.search(text)), code)
    if code is None:
        # 304 and the like say nothing against us: they answer what nobody asked.
        code = "forbidden" if status in _REFUSED else "server_error"
    return SluiceError(message, code=code, retry_after=retry_after)


def parse_retry_after(text: str | None, now: float) -> float | None:
    """Seconds that a `Retry-After` header asks for, as a number or as a date."""
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - now
        except ValueError:
            return None
    return min(max(0.0, seconds), _MAX_RETRY_AFTER) if seconds == seconds else None  # noqa: PLR0124  # NaN


def _from_type(part: BaseException) -> SluiceError | None:  # noqa: PLR0911  # a table of types
    if isinstance(part, UnsupportedError):
        # Whatever page has nothing that any extractor knows ends here.
        return SluiceError(code="no_media")
    if isinstance(part, GeoRestrictedError):
        return SluiceError(clean_message(str(part)), code="geo_blocked")
    if isinstance(part, UserNotLive):
        return SluiceError(clean_message(str(part)), code="live_not_started")
    if isinstance(part, CertificateVerifyError):
        return SluiceError(
            "the site's certificate is not valid", code="network", error_class=ErrorClass.MANUAL
        )
    if isinstance(part, (IncompleteRead, ContentTooShortError)):
        return SluiceError("the connection ended before the media did", code="incomplete")
    if isinstance(part, TransportError):
        return _from_transport(str(part))
    if isinstance(part, UnsupportedRequest) or (
        isinstance(part, NoSupportingHandlers) and not part.unexpected_errors
    ):
        return SluiceError(code="unsupported_url")
    if isinstance(part, MemoryError):
        # A page without end, or one that unpacks to gigabytes: no next try would fare better.
        return SluiceError("what the site sent does not fit into memory", code="too_large")
    if isinstance(part, OSError) and part.errno in _BY_ERRNO:
        return SluiceError(code=_BY_ERRNO[part.errno])
    return None


def _from_transport(text: str) -> SluiceError:
    if "failed to decode it" in text:
        said = "what the site sent is not packed in the way that it says"
        return SluiceError(said, code="server_error")
    return SluiceError(clean_message(text), code="timeout" if "timed out" in text else "network")


def _from_words(text: str, message: str) -> SluiceError:
    for words in (*_SITE_SAYS, *_YTDLP_SAYS):
        if words.pattern.search(text):
            return SluiceError(words.said or message, code=words.code)
    return SluiceError(message, code="internal")
