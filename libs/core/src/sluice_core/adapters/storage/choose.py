"""The one place that chooses a storage."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from sluice_core.adapters.storage.base import Storage
from sluice_core.adapters.storage.folder import FolderStorage
from sluice_core.domain.errors import ConfigError


def open_storage(url: str) -> Storage:
    """A storage for `file:///folder` or `s3://bucket/prefix?endpoint=…`.

    Raises:
        ConfigError: the address is of no use.

    """
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path.startswith("/") and not parts.netloc:
        return FolderStorage(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        # boto3 is heavy and only in images that use it.
        from sluice_core.adapters.storage.s3 import S3Storage  # noqa: PLC0415

        return S3Storage.from_url(url)
    raise ConfigError("SLUICE_STORAGE_URL must be file:///folder or s3://bucket/prefix.")
