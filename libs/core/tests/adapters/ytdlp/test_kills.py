"""However often and whenever a child is killed, its file is the one of an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from contextlib import suppress
from urllib.parse import urljoin
from urllib.request import urlopen

import pytest

from sluice_core.adapters.ytdlp import MAX_EVENT
from sluice_core.adapters.ytdlp.resume import PartialFile
from sluice_core.runtime.children import ForkSpec, run

#: Kills for each kind, each between two and twelve hundredths of a second into the transfer.
KILLS = 25
PATH = "/hls/many/400.m3u8"


@pytest.fixture
def hls(sample_site, child):
    return child.info(sample_site.url(PATH))


@pytest.fixture
def dash(sample_site, hls):
    """The same fragments as a DASH manifest would name them."""
    with urlopen(sample_site.url(PATH), timeout=60) as response:  # noqa: S310  # the sample site
        lines = response.read().decode().splitlines()
    links = [urljoin(sample_site.url(PATH), line) for line in lines if line and line[0] != "#"]
    fmt = {
        **hls["formats"][0],
        "protocol": "http_dash_segments",
        "fragments": [{"url": link} for link in links],
    }
    return {**hls, "formats": [fmt]}


def fetch_and_kill(child, info, after):
    """Begin or go on, and kill the child so many seconds after its start; whether it was whole."""
    dest = child.scratch / "track.media"
    timers = []

    def started(pid, _started):
        def kill():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

        timers.append(threading.Timer(after, kill))
        timers[0].start()

    result = run(
        ForkSpec(
            server=child.server,
            request={
                "kind": "fetch",
                "egress": {"allow": ["127.0.0.0/8"]},
                "info": info,
                "format_id": info["formats"][0]["format_id"],
                "dest": str(dest),
            },
            scratch=child.scratch,
        ),
        on_line=lambda line: child.events.append(json.loads(line)),
        on_start=started,
        deadline_s=60,
        max_line=MAX_EVENT,
    )
    timers[0].cancel()
    assert result.ok or result.signal == signal.SIGKILL, result.stderr_tail
    return result.ok


@pytest.mark.parametrize("kind", ["hls", "dash"])
def test_kills_at_any_moment_leave_fragments_in_order(child, sha256, request, kind):
    info = request.getfixturevalue(kind)
    whole = child.fetch(info)
    expected, size = sha256(whole), whole.stat().st_size
    whole.unlink()
    rng = random.Random(kind)
    kills = wrong = 0
    while kills < KILLS:
        if fetch_and_kill(child, info, rng.uniform(0.02, 0.12)):
            wrong += sha256(whole) != expected
            PartialFile(whole).forget()
        else:
            kills += 1
    assert sha256(child.fetch(info)) == expected
    assert whole.stat().st_size == size
    assert wrong == 0
