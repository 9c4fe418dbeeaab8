"""The download stage: the planned tracks become source files in storage."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog
from structlog.contextvars import bind_contextvars

from sluice_core.adapters.ytdlp.resume import PartialFile
from sluice_core.domain.errors import SluiceError
from sluice_core.domain.gaps import Gap
from sluice_core.domain.job import Job, Progress
from sluice_core.domain.lanes import Actor
from sluice_core.domain.paths import work_key
from sluice_core.domain.plan import SUBTITLE, Plan, Source, Track
from sluice_core.runtime import media_child, scratch, sites, worker
from sluice_core.runtime.children import ForkServer, Preforked
from sluice_core.runtime.deps import StageDeps
from sluice_core.runtime.disk import Disk, Room, open_disk
from sluice_core.runtime.run import Advance, Run
from sluice_core.runtime.stage import Handler
from sluice_downloader import partial
from sluice_downloader.gaps import Earlier, bring_gapped, earlier_of, gap_of
from sluice_downloader.meter import Meter

log = structlog.get_logger(__name__)

_INFO_LIMIT = 32 * 1024 * 1024
#: What a file is not named by: on some disks large and small letters are the same.
_ODD = re.compile(r"[^a-z0-9-]")
#: Characters of a format's id that its file is named by, and of the digest that tells ids apart.
MAX_ID, DIGEST = 48, 16
#: What is no fault of a site's: the run ends, and is tried again as others are.
_OUR_OWN = frozenset({"disk_full", "storage_error", "hard_time_limit"})
#: Files of subtitles for one media: a pattern of languages may name hundreds.
MAX_SUBTITLES = 100
#: Of the languages beyond, those that are named, each in so many characters.
NAMED, MAX_LANGUAGE = 5, 16


def main(preforked: Preforked | None = None) -> None:
    """Run the downloader until it is told to stop."""
    worker.main(
        Actor.DOWNLOAD,
        lambda deps: open_handler(deps, preforked),
        program=(sys.executable, "-m", "sluice_downloader"),
    )


@contextmanager
def open_handler(deps: StageDeps, preforked: Preforked | None = None) -> Iterator[Handler]:
    """The stage's handler, with its server of media children."""
    with media_child.media_server(deps, preforked) as server:
        disk = open_disk(deps)
        yield lambda run: handle(run, server=server, disk=disk)


def handle(run: Run, *, server: ForkServer, disk: Disk) -> Advance:
    """Fetch every track of one job; what an earlier run fetched is not fetched again."""
    scratch.take_over(run.deps.settings.store.scratch_dir, run.id)
    plan = plan_of(run.job)
    info = read_info(run, plan)
    meter = Meter([track.bytes for track in plan.tracks])
    run.traffic = lambda: (meter.fetched, meter.refetched)
    earlier = earlier_of(plan)
    sources = []
    try:
        with disk.room(run.scratch, whole=sum(track.bytes or 0 for track in plan.tracks)) as room:
            for number, track in enumerate(plan.tracks):
                meter.begin(number)
                known = earlier.get((track.kind, track.format_id))
                if known is not None and known.whole:
                    meter.resumed(known.bytes)
                    meter.finished(known.bytes)
                    sources.append(known)
                    continue
                info, gap = fetch(
                    run, info, track, server=server, meter=meter, room=room, earlier=known
                )
                sources.append(keep(run, track, gap))
            sources += fetch_subtitles(run, info, server=server, earlier=earlier)
    finally:
        # In the line that tells how the run ended.
        bind_contextvars(refetched_bytes=meter.refetched)
    return Advance(Actor.TRANSCODE, {"sources": [source.to_json() for source in sources]})


def plan_of(job: Job) -> Plan:
    """What the parser chose.

    Raises:
        SluiceError: the row has no plan; a job never comes here without.

    """
    if job.plan is None:
        raise SluiceError("the plan of this job is gone")
    return Plan.from_json(job.plan)


def read_info(run: Run, plan: Plan) -> dict[str, Any]:
    """The stored description."""
    raw = b"".join(run.deps.storage.read(plan.info_key, length=_INFO_LIMIT))
    if not raw:
        raise SluiceError("the stored description is missing", code="storage_error")
    info: dict[str, Any] = json.loads(raw)
    return info


def local_path(run: Run, track: Track) -> Path:
    """Where the finished track lies in the scratch folder; beside it, yt-dlp's partial state."""
    return run.scratch / f"{plain_id(track.format_id)}.{track.kind}{scratch.TRACK_SUFFIX}"


