"""What a file is told apart by."""

from __future__ import annotations

import hashlib
from pathlib import Path


def sha256_of(path: Path) -> tuple[str, int]:
    """Hex digest and bytes of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return digest.hexdigest(), file.tell()
