"""Where files live: a folder on one machine, S3 in a cluster; both pass the same tests."""

from __future__ import annotations

from sluice_core.adapters.storage.base import Stat, Storage, Unfinished
from sluice_core.adapters.storage.choose import open_storage

__all__ = ["Stat", "Storage", "Unfinished", "open_storage"]
