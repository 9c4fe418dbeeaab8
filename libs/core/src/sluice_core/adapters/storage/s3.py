"""Storage in S3, or in whatever speaks its protocol."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import BotoCoreError, ClientError

from sluice_core.adapters.ids import new_id
from sluice_core.adapters.storage.base import Stat, Unfinished, key_parts
from sluice_core.adapters.storage.folder import mapped as disk_mapped
from sluice_core.adapters.storage.s3_address import S3Address, make_client
from sluice_core.domain.disposition import attachment
from sluice_core.domain.errors import ConfigError, NotYetError, SluiceError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_PIECE = 1024 * 1024
#: Bytes of a part: what a broken upload repeats at most.
PART = 16 * 1024 * 1024
#: Times that a broken download goes on from where it was before it counts as failed.
_RESUMES = 3
#: Left free on the scratch disk when a file is fetched to it.
_HEADROOM = 64 * 1024 * 1024
_MISSING = {"404", "NoSuchKey", "NotFound", "NoSuchUpload"}
_PAST_END = {"416", "InvalidRange"}
_FULL = {"507", "InsufficientStorage", "QuotaExceeded", "XMinioStorageFull"}
_TRANSFER = TransferConfig(
    multipart_threshold=PART,
    multipart_chunksize=PART,
    max_concurrency=4,
    num_download_attempts=_RESUMES + 1,
)


class S3Storage:
    """Files as objects of one bucket, all keys below one prefix.

    Uploads are cut into parts of 16 MiB that carry checksums; what fails is aborted, so a key
    shows a whole file or none.
    """

    def __init__(
        self,
        client: S3Client,
        *,
        bucket: str,
        prefix: str = "",
        public_client: S3Client | None = None,
        presigns: bool = True,
    ) -> None:
        """Use an open client.

        Args:
            client: for all work.
            bucket: must exist.
            prefix: empty, or ends with `/`.
            public_client: knows the address under which browsers reach the same bucket.
            presigns: False when browsers can't reach it at all.

        """
        self._client = client
        self._bucket = bucket
        self._prefix = prefix
        self._public = public_client or client
        self._presigns = presigns

    @classmethod
    def from_url(cls, url: str) -> S3Storage:
        """For `s3://bucket/prefix?endpoint=…&region=…`, see `S3Address`.

        Raises:
            ConfigError: the address is of no use.

        """
        address = S3Address.parse(url)
        public = make_client(address, public=True) if address.public_endpoint else None
        return cls(
            make_client(address),
            bucket=address.bucket,
            prefix=address.prefix,
            public_client=public,
            presigns=address.presigns,
        )

    @property
    def outlives_machine(self) -> bool:
        return True

    def _object(self, key: str) -> str:
        return self._prefix + "/".join(key_parts(key))

    def put(self, key: str, path: Path) -> None:
        name = self._object(key)
        with disk_mapped():
            size = path.stat().st_size
        with mapped():
            self._client.upload_file(str(path), self._bucket, name, Config=_TRANSFER)
        stored = self.stat(key)
        if stored is None or stored.bytes != size:
            self.delete(key)
            raise SluiceError(f"storage: {key} did not arrive whole", code="storage_error")

    @contextmanager
    def local(self, key: str, scratch: Path) -> Iterator[Path]:
        found = self.stat(key)
        if found is None:
            raise SluiceError(f"storage: {key} is missing", code="storage_error")
        # The suffix stays: media tools look at it.
        path = scratch / f"{new_id()}{Path(key).suffix}"
        try:
            with disk_mapped():
                scratch.mkdir(parents=True, exist_ok=True)
                self._fetch(key, path, found.bytes)
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _fetch(self, key: str, path: Path, size: int) -> None:
        if shutil.disk_usage(path.parent).free < size + _HEADROOM:
            raise SluiceError(f"no room to fetch {size} bytes", code="disk_full")
        with mapped():
            self._client.download_file(self._bucket, self._object(key), str(path), Config=_TRANSFER)
        if path.stat().st_size != size:
            raise SluiceError(f"storage: {key} did not arrive whole", code="storage_error")

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        name = self._object(key)
        end = None if length is None else start + length
        seen = ""
        resumes = 0
        while end is None or start < end:
            try:
                with mapped():
                    for etag, piece in self._pieces(name, start, end, seen):
                        seen = etag
                        start += len(piece)
                        yield piece
            except SluiceError:
                # A long answer may break off; a new request goes on at the same byte.
                resumes += 1
                if resumes > _RESUMES or not seen:
                    raise
            else:
                return

    def _pieces(
        self, name: str, start: int, end: int | None, etag: str
    ) -> Iterator[tuple[str, bytes]]:
        wanted = f"bytes={start}-{'' if end is None else end - 1}"
        only_same = {"IfMatch": etag} if etag else {}
        try:
            answer = self._client.get_object(
                Bucket=self._bucket,
                Key=name,
                Range=wanted,
                **only_same,  # type: ignore[arg-type]  # the stubs know no optional spread
            )
        except ClientError as exc:
            if _code(exc) in _MISSING | _PAST_END:
                return
            raise
        with closing(answer["Body"]) as body:
            for piece in body.iter_chunks(_PIECE):
                yield answer["ETag"], piece

    def stat(self, key: str) -> Stat | None:
        with mapped():
            try:
                found = self._client.head_object(Bucket=self._bucket, Key=self._object(key))
            except ClientError as exc:
                if _code(exc) in _MISSING:
                    return None
                raise
        return Stat(
            found["ContentLength"], found["LastModified"].timestamp(), found["ETag"].strip('"')
        )

    def keys(self, prefix: str) -> Iterator[str]:
        full = f"{self._object(prefix.rstrip('/'))}/"
        with mapped():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=full
            )
            for page in pages:
                for found in page.get("Contents", ()):
                    yield found["Key"].removeprefix(self._prefix)

    def delete(self, key: str) -> None:
        with mapped():
            self._client.delete_object(Bucket=self._bucket, Key=self._object(key))

    def presigned(self, key: str, *, name: str, content_type: str, seconds: int) -> str | None:
        if not self._presigns:
            return None
        with mapped():
            return self._public.generate_presigned_url(
                "get_object",
                Params={
                    "Bucket": self._bucket,
                    "Key": self._object(key),
                    "ResponseContentDisposition": attachment(name),
                    "ResponseContentType": content_type,
                },
                ExpiresIn=seconds,
            )

    def free_bytes(self) -> int | None:
        return None

    def unfinished(self) -> Iterator[Unfinished]:
        """Uploads in parts that are not complete; a killed process can't abort its own."""
        with mapped():
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket, Prefix=self._prefix
            )
            for upload in (u for page in pages for u in page.get("Uploads", ())):
                key = upload["Key"].removeprefix(self._prefix)
                yield Unfinished(key, upload["Initiated"].timestamp(), upload["UploadId"])

    def abort(self, unfinished: Unfinished) -> None:
        with mapped():
            try:
                self._client.abort_multipart_upload(
                    Bucket=self._bucket,
                    Key=self._object(unfinished.key),
                    UploadId=unfinished.handle,
                )
            except ClientError as exc:
                if _code(exc) not in _MISSING:
                    raise

    def shares_disk(self, folder: Path) -> bool:
        del folder
        return False

    def check(self, *, used: bool = False) -> None:
        del used  # a bucket is never mistaken for another one
        # One key for all: who is killed while it checks leaves no more than this.
        probe = f"{self._prefix}.check"
        try:
            self._client.head_bucket(Bucket=self._bucket)
            self._client.put_object(Bucket=self._bucket, Key=probe, Body=b"")
            self._client.delete_object(Bucket=self._bucket, Key=probe)
        except ClientError as exc:
            raise _refusal(exc, self._bucket) from exc
        except BotoCoreError as exc:
            raise NotYetError(f"The storage can't be reached: {_one_line(exc)}.") from exc


