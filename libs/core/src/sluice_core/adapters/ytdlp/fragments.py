"""yt-dlp's fragment downloaders, made exact when a kill hits them.

The library adds a fragment to the partial file first and notes its number after that; a kill
between the two would put the fragment there twice, and one within the note would put everything
there twice. Here the note says how long the file is, is written whole, and is held against it.

What the library notes is the shared count of fragments fetched, which its other threads raise while
one is being added: a run that went on from such a note left out fragments that were never added.
Here the note names the fragment that was added.

Where gaps are allowed, it also names the fragments that were left out, and where they belong.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from yt_dlp.downloader.dash import DashSegmentsFD  # type: ignore[import-untyped]
from yt_dlp.downloader.fragment import FragmentFD  # type: ignore[import-untyped]
from yt_dlp.downloader.hls import HlsFD  # type: ignore[import-untyped]
from yt_dlp.networking.exceptions import HTTPError  # type: ignore[import-untyped]

from sluice_core.adapters.ytdlp.gaps import Timeline, timeline_of_dash, timeline_of_hls
from sluice_core.adapters.ytdlp.lack import Lack
from sluice_core.adapters.ytdlp.progress import block_size
from sluice_core.adapters.ytdlp.resume import PART_BYTES, PartialFile, noted_length, write_whole
from sluice_core.domain.errors import SluiceError

#: In the library's context: number of the fragment that is being added, from 1.
_ADDED = "sluice_added"


def _as_it_is(content: bytes, _number: int) -> bytes:
    return content


class _Exact(FragmentFD):  # type: ignore[misc]  # the package has no types
    #: What may be left out; None: every fragment must come.
    lack: Lack | None = None
    #: The library's context of what is being added.
    _ctx: dict[str, Any]

    def _prepare_frag_download(self, ctx: dict[str, Any]) -> None:
        mend(PartialFile(Path(ctx["filename"])))
        super()._prepare_frag_download(ctx)
        ctx["dl"].best_block_size = block_size
        self._ctx = ctx
        if self.lack is not None:
            self.lack.open(ctx, self._timeline())

    def _start_frag_download(self, ctx: dict[str, Any], info_dict: dict[str, Any]) -> Any:
        if self.lack is None:
            return super()._start_frag_download(ctx, info_dict)
        with self.lack.told(ctx):
            return super()._start_frag_download(ctx, info_dict)

    def _timeline(self) -> Timeline:
        raise NotImplementedError

    def _download_fragment(self, ctx: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return super()._download_fragment(ctx, *args, **kwargs)
        except (HTTPError, SluiceError) as exc:
            if self.lack is None or not self.lack.accepts(ctx["fragment_index"], exc):
                raise
            # A thread's context is a copy, which may still name the fragment that was added when
            # it was made.
            ctx.pop("fragment_filename_sanitized", None)
            return False

    def download_and_append_fragments(
        self,
        ctx: dict[str, Any],
        fragments: Any,
        *args: Any,
        pack_func: Any = _as_it_is,
        **kwargs: Any,
    ) -> Any:
        def pack(content: bytes, number: int) -> bytes:
            # The last step before it is added, and the only one that is told its number.
            ctx[_ADDED] = number
            packed: bytes = pack_func(content, number)
            return packed

        if self.lack is not None:
            fragments = filter(self.lack.wants, fragments)
            kwargs["is_fatal"] = self.lack.must_come
        return super().download_and_append_fragments(
            ctx, fragments, *args, pack_func=pack, **kwargs
        )

    def _append_fragment(self, ctx: dict[str, Any], frag_content: bytes) -> None:
        if self.lack is not None:
            self.lack.before(ctx, ctx[_ADDED], len(frag_content))
        self._note_length(ctx, len(frag_content))
        super()._append_fragment(ctx, frag_content)

    def report_skip_fragment(self, frag_index: int, err: Any = None) -> None:
        """The library leaves a fragment out; only those that `lack` has accepted."""
        super().report_skip_fragment(frag_index, err)
        assert self.lack is not None  # noqa: S101  # else all are fatal
        self._ctx[_ADDED] = frag_index
        self.lack.left_out(self._ctx, frag_index)
        self._note_length(self._ctx, 0)
        self._write_ytdl_file(self._ctx)

    def _note_length(self, ctx: dict[str, Any], added: int) -> None:
        ctx.setdefault("extra_state", {})[PART_BYTES] = ctx["dest_stream"].tell() + added

    def _finish_frag_download(self, ctx: dict[str, Any], info_dict: dict[str, Any]) -> Any:
        if self.lack is not None:
            self.lack.close(ctx)
        return super()._finish_frag_download(ctx, info_dict)

    def _write_ytdl_file(self, ctx: dict[str, Any]) -> None:
        number = ctx.get(_ADDED, ctx["fragment_index"])
        note: dict[str, Any] = {"current_fragment": {"index": number}}
        if "extra_state" in ctx:
            note["extra_state"] = ctx["extra_state"]
        path = Path(self.ytdl_filename(ctx["filename"]))
        write_whole(path, json.dumps({"downloader": note}).encode())


class ExactHlsFD(_Exact, HlsFD):  # type: ignore[misc]
    """HLS."""

    _manifest = ""

    def can_download(self, manifest: str, *args: Any, **kwargs: Any) -> Any:
        """As the library's; the only step that is shown the manifest's text."""
        self._manifest = manifest
        return HlsFD.can_download(manifest, *args, **kwargs)

    def _timeline(self) -> Timeline:
        return timeline_of_hls(self._manifest)


class ExactDashFD(_Exact, DashSegmentsFD):  # type: ignore[misc]
    """DASH."""

    _fragments: Any = ()

    def real_download(self, filename: str, info_dict: dict[str, Any]) -> Any:
        """As the library's."""
        self._fragments = info_dict.get("fragments")
        return super().real_download(filename, info_dict)

    def _timeline(self) -> Timeline:
        found = self._fragments
        return timeline_of_dash(found) if isinstance(found, list) else Timeline()


def mend(file: PartialFile) -> None:
    """Bring a partial file to the length that its note speaks of, or begin anew."""
    length = noted_length(file.read_note())
    if length is None or file.part_size() < length:
        file.begin_again()
        return
    with file.part.open("r+b") as part:
        part.truncate(length)
