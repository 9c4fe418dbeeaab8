"""`child` for a worker that only fetches: half the memory, since no extractor is loaded ahead.

It takes the same requests; extracting again, which few links need, costs it a second more.
"""

from sluice_core.adapters.ytdlp.child import main
from sluice_core.adapters.ytdlp.ydl import share_tls_context as preload

__all__ = ["main", "preload"]
