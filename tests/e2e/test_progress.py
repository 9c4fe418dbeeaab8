"""What people see of a download is what the site sent: within 2 s and 5 %."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from threading import Thread

import psutil
import pytest

from sluice_testing.fair import FairClock
from sluice_testing.waiting import PATIENCE, until

numbers = itertools.count(1)

#: What was shown may be this old, in seconds, and this wrong, as a part of the whole.
AGE, ERROR = 2.0, 0.05
#: What a figure's way takes on a busy machine: a report each 0.25 s, a write, an event, a look.
WAY = 0.5
EVERY = 0.25
QUEUE = "/v1/queues/download.default"
#: Seconds that one look may take on a busy machine before it says nothing.
SLOW_LOOK = 0.75
#: Seconds that a figure may be held up beyond that, now and then.
HELD_UP = 1.0
# All three are multiplied by how much slower than a free machine this one was meanwhile.
TERMINAL = {"SUCCESS", "PARTIAL", "FAILED", "CANCELED"}


@dataclass(frozen=True)
class Source:
    """A download of some seconds."""

    link: str
    #: Prefixes of what the site counts for it.
    counted: tuple[str, ...]
    throttle: int
    #: Whether the site tells a size.
    sized: bool = True
    preset: str = "original"
    #: Whether a percent can be told all along: of a later track nothing is known at first.
    steady: bool = True


SOURCES = {
    # Long enough for 2 s to be a small part of it: a figure that lags by a fifth would show.
    "known": Source("/clips/900{n}/c.mp4?bytes=3000000", ("/clips/900{n}/",), 200_000),
    "unknown": Source(
        "/clips/800{n}/c.mp4?bytes=3000000&length=chunked",
        ("/clips/800{n}/",),
        300_000,
        sized=False,
    ),
    "fragments": Source("/hls/many/40.m3u8?n={n}", ("/hls/ts/",), 60_000),
    "tracks": Source(
        "/hls/audio/master.m3u8?n={n}", ("/hls/audio/v",), 8_000, preset="best", steady=False
    ),
}


class Counter:
    """The site's own bytes since now."""

    def __init__(self, world, prefixes):
        self._world, self._prefixes = world, prefixes
        self._before = self._sum()

    def _sum(self):
        return sum(
            stats.bytes
            for path, stats in self._world.all_stats().items()
            if path.startswith(self._prefixes) and not path.endswith(".m3u8")
        )

    def __call__(self):
        return self._sum() - self._before


@dataclass(frozen=True)
class Look:
    """What was shown between two moments, and what had been sent then."""

    begun: float
    ended: float
    status: str
    done: int
    percent: float | None
    total: int | None
    speed: float | None
    page_percent: int | None
    page_words: str


LOOK = """id => {
  const card = document.querySelector(`.job[data-id="${id}"]`);
  if (!card) return [null, ""];
  const now = card.querySelector(".bar")?.getAttribute("aria-valuenow");
  return [now == null ? null : Number(now), card.querySelector(".facts").textContent,
          card.dataset.status];
}"""


