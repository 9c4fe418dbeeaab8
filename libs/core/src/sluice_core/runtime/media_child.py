"""yt-dlp in a child, from a handler's side: a request goes in, events come out, failures raise."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog

from sluice_core.adapters.binaries import deno_path, ytdlp_folder
from sluice_core.adapters.settings import EgressSettings, certificates
from sluice_core.adapters.ytdlp import MAX_EVENT
from sluice_core.domain.errors import ConfigError, SluiceError
from sluice_core.runtime.children import (
    ForkServer,
    ForkSpec,
    Limits,
    Preforked,
    child_environment,
    error_from_event,
)
from sluice_core.runtime.children import run as run_child
from sluice_core.runtime.children.protocol import ERROR
from sluice_core.runtime.deps import StageDeps
from sluice_core.runtime.run import Run

log = structlog.get_logger(__name__)

MODULE = "sluice_core.adapters.ytdlp.child"
#: Bytes beyond the largest file allowed at which the kernel says no: the transfer itself says so
#: sooner, in words, once the block that goes too far was written.
FILE_SLACK = 16 * 1024 * 1024


@contextmanager
def media_server(deps: StageDeps, preforked: Preforked | None = None) -> Iterator[ForkServer]:
    """A fork server with yt-dlp already imported; lives as long as the worker.

    Raises:
        ConfigError: the operator's own yt-dlp is not there.

    """
    folder = deps.settings.store.scratch_dir
    ytdlp = deps.settings.jobs.ytdlp_path
    try:
        programs = [deno_path().parent]
    except ConfigError as exc:
        # Only some sites need a JavaScript runtime; those say so when it is missing.
        log.warning("no_javascript_runtime", reason=str(exc))
        programs = []
    env = child_environment(
        home=folder,
        programs=programs,
        modules=ytdlp_folder(ytdlp) if ytdlp else None,
        base=certificates(),
    )
    # A process that runs one job would make ready for longer than it works.
    warm = not deps.alone
    with ForkServer(
        module=MODULE, env=env, cwd=folder, preforked=preforked, preload=warm
    ) as server:
        yield server


def egress_request(settings: EgressSettings) -> dict[str, Any]:
    """What the child is told of the network."""
    return {
        "allow": list(settings.allow),
        "proxy": settings.egress_proxy or None,
        "own_certificates": bool(certificates()),
    }


def file_limit(max_file_size: int) -> int | None:
    """What the kernel lets a child write to one file, in bytes; None is no limit.

    Args:
        max_file_size: what the operator allows, 0 for everything.

    """
    return max_file_size + FILE_SLACK if max_file_size else None


def call(
    run: Run,
    server: ForkServer,
    request: Mapping[str, object],
    *,
    on_event: Callable[[dict[str, Any]], None],
    marker: Callable[[], object] | None = None,
) -> None:
    """Run one request in a child to its good end.

    Args:
        on_event: called with each event but errors, in the calling thread.
        marker: what changes with progress; without it each line is progress.

    Raises:
        SluiceError: as the child said; `stalled`, `timeout`; `internal` when it crashed.
        ChildLostError: somebody else ended it.
        CanceledRunError, StaleRunError, HandBackError: as the run was told.

    """
    failure: SluiceError | None = None

    def on_line(line: str) -> None:
        nonlocal failure
        event = json.loads(line)
        if event.get("event") == ERROR:
            failure = error_from_event(event)
        else:
            on_event(event)

    limits = run.deps.limits
    result = run_child(
        ForkSpec(
            server=server,
            request=request,
            scratch=run.scratch,
            limits=Limits(file_size=file_limit(run.deps.settings.jobs.max_file_size)),
        ),
        on_line=on_line,
        stop=run.stop,
        deadline_s=run.hard_left(),
        stall_s=limits.stall_timeout,
        marker=marker,
        on_start=run.on_child,
        max_line=MAX_EVENT,
    )
    run.raise_for(result.reason)
    if failure is not None:
        raise failure
    if result.was_lost:
        raise run.lost_child(result)
    if not result.ok:
        log.error("child_crashed", status=result.exit_code, signal=result.signal,
                  stderr=result.stderr_tail)  # fmt: skip
        last = result.stderr_tail.strip().splitlines()[-1:] or [f"signal {result.signal}"]
        raise SluiceError(f"the media child crashed: {last[0]}")
    if result.lines_dropped:
        # Whatever it was, without it a site that has media would look like one that has none.
        words = f"what the site says of the media is longer than {MAX_EVENT} bytes"
        raise SluiceError(words, code="too_large")