def plain_id(format_id: str) -> str:
    """A name that no file system refuses, and that no other id has."""
    plain = _ODD.sub("_", format_id)[:MAX_ID]
    if plain == format_id:
        return plain
    digest = hashlib.sha256(format_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{plain}_{digest[:DIGEST]}"


def fetch(
    run: Run,
    info: dict[str, Any],
    track: Track,
    *,
    server: ForkServer,
    meter: Meter,
    room: Room,
    earlier: Source | None = None,
) -> tuple[dict[str, Any], Gap | None]:
    """Bring one track into the scratch folder.

    Returns:
        the description for the tracks that follow, a fresh one when the stored links were refused;
        and what is missing of the track, where that is allowed.
    """
    path = local_path(run, track)
    file = PartialFile(path)
    newest = info
    with partial.kept(run, path) as note:
        bring_gapped(run, file, earlier)
        if path.exists() and file.gaps() is None:
            # Whole: it gets this name last. An earlier run fetched it and ended before it said so.
            meter.resumed(path.stat().st_size)
        else:
            meter.resumed(file.part_size())
            newest = transfer(run, info, track, server=server, meter=meter, room=room, note=note)
        allowed = run.job.request.allow_gaps
        gap = gap_of(path, track, allowed=allowed, promised=meter.size_was_told)
    return newest, gap


def transfer(
    run: Run,
    info: dict[str, Any],
    track: Track,
    *,
    server: ForkServer,
    meter: Meter,
    room: Room,
    note: Callable[[], None],
) -> dict[str, Any]:
    """Fetch one track in a child, from where its partial file ends.

    Args:
        run: whose track it is.
        info: the description with the links.
        track: one of its formats.
        server: makes the child.
        meter: is told of each report.
        room: on the disk.
        note: called when bytes arrived.

    Returns:
        the description that is valid now.
    """
    newest = info

    def report(progress: Progress) -> None:
        known = progress.total_bytes if meter.size_was_told else None
        room.written(done=progress.bytes or 0, whole=known)
        run.progress(progress)

    def on_event(event: dict[str, Any]) -> None:
        nonlocal newest
        kind = event["event"]
        if kind == "progress":
            run.deps.failpoints.hit("download.mid_fetch")
            note()
            report(meter.read(event))
        elif kind == "start":
            meter.resumed(event["bytes"])
        elif kind == "missing":
            meter.left_out(event["fragments"])
        elif kind == "reextracted":
            newest = event["info"] | sites.sealed_link(run.deps, event)
            if landed := info.get("sites"):
                newest["sites"] = landed
        elif kind == "done":
            report(meter.finished(event["bytes"]))

    media_child.call(
        run,
        server,
        {
            **fetch_request(run, info, track, local_path(run, track)),
            "allow_gaps": run.job.request.allow_gaps,
        },
        on_event=on_event,
        marker=lambda: meter.position,
    )
    return newest


def fetch_request(run: Run, info: Mapping[str, Any], track: Track, path: Path) -> dict[str, Any]:
    """What the child is asked; see `sluice_core.adapters.ytdlp`."""
    settings = run.deps.settings
    return {
        "kind": "fetch",
        "info": info,
        "page": sites.opened_link(run.deps, info),
        "format_id": track.format_id,
        "dest": str(path),
        "max_bytes": settings.jobs.max_file_size or None,
        "rate_limit": settings.egress.rate_limit or None,
        "egress": media_child.egress_request(settings.egress),
        **sites.login_request(run, sites.sites_of(run, info.get("sites") or ()).given),
    }


def fetch_subtitles(
    run: Run, info: dict[str, Any], *, server: ForkServer, earlier: Earlier
) -> list[Source]:
    """Fetch the subtitles that were asked for and that the site has.

    One that can't be fetched is named, as are those beyond `MAX_SUBTITLES`, and fails nobody.
    """
    offered = list((info.get("subtitles") or {}).items())
    sources = []
    for language, fmt in offered[:MAX_SUBTITLES]:
        track = Track(str(language), SUBTITLE, str(fmt.get("ext") or "txt"))
        known = earlier.get((SUBTITLE, track.format_id))
        if known is not None and known.whole:
            sources.append(known)
            continue
        path = local_path(run, track)
        try:
            if not path.exists():
                request = fetch_request(run, info, track, path) | {"subtitle": language}
                media_child.call(run, server, request, on_event=lambda _event: None)
            sources.append(keep(run, track))
        except SluiceError as exc:
            if exc.code in _OUR_OWN:
                raise
            log.warning("subtitles_missing", language=language, code=exc.code, reason=exc.message)
            sources.append(Source(track.format_id, SUBTITLE, "", 0, track.ext, missing=exc.code))
    if beyond := [str(language) for language, _ in offered[MAX_SUBTITLES:]]:
        log.warning("subtitles_left_out", number=len(beyond))
        sources.append(Source(in_short(beyond), SUBTITLE, "", 0, "", missing="too_many_entries"))
    return sources


def in_short(languages: Sequence[str]) -> str:
    """The first of so many languages and the number of the others: a site may name thousands."""
    named = ", ".join(language[:MAX_LANGUAGE] for language in languages[:NAMED])
    more = len(languages) - NAMED
    return f"{named} and {more} more" if more > 0 else named


def keep(run: Run, track: Track, gap: Gap | None = None) -> Source:
    """Put a fetched track into storage, under a key of this run."""
    path = local_path(run, track)
    key, gaps_key = work_key(run.id, path.name), ""
    notes = PartialFile(path).gaps_file
    if gap is not None and notes.exists():
        # First: without its note a file counts as whole.
        gaps_key = work_key(run.id, notes.name)
        run.deps.storage.put(gaps_key, notes)
    run.deps.storage.put(key, path)
    return Source(
        gap=gap,
        gaps_key=gaps_key,
        format_id=track.format_id,
        kind=track.kind,
        key=key,
        bytes=path.stat().st_size,
        ext=track.ext,
    )
