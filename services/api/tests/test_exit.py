"""How the server ends."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx


def test_an_end_with_s3_says_nothing(serve: Any, s3_url: str) -> None:
    """Work on S3 in real threads left an event loop in each, and a trace of their end."""
    keys = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    served = serve(SLUICE_STORAGE_URL=s3_url, **keys)

    def ready(_number: int) -> int:
        return httpx.get(f"{served.url}/readyz", timeout=60).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ready, range(16))) == {200}
    served.process.stop()
    said = served.log.read_text()
    assert "Traceback" not in said, said
    assert "destroyed" not in said, said
