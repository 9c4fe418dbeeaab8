"""Our wishes as parameters of `yt_dlp.YoutubeDL`; pure, and all of them in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: Seconds without a byte until a connection is given up.
SOCKET_TIMEOUT = 20

#: Tries of one request within a run; the job's own retries, with longer pauses, come after.
RETRIES = 3

#: The first block in bytes; nothing is told before it is whole, and one of 64 KiB hid a slow
#: connection for seconds. `progress.block_size` sets the next ones.
BLOCK = 8 * 1024

#: Fragments fetched at once, when the request does not say.
FRAGMENTS_AT_ONCE = 4

#: Protocols, in yt-dlp's words, that its own downloaders fetch without any help.
NATIVE_PROTOCOLS = frozenset({"http", "https", "m3u8", "m3u8_native", "http_dash_segments"})


@dataclass(frozen=True, slots=True)
class Network:
    """How a child reaches the world."""

    #: Rules of `EGRESS_ALLOW`.
    allow: tuple[str, ...] = ()
    #: The only way out when set.
    proxy: str | None = None
    #: Whether the environment says where the authorities' certificates are; else the wheel's hold.
    own_certificates: bool = False

    @classmethod
    def from_request(cls, request: Mapping[str, Any]) -> Network:
        egress = request.get("egress") or {}
        return cls(
            allow=tuple(egress.get("allow") or ()),
            proxy=egress.get("proxy") or None,
            own_certificates=bool(egress.get("own_certificates")),
        )


def base_params(scratch: Path, network: Network) -> dict[str, Any]:
    """Parameters of every run: nothing read from outside, nothing left behind, no helpers."""
    return {
        "quiet": True,
        "noprogress": True,
        "no_color": True,
        "cachedir": False,
        "enable_file_urls": False,
        "default_search": "error",
        "geo_bypass": False,
        # An empty proxy also shuts out the proxies that an environment may name.
        "proxy": network.proxy or "",
        "compat_opts": {"no-certifi"} if network.own_certificates else set(),
        "socket_timeout": SOCKET_TIMEOUT,
        "retries": RETRIES,
        "fragment_retries": RETRIES,
        "extractor_retries": 1,
        "file_access_retries": 0,
        "retry_sleep_functions": {"http": _pause, "fragment": _pause},
        # Media is mended, merged and converted in the transcoder. No path leads to an ffmpeg here:
        # its own networking would go round the egress guard.
        "ffmpeg_location": str(scratch / "no-ffmpeg-here"),
        "external_downloader": {"default": "native"},
        "fixup": "never",
        "hls_prefer_native": True,
        "updatetime": False,
        "allow_unplayable_formats": False,
    }


def extract_params(request: Mapping[str, Any]) -> dict[str, Any]:
    """What the request says about the choice of entries, formats and subtitles."""
    params: dict[str, Any] = {
        "noplaylist": request.get("playlist", "auto") != "all",
        "extract_flat": "in_playlist",
        "lazy_playlist": True,
        "format": request.get("format") or "bv*+ba/b",
        "format_sort": list(request.get("format_sort") or ()),
    }
    if subtitles := request.get("subtitles"):
        params |= {
            "writesubtitles": True,
            "subtitleslangs": list(subtitles),
            "subtitlesformat": "vtt/srt/best",
        }
    return params


def fetch_params(request: Mapping[str, Any], *, whole: bool = False) -> dict[str, Any]:
    """What the request says about the transfer.

    Args:
        request: of kind `fetch`.
        whole: one link gives the whole file, so that there is one connection.

    """
    at_once = 1 if whole else int(request.get("fragments_at_once") or FRAGMENTS_AT_ONCE)
    rate = request.get("rate_limit")
    return {
        "continuedl": True,
        "overwrites": True,
        "nopart": False,
        # Which ones may be left out is decided in `lack`.
        "skip_unavailable_fragments": bool(request.get("allow_gaps")),
        "buffersize": BLOCK,
        "noresizebuffer": False,
        "concurrent_fragment_downloads": at_once,
        # yt-dlp applies it to each connection.
        "ratelimit": rate / at_once if rate else None,
    }


def _pause(n: int) -> float:
    """Seconds before try `n` + 1."""
    return float(min(4.0, 0.5 * 2**n))