def watch_lines(system, job_id, lines):
    """The command's own words, with the moment of each."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sluice_cli", "watch", "--url", system.url, job_id],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )

    def read():
        for line in process.stdout:
            lines.append((time.monotonic(), line.strip()))

    thread = Thread(target=read)
    thread.start()
    return process, thread


def observe(system, page, job_id, sent):
    """Look at everything every 0.25 s until the download has ended.

    Returns what the site had sent when, the looks, and how much slower than a free machine this
    one was: 1 or more.
    """
    book, looks = [], []
    clock, start = FairClock([psutil.Process(), *system.family()]), time.monotonic()
    while not looks or looks[-1].status in ("PENDING", "PARSING", "DOWNLOADING"):
        begun = time.monotonic()
        book.append((begun, sent()))
        job = system.job(job_id)
        percent, words, *_ = page.evaluate(LOOK, job_id)
        figures = job["progress"]
        ended = time.monotonic()
        book.append((ended, sent()))
        looks.append(
            Look(
                begun,
                ended,
                job["status"],
                figures["bytes"] or 0 if job["status"] == "DOWNLOADING" else 0,
                figures["percent"],
                figures["total_bytes"],
                figures["bytes_per_second"],
                percent,
                words,
            )
        )
        assert time.monotonic() - start < 480, "it never ends"
        time.sleep(max(0.0, EVERY - (time.monotonic() - begun)))
    return book, looks, (time.monotonic() - start) / clock.seconds


def sent_at(book, moment, *, after):
    """Bytes that had certainly been sent by then (or, `after`: that may have been)."""
    if after:
        return next((n for at, n in book if at >= moment), book[-1][1])
    return next((n for at, n in reversed(book) if at <= moment), 0)


def assert_true(book, figures, whole, slowness):
    """For each `(begun, ended, shown)`: a moment of the last 2 s fits, within 5 % of the whole.

    None is ever ahead of what was sent, and none stays behind.
    """
    behind = None
    for begun, ended, shown in figures:
        least = sent_at(book, begun - AGE - WAY * slowness, after=False) - ERROR * whole
        most = sent_at(book, ended, after=True) + ERROR * whole
        words = f"{shown} was shown, {least:.0f} to {most:.0f} had been sent"
        assert shown <= most, words
        behind = None if least <= shown else (behind or begun)
        assert behind is None or begun - behind < HELD_UP * slowness, words


@pytest.mark.parametrize("name", SOURCES)
def test_page_command_and_api_tell_what_the_site_sent(page, world, system, name):
    source, number = SOURCES[name], str(next(numbers))
    prefixes = tuple(prefix.format(n=number) for prefix in source.counted)
    for prefix in prefixes:
        world.control(f"{prefix}*", throttle=source.throttle)
    # Nothing is fetched before the command looks on, however long it takes to start.
    system.http.post(f"{QUEUE}/pause").raise_for_status()
    try:
        sent = Counter(world, prefixes)
        link = world.url(source.link.format(n=number))
        job = system.submit(link, preset=source.preset, force=True)
        lines = []
        process, thread = watch_lines(system, job["id"], lines)
        until(lambda: lines, why="the command says nothing")
        system.http.post(f"{QUEUE}/resume").raise_for_status()
        book, looks, slowness = observe(system, page, job["id"], sent)
        [ended] = system.wait([job["id"]])
        process.wait(PATIENCE)
        thread.join(PATIENCE)
        process.stdout.close()
    finally:
        system.http.post(f"{QUEUE}/resume")
        for prefix in prefixes:
            world.control(f"{prefix}*")
    assert ended["status"] == "SUCCESS", ended["error"]
    whole = sent()
    running = [look for look in looks if look.status == "DOWNLOADING"]
    assert running[-1].ended - running[0].begun > 2 * AGE, "too quick to tell anything"
    assert any(look.speed for look in running)

    early = [look for look in looks if look.status in ("PENDING", "PARSING", "DOWNLOADING")]
    by_bytes = [(o.begun, o.ended, o.done) for o in early if not is_slow(o, slowness)]
    assert_true(book, by_bytes, whole, slowness)
    percents = [look.percent for look in running if look.percent is not None]
    assert percents == sorted(percents)
    if source.sized:
        told = assert_percent(book, looks, lines, whole, slowness)
        assert told > AGE / EVERY / slowness or not source.steady
    else:
        assert set(percents) <= {100.0}
        # Once all is here, it is known how much it was.
        assert {look.page_percent for look in running} <= {None, 100}
        assert any(re.search(r"\d (kB|MB)", look.page_words) for look in running)


def is_slow(look, slowness):
    return look.ended - look.begun > SLOW_LOOK * slowness


def assert_percent(book, looks, lines, whole, slowness):
    """Percents of API, page and command; returns how often the page told one."""
    clear = [look for look in looks if look.status == "DOWNLOADING" and not is_slow(look, slowness)]
    by_api = [(o.begun, o.ended, o.percent) for o in clear if o.percent is not None]
    by_page = [
        (o.begun, o.ended, o.page_percent)
        for o in clear
        if o.page_percent is not None and "downloading" in o.page_words
    ]
    by_command = [
        (at, at, int(m[1])) for at, text in lines if (m := re.search(r"downloading (\d+) %", text))
    ]
    assert by_command, lines
    for told in (by_api, by_page, by_command):
        figures = [(begun, at, part * whole / 100) for begun, at, part in told]
        assert_true(book, figures, whole, slowness)
    return len(by_page)


def version(system, job_id):
    """Writes of the job's row."""
    [(found,)] = system.query("select version from jobs where id = :id", id=job_id)
    return found


def test_800_fragments_cause_few_writes(world, system):
    # Ten seconds with four fragments at once, and so some forty reports of progress.
    world.control("/hls/ts/*", latency=0.05)
    try:
        job = system.submit(world.url(f"/hls/many/800.m3u8?n={next(numbers)}"), preset="original")
        [ended] = system.wait([job["id"]], timeout=120)
    finally:
        world.control("/hls/ts/*")
    assert ended["status"] == "SUCCESS", ended["error"]
    # Beside progress, a job of three stages is written some ten times: claims, ends, its title.
    assert 20 < version(system, job["id"]) <= 60 + 12
