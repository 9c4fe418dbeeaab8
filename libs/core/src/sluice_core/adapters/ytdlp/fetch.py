"""One chosen format, from its stored description to a file."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yt_dlp.downloader.http import HttpFD  # type: ignore[import-untyped]
from yt_dlp.utils import ReExtractInfo, YoutubeDLError  # type: ignore[import-untyped]

from sluice_core.adapters.ytdlp.errors import map_error
from sluice_core.adapters.ytdlp.exchange import Exchange, StaleLinkError
from sluice_core.adapters.ytdlp.extract import describe_media, find_media
from sluice_core.adapters.ytdlp.fragments import ExactDashFD, ExactHlsFD
from sluice_core.adapters.ytdlp.gaps import FRAGMENTS
from sluice_core.adapters.ytdlp.lack import Lack
from sluice_core.adapters.ytdlp.login import SiteLogin, was_hidden
from sluice_core.adapters.ytdlp.options import Network, base_params, extract_params, fetch_params
from sluice_core.adapters.ytdlp.progress import (
    FragmentsChangedError,
    Progress,
    block_size,
    refuse_page,
)
from sluice_core.adapters.ytdlp.resume import PartialFile
from sluice_core.adapters.ytdlp.ydl import Downloader, require_http
from sluice_core.domain.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Callable

    Emit = Callable[[dict[str, Any]], None]
    Info = dict[str, Any]

_WHOLE = {"http": HttpFD, "https": HttpFD}
_FRAGMENTED = {
    "m3u8": ExactHlsFD,
    "m3u8_native": ExactHlsFD,
    "http_dash_segments": ExactDashFD,
}


#: Of tries at a file that ends too early: each connection loses its last block, so that the end is
#: come near to by steps.
_ROUNDS = 4


def fetch(request: dict[str, Any], emit: Emit) -> None:
    """Do a request of kind `fetch`, see the package's docstring."""
    file = PartialFile(Path(request["dest"]))
    info = request["info"]
    fmt = _chosen(info, request)
    _prepare(file, fmt, resume=request.get("resume", True))
    before = max(file.size(), file.gapped_size())
    emit({"event": "start", "bytes": before})
    links = _Links(request, emit)
    if not file.gapped.exists():
        links.use(lambda fmt, fresh: _transfer(file, fmt, request, emit, fresh=fresh))
    if (note := file.gaps()) is not None and note.unit == FRAGMENTS:
        # Minutes may have passed since they were asked for.
        file.reopen()
        _prepare_filling(file, fmt)
    if file.gapped.exists():
        links.use(lambda fmt, fresh: _fill(file, fmt, request, emit, fresh=fresh))
    emit({"event": "done", "bytes": _finish(file), "resumed_bytes": before})


class _Links:
    """The description at hand, and a fresh one once the site refuses its links."""

    def __init__(self, request: Info, emit: Emit) -> None:
        self._request = request
        self._emit = emit
        self._info: Info = request["info"]
        self._fresh = False

    def use(self, work: Callable[[Info, bool], None]) -> None:
        """Do what needs a link; `work` is told whether the page has named it just now."""
        if self._fresh:
            self._work_fresh(work)
            return
        try:
            work(_chosen(self._info, self._request), self._fresh)
        except (StaleLinkError, ReExtractInfo):
            if not self._request.get("reextract", True):
                raise
            self._info = _extract_again(self._info, self._request)
            self._fresh = True
            self._emit({"event": "reextracted", "info": self._info})
            self._work_fresh(work)

    def _work_fresh(self, work: Callable[[Info, bool], None]) -> None:
        """What is refused now stays refused."""
        fmt = _chosen(self._info, self._request)
        try:
            work(fmt, self._fresh)
        except StaleLinkError as exc:
            if _protocol(fmt) in _FRAGMENTED and exc.code == "gone":
                raise SluiceError("a fragment is missing", code="incomplete") from exc
            raise


def _chosen(info: Info, request: Info) -> Info:
    """The format, or the subtitles, that the request names."""
    if language := request.get("subtitle"):
        fmt = (info.get("subtitles") or {}).get(language)
        wanted = f"subtitles {language}"
    else:
        wanted = str(request["format_id"])
        shown = SiteLogin.from_request(request).masked
        fmt = next((f for f in info["formats"] if shown(str(f.get("format_id"))) == wanted), None)
    if fmt is None:
        raise SluiceError(f"the site does not offer {wanted!r} any more", code="no_media")
    return {"id": info.get("id") or "media", "ext": "bin", **fmt, "format_id": wanted}


def _prepare(file: PartialFile, fmt: Info, *, resume: bool) -> None:
    if resume:
        file.reopen()
        _prepare_filling(file, fmt)
    else:
        file.drop_gapped()
    # Of a file that is not there any more.
    file.gaps_file.unlink(missing_ok=True)
    state = file.load()
    if not resume or state.format_id != fmt["format_id"]:
        file.begin(fmt["format_id"])
    file.tidy()


def _prepare_filling(file: PartialFile, fmt: Info) -> None:
    """Begin to fill a file with gaps, or go on with it; one of another format is of no use."""
    note = file.gapped_note()
    if note is None or note.format_id != fmt["format_id"]:
        file.drop_gapped()
    elif file.load().format_id != fmt["format_id"]:
        file.begin(fmt["format_id"])
        file.note(fragments=note.count)