@contextmanager
def mapped() -> Iterator[None]:
    """Turns what boto3 raises into ours."""
    try:
        yield
    except (ClientError, BotoCoreError, Boto3Error) as exc:
        # What a transfer raises names files of this machine; what the server said stands behind it.
        said = exc.__context__ if isinstance(exc, Boto3Error) and exc.__context__ else exc
        full = isinstance(said, ClientError) and _code(said) in _FULL
        code = "disk_full" if full else "storage_error"
        raise SluiceError(f"storage: {_one_line(said)}", code=code) from exc


def _code(exc: ClientError) -> str:
    return str(exc.response.get("Error", {}).get("Code", ""))


def _one_line(exc: BaseException) -> str:
    return " ".join(str(exc).split()).rstrip(".")


def _refusal(exc: ClientError, bucket: str) -> ConfigError:
    code = _code(exc)
    status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        # It starts, or has too much to do: the same is asked again.
        return NotYetError(f"The storage has a fault of its own: {status} {code}.")
    if code in {*_MISSING, "NoSuchBucket"}:
        return NotYetError(f"The storage has no bucket '{bucket}'.")
    if code in {"InvalidAccessKeyId", "SignatureDoesNotMatch"}:
        return ConfigError("The storage refuses the credentials.")
    if code in {"403", "AccessDenied", "AllAccessDisabled"}:
        return ConfigError(f"The storage denies access to the bucket '{bucket}'.")
    return ConfigError(f"The storage refuses to write to the bucket '{bucket}': {code}.")
