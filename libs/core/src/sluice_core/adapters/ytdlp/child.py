"""The module that the fork server preloads: yt-dlp in a confined child, one request each."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

# Before the import of yt-dlp: code from outside the installation is never loaded.
os.environ["YTDLP_NO_PLUGINS"] = "1"

import yt_dlp.extractor  # type: ignore[import-untyped]
from yt_dlp.utils import YoutubeDLError  # type: ignore[import-untyped]

from sluice_core.adapters.egress import EgressGuard, blocked_in
from sluice_core.adapters.ytdlp.errors import map_error
from sluice_core.adapters.ytdlp.extract import extract
from sluice_core.adapters.ytdlp.fetch import fetch
from sluice_core.adapters.ytdlp.login import SiteLogin, keep_cookies_apart
from sluice_core.adapters.ytdlp.options import Network, base_params
from sluice_core.adapters.ytdlp.warm import warm_up
from sluice_core.adapters.ytdlp.ydl import Downloader, share_tls_context
from sluice_core.domain.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Callable

    Emit = Callable[[dict[str, Any]], None]

_KINDS = {"extract": extract, "fetch": fetch}

#: The one program that a child may start: yt-dlp's JavaScript runtime.
_PROGRAMS = frozenset({"deno"})


def preload() -> None:
    """Load all extractors and compile their patterns, which else costs each child seconds."""
    share_tls_context()
    link = "https://sluice.invalid/"
    with Downloader(base_params(Path(os.devnull), Network())) as ydl:
        for extractor in yt_dlp.extractor.gen_extractor_classes():
            extractor.suitable(link)
            # A page without anything: nothing matches, so nothing is asked of any site.
            deque(extractor.extract_from_webpage(ydl, link, "<html></html>"), maxlen=0)
    # Last: the cache of patterns forgets the oldest.
    warm_up()


def main(request: dict[str, Any], emit: Emit) -> None:
    """Do one request, see the package's docstring.

    Raises:
        SluiceError: whatever went wrong, with a code.
    """
    # A preforked server gets its environment anew after the import.
    os.environ["YTDLP_NO_PLUGINS"] = "1"
    network = Network.from_request(request)
    EgressGuard(allow=network.allow, proxy=network.proxy).install()
    sys.addaudithook(_refuse_programs)
    login = SiteLogin.from_request(request)
    if login:
        keep_cookies_apart()
        sys.stderr = login.hide_in_stream(sys.stderr)
    try:
        _KINDS[request["kind"]](request, _hiding(login, emit) if login else emit)
    except SluiceError as exc:
        raise login.hide_in(exc) from exc
    except (YoutubeDLError, OSError, MemoryError) as exc:
        raise login.hide_in(map_error(exc, now=time.time())) from exc
    except Exception as exc:
        # Extractors meet pages that they were not written for with exceptions of any kind.
        if blocked_in(exc):
            raise SluiceError(code="blocked_address") from exc
        raise


def _hiding(login: SiteLogin, emit: Emit) -> Emit:
    return lambda event: emit(login.hide_in_event(event))


def _refuse_programs(event: str, args: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen" and PurePath(os.fsdecode(args[0])).name not in _PROGRAMS:
        raise PermissionError(f"{args[0]} may not be started here")
    if event in {"os.system", "os.exec", "os.posix_spawn"}:
        raise PermissionError("no program may be started here")
