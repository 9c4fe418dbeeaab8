"""`python -m sluice_cli.local.nursery PART... FD`: imports what those parts share, and forks them.

Each worker would else import the same 50 MB for itself, and twice the media library. This process
holds no secret and no thread: the workers get their environment after the fork, and what handles
untrusted input is forked before they read it.
"""

from __future__ import annotations

import gc
import importlib
import socket
import sys
import threading
from typing import Any, NamedTuple

from sluice_cli.supervisor import forking
from sluice_core.runtime import title
from sluice_core.runtime.children import prefork
from sluice_core.runtime.media_child import MODULE as MEDIA


class Kind(NamedTuple):
    """How a part is started."""

    #: Holds its `main`.
    module: str
    #: Whether it starts children, and so is given a server of them.
    has_children: bool = False
    #: What the children import.
    child_module: str | None = None


KINDS = {
    "parser": Kind("sluice_parser.worker", has_children=True, child_module=MEDIA),
    "downloader": Kind("sluice_downloader.worker", has_children=True, child_module=MEDIA),
    "transcoder": Kind("sluice_transcoder.worker", has_children=True),
    "scheduler": Kind("sluice_scheduler.main"),
}


def main() -> None:
    """Import, fork until the supervisor is gone, and be each part that is forked."""
    *names, descriptor = sys.argv[1:]
    line = socket.socket(fileno=int(descriptor))
    _load([KINDS[name] for name in names])
    told = forking.serve(line)
    if told is not None:
        _become(told)


def _load(kinds: list[Kind]) -> None:
    for kind in kinds:
        importlib.import_module(kind.module)
    for name in {kind.child_module for kind in kinds if kind.child_module}:
        importlib.import_module(name).preload()
    if threading.active_count() > 1:
        raise RuntimeError("an import has started a thread, which no fork survives")
    # Objects made so far stay in pages shared with every part.
    gc.collect()
    gc.freeze()


def _become(told: forking.Told) -> None:
    kind = KINDS[told.name]
    title.show(f"{sys.executable} -m sluice_{told.name}", name=f"sluice-{told.name}")
    # First: the server of untrusted children must be a copy of what knows nothing yet.
    given: tuple[Any, ...] = (prefork(kind.child_module),) if kind.has_children else ()
    told.take_environment()
    importlib.import_module(kind.module).main(*given)


if __name__ == "__main__":
    main()