def _fill(file: PartialFile, fmt: Info, request: Info, emit: Emit, *, fresh: bool) -> None:
    """Fetch what a file with gaps is without, into another file."""
    try:
        _transfer_once(file, fmt, request, emit, fresh=fresh, filling=True)
    except FragmentsChangedError:
        file.drop_gapped()
        file.begin(fmt["format_id"])
        _transfer_once(file, fmt, request, emit, fresh=fresh)
    file.drop_gapped()


def _transfer(file: PartialFile, fmt: Info, request: Info, emit: Emit, *, fresh: bool) -> None:
    """Fetch all that there is; where gaps are allowed, a file in one piece may end too early.

    It does so for good when a whole round of tries brought nothing more.
    """
    patient = bool(request.get("allow_gaps")) and _protocol(fmt) in _WHOLE
    for left in reversed(range(_ROUNDS)):
        before = file.part_size()
        try:
            _transfer_anew(file, fmt, request, emit, fresh=fresh)
        except SluiceError as exc:
            if not patient or exc.code != "incomplete":
                raise
            grew = file.part_size() > before
            if not grew and _may_keep_short(file):
                file.keep_short(exc.code)
                return
            if not grew or not left:
                raise
        else:
            return


def _may_keep_short(file: PartialFile) -> bool:
    """Whether at least half of it is there."""
    total = file.load().version.total
    return total is not None and 2 * file.part_size() >= total


def _transfer_anew(file: PartialFile, fmt: Info, request: Info, emit: Emit, *, fresh: bool) -> None:
    try:
        _transfer_once(file, fmt, request, emit, fresh=fresh)
    except FragmentsChangedError:
        file.begin(fmt["format_id"])
        _transfer_once(file, fmt, request, emit, fresh=fresh)


def _protocol(fmt: Info) -> str:
    return str(fmt.get("protocol") or fmt["url"].partition(":")[0].lower())


def _transfer_once(
    file: PartialFile,
    fmt: Info,
    request: Info,
    emit: Emit,
    *,
    fresh: bool,
    filling: bool = False,
) -> None:
    if was_hidden(fmt):
        raise ReExtractInfo("its links were not stored whole")
    require_http(fmt["url"])
    protocol = _protocol(fmt)
    kind = _WHOLE.get(protocol) or _FRAGMENTED.get(protocol)
    if kind is None:
        raise SluiceError(f"media served by {protocol} is not supported", code="unsupported_url")
    params = base_params(Path.cwd(), Network.from_request(request))
    params |= fetch_params(request, whole=protocol in _WHOLE)
    with Downloader(params, login=SiteLogin.from_request(request), extractors=False) as ydl:
        ydl.exchange = Exchange(ydl.exchange, file, whole=protocol in _WHOLE)
        # Loads the cookies that came with the link, each for its own site.
        headers = ydl._calc_headers(fmt, load_cookies=True)  # noqa: SLF001  # as for a stored info
        downloader = kind(ydl, params)
        if protocol in _FRAGMENTED and request.get("allow_gaps"):
            downloader.lack = Lack(
                format_id=fmt["format_id"],
                fresh=fresh,
                filling=file if filling else None,
                told=lambda missing: emit({"event": "missing", "fragments": missing}),
            )
        # The library's own report makes lines for a terminal, a millisecond each, even when quiet.
        downloader._progress_hooks.clear()  # noqa: SLF001  # it has no parameter for that
        downloader.best_block_size = block_size
        downloader.add_progress_hook(_progress(file, request, emit))
        try:
            ok, _ = downloader.download(str(file.dest), {**fmt, "http_headers": headers})
        except YoutubeDLError as exc:
            if isinstance(exc, ReExtractInfo):
                raise
            raise _mapped(exc, fragmented=protocol in _FRAGMENTED) from exc
        except ValueError as exc:
            # Headers are taken at their word: one that is no number ends here.
            raise SluiceError("the site's answer can't be read", code="server_error") from exc
    if not ok:
        raise SluiceError("the download ended without a file", code="incomplete")


def _progress(file: PartialFile, request: Info, emit: Emit) -> Progress:
    return Progress(emit=emit, file=file, max_bytes=request.get("max_bytes"), clock=time.monotonic)


def _mapped(error: YoutubeDLError, *, fragmented: bool) -> SluiceError:
    mapped = map_error(error, now=time.time())
    if fragmented and mapped.code in {"not_found", "bad_media"}:
        # The media is there, a piece of it is not: that may heal.
        return SluiceError(f"a fragment is missing: {mapped.message}", code="incomplete")
    return mapped


def _extract_again(info: Info, request: Info) -> Info:
    """A fresh description with the same formats, by this machine's own way out."""
    login = SiteLogin.from_request(request)

    def same_formats(context: Info) -> list[Info]:
        wanted = {str(fmt.get("format_id")) for fmt in info["formats"]}
        found = [fmt for fmt in context["formats"] if login.masked(fmt["format_id"]) in wanted]
        return (
            [{"requested_formats": found, "format_id": "+".join(sorted(wanted))}] if found else []
        )

    subtitles = list(info.get("subtitles") or ())
    params = base_params(Path.cwd(), Network.from_request(request))
    params |= extract_params({"subtitles": subtitles}) | {"format": same_formats}
    item = info.get("item")
    with Downloader(params, login=login) as ydl:
        found = find_media(ydl, request.get("page") or info["webpage_url"], item)
        return describe_media(ydl, found, item=item)


def _finish(file: PartialFile) -> int:
    """Check and flush the whole file; returns its size."""
    size = file.dest.stat().st_size
    if size == 0:
        raise SluiceError("the site sent an empty file", code="bad_media")
    refuse_page(file)
    with file.dest.open("rb") as done:
        os.fsync(done.fileno())
    file.drop_notes()
    return size
