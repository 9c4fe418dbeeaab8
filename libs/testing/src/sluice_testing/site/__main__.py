"""The sample site as a process: `python -m sluice_testing.site`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from sluice_core.domain.errors import ConfigError, SluiceError

from . import SampleSite

if TYPE_CHECKING:
    from collections.abc import Sequence

_PARENT_POLL = 0.5
_WRONG_USE = 2


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    hosts = (options.host, *filter(None, options.hosts.split(",")))
    try:
        with SampleSite(cache_dir=options.cache_dir, hosts=hosts, port=options.port) as site:
            if options.prepare:
                site.prepare()
            _announce(site, hosts, options.ready_file)
            _wait(stopped)
    except (OSError, ConfigError, SluiceError) as exc:
        sys.stderr.write(f"sluice: the sample site can't run: {exc}\n")
        return _WRONG_USE
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sluice_testing.site", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--hosts", default="", help="more addresses, separated by commas")
    parser.add_argument("--cache-dir", type=Path, help="store of generated media")
    parser.add_argument("--ready-file", type=Path, help="gets the line that is printed when ready")
    parser.add_argument("--prepare", action="store_true", help="make all media before ready")
    return parser


def _announce(site: SampleSite, hosts: Sequence[str], ready_file: Path | None) -> None:
    listing = [
        {"kind": sample.kind, "url": sample.url, "expect": sample.expect.as_dict()}
        for sample in site.kinds()
    ]
    bases = [site.url("", host=index) for index in range(len(hosts))]
    line = json.dumps({"base": bases[0], "bases": bases, "pid": os.getpid(), "samples": listing})
    if ready_file is not None:
        _write_whole(ready_file, line + "\n")
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _write_whole(path: Path, text: str) -> None:
    """A reader that polls for the file never sees half of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(temporary).rename(path)


def _wait(stopped: threading.Event) -> None:
    """Until a signal, or until the parent is gone: a test that was killed leaves no site behind."""
    parent = os.getppid()
    while not stopped.wait(_PARENT_POLL):
        if os.getppid() != parent:
            return


if __name__ == "__main__":
    sys.exit(main())
