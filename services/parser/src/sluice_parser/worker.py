"""The parse stage: a link becomes a plan, or a collection of child jobs."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sluice_core.domain.errors import SluiceError
from sluice_core.domain.lanes import Actor
from sluice_core.domain.paths import work_key
from sluice_core.domain.plan import Plan, Track
from sluice_core.domain.presets import Preset, load_presets
from sluice_core.domain.told import seconds_of, size_of
from sluice_core.runtime import media_child, sites, worker
from sluice_core.runtime.children import ForkServer, Preforked
from sluice_core.runtime.deps import StageDeps
from sluice_core.runtime.run import Advance, Expanded, Outcome, Run
from sluice_core.runtime.stage import Handler

#: Entries written in one transaction: children appear as they are found, not one by one.
BATCH = 50
#: Sites, one after the other, that a link may lead to and that something is kept for.
MAX_LANDINGS = 3
INFO_NAME = "info.json"


def main(preforked: Preforked | None = None) -> None:
    """Run the parser until it is told to stop."""
    worker.main(
        Actor.PARSE,
        lambda deps: open_handler(deps, preforked),
        program=(sys.executable, "-m", "sluice_parser"),
    )


@contextmanager
def open_handler(deps: StageDeps, preforked: Preforked | None = None) -> Iterator[Handler]:
    """The stage's handler, with its server of media children."""
    presets = load_presets(deps.settings.jobs.presets_file)
    with media_child.media_server(deps, preforked) as server:
        yield lambda run: handle(run, presets=presets, server=server)


def handle(run: Run, *, presets: Mapping[str, Preset], server: ForkServer) -> Outcome:
    """Find out what is behind the link of one job."""
    job = run.job
    preset = presets.get(job.request.preset)
    if preset is None:
        raise SluiceError(f"there is no preset {job.request.preset!r} any more")
    landed: list[str] = []
    for left in reversed(range(MAX_LANDINGS + 1)):
        known = sites.sites_of(run, landed)
        found = _Found(run, landed)
        request = request_for(run, preset, known)
        media_child.call(
            run, server, request | {"sites": known.others if left else ()}, on_event=found.take
        )
        if not found.elsewhere:
            break
        landed += [known.others[place] for place in found.elsewhere]
    return found.outcome()


def request_for(run: Run, preset: Preset, known: sites.Sites) -> dict[str, Any]:
    """What the child is asked; see `sluice_core.adapters.ytdlp`."""
    job, settings = run.job, run.deps.settings
    return {
        "kind": "extract",
        "url": known.link,
        "shown_url": job.request.url,
        "item": (job.entry or {}).get("item"),
        "playlist": "all" if job.is_check else job.request.playlist,
        "items": job.request.items,
        "max_entries": settings.jobs.max_entries,
        "format": preset.format,
        "format_sort": list(preset.format_sort),
        "subtitles": list(job.request.subtitles),
        "egress": media_child.egress_request(settings.egress),
        **sites.login_request(run, known.given),
    }


@dataclass(slots=True)
class _Found:
    """Collects what the child tells."""

    run: Run
    #: Sites that the link was seen to lead to.
    landed: list[str]
    #: Others that it leads to: places in the request's `sites`.
    elsewhere: list[int] = field(default_factory=list)
    media: dict[str, Any] | None = None
    collection: dict[str, Any] = field(default_factory=dict)
    entries: list[dict[str, Any]] = field(default_factory=list)
    count: int = 0
    truncated: bool = False

    def take(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "media":
            info = {**event["info"], **sites.sealed_link(self.run.deps, event)}
            self.media = {**info, "sites": self.landed} if self.landed else info
        elif kind == "elsewhere":
            self.elsewhere = event["sites"]
        elif kind == "collection":
            self.collection = event
        elif kind == "entry":
            self.entries.append(event)
            self.count += 1
            if len(self.entries) >= BATCH or self.count == 1:
                self.flush()
        elif kind == "end":
            self.truncated = bool(event["truncated"])

    def flush(self) -> None:
        if self.entries:
            deps = self.run.deps
            self.run.add_children(
                [child_entry(event) | sites.sealed_link(deps, event) for event in self.entries]
            )
            self.entries = []

    def outcome(self) -> Outcome:
        is_check = self.run.job.is_check
        if self.media is not None and is_check:
            raise SluiceError("the link is a single media, not a list of them", code="no_media")
        if self.media is not None:
            return _planned(self.run, self.media)
        if not self.count and not is_check:
            raise SluiceError(code="no_media")
        self.flush()
        fields = described(self.collection)
        if self.truncated:
            # Told once all children have ended: the job is then done in part.
            fields["plan"] = {"truncated": self.count}
        return Expanded(fields)


def child_entry(event: Mapping[str, Any]) -> dict[str, Any]:
    """An entry as `collections.add_children` takes it: unique by its link and place."""
    names = ("url", "item", "index", "id", "title", "duration", "thumbnail")
    entry = {name: event[name] for name in names if event.get(name) is not None}
    link = event["url"]
    if whole := event.get("sealable"):
        # Two may look alike where they are masked, and the key is stored.
        link = hashlib.sha256(whole.encode()).hexdigest()
    return {**entry, "key": f"{link}#{event.get('item') or ''}"}


def _planned(run: Run, info: dict[str, Any]) -> Advance:
    """Store the description and hand the choices on."""
    file = run.scratch / INFO_NAME
    file.write_text(json.dumps(info, ensure_ascii=False), encoding="utf-8")
    key = work_key(run.id, INFO_NAME)
    run.deps.storage.put(key, file)
    plan = Plan(key, tuple(track_of(fmt) for fmt in info["formats"]))
    return Advance(Actor.DOWNLOAD, {"plan": plan.to_json(), **described(info)})


def track_of(fmt: Mapping[str, Any]) -> Track:
    """A chosen format of yt-dlp's as a track of ours."""
    video, audio = fmt.get("vcodec"), fmt.get("acodec")
    kind = "audio" if video == "none" else "video" if audio == "none" else "muxed"
    return Track(
        format_id=str(fmt["format_id"]),
        kind=kind,
        ext=str(fmt.get("ext") or "bin"),
        bytes=size_of(fmt.get("filesize")) or size_of(fmt.get("filesize_approx")),
    )


def described(found: Mapping[str, Any]) -> dict[str, Any]:
    """Columns that people see; what the site does not say stays as it was."""
    names = ("title", "extractor", "thumbnail")
    fields = {name: found.get(name) for name in names} | {
        "duration": seconds_of(found.get("duration"))
    }
    return {name: value for name, value in fields.items() if value is not None}
