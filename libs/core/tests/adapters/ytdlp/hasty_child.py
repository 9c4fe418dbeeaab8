"""The real child, but for the pauses between two tries: tests that lose parts need not wait."""

from __future__ import annotations

from sluice_core.adapters.ytdlp import options
from sluice_core.adapters.ytdlp.child import main, preload

__all__ = ["main", "preload"]

options._pause = lambda n: 0.01  # noqa: ARG005, SLF001  # called by its name; nothing public sets it
