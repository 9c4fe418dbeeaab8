"""yt-dlp's fragment downloaders, made exact when a kill hits them.

The library adds a fragment to the partial file first and notes its number after that; a kill
between the two would put the fragment there twice, and one within the note would put everything
there twice. Here the note says how long the file is, is written whole, and is held against it.

What the library notes is the shared count of fragments fetched, which its other threads raise while
one is being added: a run that went on from such a note left out fragments that were never added.
Here the note names the fragment that was added.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from yt_dlp.downloader.dash import DashSegmentsFD  # type: ignore[import-untyped]
from yt_dlp.downloader.fragment import FragmentFD  # type: ignore[import-untyped]
from yt_dlp.downloader.hls import HlsFD  # type: ignore[import-untyped]

from sluice_core.adapters.ytdlp.progress import block_size
from sluice_core.adapters.ytdlp.resume import PART_BYTES, PartialFile, noted_length, write_whole

#: In the library's context: number of the fragment that is being added, from 1.
_ADDED = "sluice_added"


def _as_it_is(content: bytes, _number: int) -> bytes:
    return content


class _Exact(FragmentFD):  # type: ignore[misc]  # the package has no types
    def _prepare_frag_download(self, ctx: dict[str, Any]) -> None:
        mend(PartialFile(Path(ctx["filename"])))
        super()._prepare_frag_download(ctx)
        ctx["dl"].best_block_size = block_size

    def download_and_append_fragments(
        self, ctx: dict[str, Any], *args: Any, pack_func: Any = _as_it_is, **kwargs: Any
    ) -> Any:
        def pack(content: bytes, number: int) -> bytes:
            # The last step before it is added, and the only one that is told its number.
            ctx[_ADDED] = number
            packed: bytes = pack_func(content, number)
            return packed

        return super().download_and_append_fragments(ctx, *args, pack_func=pack, **kwargs)

    def _append_fragment(self, ctx: dict[str, Any], frag_content: bytes) -> None:
        length = ctx["dest_stream"].tell() + len(frag_content)
        ctx.setdefault("extra_state", {})[PART_BYTES] = length
        super()._append_fragment(ctx, frag_content)

    def _write_ytdl_file(self, ctx: dict[str, Any]) -> None:
        number = ctx.get(_ADDED, ctx["fragment_index"])
        note: dict[str, Any] = {"current_fragment": {"index": number}}
        if "extra_state" in ctx:
            note["extra_state"] = ctx["extra_state"]
        path = Path(self.ytdl_filename(ctx["filename"]))
        write_whole(path, json.dumps({"downloader": note}).encode())


class ExactHlsFD(_Exact, HlsFD):  # type: ignore[misc]
    """HLS."""


class ExactDashFD(_Exact, DashSegmentsFD):  # type: ignore[misc]
    """DASH."""


def mend(file: PartialFile) -> None:
    """Bring a partial file to the length that its note speaks of, or begin anew."""
    length = noted_length(file.read_note())
    if length is None or file.part_size() < length:
        file.begin_again()
        return
    with file.part.open("r+b") as part:
        part.truncate(length)
