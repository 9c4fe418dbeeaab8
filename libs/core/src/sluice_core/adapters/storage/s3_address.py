"""The address of an S3 storage, and the client for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from sluice_core.domain.errors import ConfigError

if TYPE_CHECKING:
    from typing import Literal

    from mypy_boto3_s3 import S3Client

#: Seconds; a read waits for the next bytes, not for a whole body.
_CONNECT_TIMEOUT = 5
_READ_TIMEOUT = 30
#: Requests in all for one call, first one included; the library waits longer each time.
_ATTEMPTS = 4


@dataclass(frozen=True, slots=True, repr=False)
class S3Address:
    """`s3://bucket/prefix?…` taken apart. Queries: endpoint, public_endpoint, region,
    access_key with secret_key (else the usual AWS variables and files), presign=on|off,
    checksums=on|off (off for servers that know no trailing checksums).
    """  # noqa: D205  # one thought

    bucket: str
    #: Empty, or ends with `/`.
    prefix: str = ""
    endpoint: str | None = None
    #: As browsers reach it; None: as we do.
    public_endpoint: str | None = None
    #: None: from the usual AWS variables and files, else us-east-1.
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    presigns: bool = True
    checksums: bool = True

    @classmethod
    def parse(cls, url: str) -> S3Address:
        """Raises `ConfigError` with one sentence, which holds no secret."""
        parts = urlsplit(url)
        if parts.scheme != "s3" or not parts.netloc or "@" in parts.netloc:
            raise ConfigError("SLUICE_STORAGE_URL must look like s3://bucket/prefix.")
        query = dict(parse_qsl(parts.query))
        prefix = unquote(parts.path).strip("/")
        access_key, secret_key = query.pop("access_key", None), query.pop("secret_key", None)
        if bool(access_key) != bool(secret_key):
            raise ConfigError("SLUICE_STORAGE_URL has only one of access_key and secret_key.")
        address = cls(
            bucket=parts.netloc,
            prefix=f"{prefix}/" if prefix else "",
            endpoint=_web_address("endpoint", query.pop("endpoint", None)),
            public_endpoint=_web_address("public_endpoint", query.pop("public_endpoint", None)),
            region=query.pop("region", None),
            access_key=access_key,
            secret_key=secret_key,
            presigns=_switch("presign", query.pop("presign", "on")),
            checksums=_switch("checksums", query.pop("checksums", "on")),
        )
        if query:
            raise ConfigError(f"SLUICE_STORAGE_URL has an unknown option '{min(query)}'.")
        return address


def _web_address(name: str, value: str | None) -> str | None:
    if value is not None and not value.startswith(("http://", "https://")):
        raise ConfigError(f"{name} in SLUICE_STORAGE_URL must begin with http:// or https://.")
    return value


def _switch(name: str, value: str) -> bool:
    if value not in {"on", "off"}:
        raise ConfigError(f"{name} in SLUICE_STORAGE_URL must be on or off.")
    return value == "on"


def make_client(address: S3Address, *, public: bool = False) -> S3Client:
    """A client of its own session; connects to nothing yet.

    Args:
        address: where to.
        public: for links that browsers follow.

    Raises:
        ConfigError: the library can't use the address.

    """
    when: Literal["when_supported", "when_required"]
    when = "when_supported" if address.checksums else "when_required"
    endpoint = address.public_endpoint if public else address.endpoint
    config = Config(
        signature_version="s3v4",
        connect_timeout=_CONNECT_TIMEOUT,
        read_timeout=_READ_TIMEOUT,
        retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
        max_pool_connections=16,
        request_checksum_calculation=when,
        response_checksum_validation=when,
        # Servers behind one's own endpoint rarely have a host name for each bucket.
        s3={"addressing_style": "path" if endpoint else "auto"},
    )
    try:
        session = boto3.session.Session()
        return session.client(
            "s3",
            endpoint_url=endpoint,
            region_name=address.region or session.region_name or "us-east-1",
            aws_access_key_id=address.access_key,
            aws_secret_access_key=address.secret_key,
            config=config,
        )
    except (BotoCoreError, ValueError) as exc:
        raise ConfigError(f"The S3 address can't be used: {exc}.") from exc
