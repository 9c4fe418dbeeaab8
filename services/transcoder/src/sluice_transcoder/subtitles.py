"""Subtitles go beside the media as they were served; what is missing of them is named."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sluice_core.domain.gaps import Gap
from sluice_core.domain.job import Artifact
from sluice_core.domain.names import file_name
from sluice_core.domain.paths import final_key
from sluice_core.domain.plan import SUBTITLE, Source
from sluice_core.runtime.run import Run
from sluice_transcoder.digest import sha256_of

#: Forms that are told by name; a site's own word becomes no extension.
_TYPES = {
    "vtt": "text/vtt",
    "srt": "application/x-subrip",
    "ttml": "application/ttml+xml",
    "ass": "text/x-ssa",
    "ssa": "text/x-ssa",
    "json3": "application/json",
}
_OTHER = ("txt", "text/plain")


def store(run: Run, sources: Sequence[Source]) -> list[Artifact]:
    """Put those that were fetched under final keys, which no row points at yet."""
    taken: set[str] = set()
    return [_store_one(run, source, taken) for source in sources if not source.missing]


def _store_one(run: Run, source: Source, taken: set[str]) -> Artifact:
    storage = run.deps.storage
    content_type = _TYPES.get(source.ext)
    ext, content_type = (source.ext, content_type) if content_type else _OTHER
    language = re.sub(r"[^A-Za-z0-9-]+", "_", source.format_id)[:32]
    fallback = f"sluice-{run.job.id}"
    name = file_name(run.job.title, f"{language}.{ext}", fallback=fallback, taken=taken)
    taken.add(name.lower())
    key = final_key(run.id, name)
    with storage.local(source.key, run.scratch) as path:
        digest, size = sha256_of(path)
        storage.put(key, path)
    return Artifact(
        name=name, kind=SUBTITLE, key=key, bytes=size, sha256=digest, content_type=content_type
    )


def gaps(sources: Sequence[Source]) -> list[Gap]:
    """Those that could not be fetched."""
    return [Gap(SUBTITLE, s.format_id, s.missing) for s in sources if s.missing]
