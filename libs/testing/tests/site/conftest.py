"""A plain client that keeps what arrived before anything went wrong."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest

from sluice_testing.fixtures_site import sample_site
from sluice_testing.waiting import PATIENCE

__all__ = ["sample_site"]


@dataclass
class Got:
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    error: Exception | None = None
    first_byte: float = 0.0
    seconds: float = 0.0


Get = Callable[..., Got]


def fetch(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    method: str = "GET",
    silence: float = PATIENCE,
    source: str = "",
) -> Got:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(
        parts.netloc, timeout=PATIENCE, source_address=(source, 0) if source else None
    )
    got = Got()
    started = time.monotonic()
    response = None
    try:
        connection.request(method, url.partition(parts.netloc)[2], headers=dict(headers or {}))
        line = connection.sock
        response = connection.getresponse()
        got.status, got.headers = response.status, response.headers
        got.first_byte = time.monotonic() - started
        line.settimeout(silence)
        while data := response.read1(65536):
            got.body += data
    except (OSError, http.client.HTTPException) as exc:
        got.error = exc
    finally:
        if response is not None:
            response.close()
        connection.close()
    got.seconds = time.monotonic() - started
    return got


@pytest.fixture
def get() -> Get:
    return fetch
