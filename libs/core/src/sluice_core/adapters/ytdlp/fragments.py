"""yt-dlp's fragment downloaders, made exact when a kill hits them.

The library adds a fragment to the partial file first and notes its number after that; a kill
between the two would put the fragment there twice, and one within the note would put everything
there twice. Here the note says how long the file is, is written whole, and is held against it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from yt_dlp.downloader.dash import DashSegmentsFD  # type: ignore[import-untyped]
from yt_dlp.downloader.fragment import FragmentFD  # type: ignore[import-untyped]
from yt_dlp.downloader.hls import HlsFD  # type: ignore[import-untyped]

from sluice_core.adapters.ytdlp.resume import write_whole

_BYTES = "part_bytes"


class _Exact(FragmentFD):  # type: ignore[misc]  # the package has no types
    def _prepare_frag_download(self, ctx: dict[str, Any]) -> None:
        mend(Path(self.temp_name(ctx["filename"])), Path(self.ytdl_filename(ctx["filename"])))
        super()._prepare_frag_download(ctx)

    def _append_fragment(self, ctx: dict[str, Any], frag_content: bytes) -> None:
        length = ctx["dest_stream"].tell() + len(frag_content)
        ctx.setdefault("extra_state", {})[_BYTES] = length
        super()._append_fragment(ctx, frag_content)

    def _write_ytdl_file(self, ctx: dict[str, Any]) -> None:
        note: dict[str, Any] = {"current_fragment": {"index": ctx["fragment_index"]}}
        if "extra_state" in ctx:
            note["extra_state"] = ctx["extra_state"]
        path = Path(self.ytdl_filename(ctx["filename"]))
        write_whole(path, json.dumps({"downloader": note}).encode())


class ExactHlsFD(_Exact, HlsFD):  # type: ignore[misc]
    """HLS."""


class ExactDashFD(_Exact, DashSegmentsFD):  # type: ignore[misc]
    """DASH."""


def mend(part: Path, note: Path) -> None:
    """Bring a partial file to the length that its note speaks of, or take both away."""
    length = _noted_length(note)
    if length is None or not part.exists() or part.stat().st_size < length:
        part.unlink(missing_ok=True)
        note.unlink(missing_ok=True)
        return
    with part.open("r+b") as file:
        file.truncate(length)


def _noted_length(note: Path) -> int | None:
    try:
        return int(json.loads(note.read_bytes())["downloader"]["extra_state"][_BYTES])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
