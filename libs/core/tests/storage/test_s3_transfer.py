"""Transfers to and from S3 that break."""
# ruff: noqa: S310, SLF001  # servers of our own on loopback; the client shows what S3 really holds

from __future__ import annotations

import base64
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from sluice_core.adapters.storage import open_storage
from sluice_core.adapters.storage.s3 import PART, S3Storage
from sluice_core.adapters.storage.s3_address import S3Address, make_client
from sluice_core.domain.errors import SluiceError
from sluice_testing.process import free_port
from sluice_testing.s3 import S3Server


@contextmanager
def proxy(server: S3Server, handler: type[BrokenProxy]) -> Iterator[str]:
    """An endpoint that passes requests on, and breaks some of them."""

    class Bound(handler):  # type: ignore[misc,valid-type]  # a class made for this server
        upstream = server.endpoint

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_address[1]}"
    finally:
        httpd.shutdown()
        thread.join(60)
        httpd.server_close()


class BrokenProxy(BaseHTTPRequestHandler):
    upstream = ""
    #: Each test's own class holds its own.
    seen: ClassVar[list[str]]

    def breaks(self) -> bool:
        raise NotImplementedError

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.seen.append(f"{self.command} {self.path} {self.headers.get('Range', '')}".strip())
        request = urllib.request.Request(self.upstream + self.path, body or None)
        request.method = self.command
        for name, value in self.headers.items():
            if name.lower() not in {"connection", "expect"}:
                request.add_header(name, value)
        try:
            answer = urllib.request.urlopen(request, timeout=60)
        except urllib.error.HTTPError as refusal:
            answer = refusal
        with answer:
            content = answer.read()
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in {"connection", "transfer-encoding"}:
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if self.breaks() else content)
        self.close_connection = True

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on  # noqa: N815  # the base class looks for these

    def log_message(self, *_args: object) -> None:
        pass


def through(storage_url: str, endpoint: str) -> S3Storage:
    """The same storage by another way; signatures of moto don't bind the host."""
    address = S3Address.parse(storage_url)
    client = make_client(
        S3Address.parse(
            storage_url.replace(storage_url.partition("endpoint=")[2].partition("&")[0], endpoint)
        )
    )
    return S3Storage(client, bucket=address.bucket, prefix=address.prefix)


def test_a_broken_read_goes_on_at_the_same_byte(moto_server: S3Server, tmp_path: Path) -> None:
    class HalfTwice(BrokenProxy):
        seen: ClassVar[list[str]] = []

        def breaks(self) -> bool:
            return self.command == "GET" and len(self.seen) <= 2

    url = moto_server.new_bucket()
    content = os.urandom(3_000_000)
    (tmp_path / "f").write_bytes(content)
    open_storage(url).put("work/f", tmp_path / "f")
    with proxy(moto_server, HalfTwice) as endpoint:
        assert b"".join(through(url, endpoint).read("work/f", start=5)) == content[5:]
    ranges = [line.rpartition(" ")[2] for line in HalfTwice.seen]
    assert ranges[0] == "bytes=5-"
    assert len(ranges) == 3
    assert len(set(ranges)) == 3


def test_a_read_that_breaks_for_ever_is_an_error(moto_server: S3Server, tmp_path: Path) -> None:
    class AlwaysHalf(BrokenProxy):
        seen: ClassVar[list[str]] = []

        def breaks(self) -> bool:
            return self.command == "GET"

    url = moto_server.new_bucket()
    (tmp_path / "f").write_bytes(os.urandom(3_000_000))
    open_storage(url).put("work/f", tmp_path / "f")
    with proxy(moto_server, AlwaysHalf) as endpoint, pytest.raises(SluiceError) as caught:
        list(through(url, endpoint).read("work/f"))
    assert caught.value.code == "storage_error"
    assert len(AlwaysHalf.seen) <= 8


@pytest.mark.parametrize(
    ("said", "code"), [("InternalError", "storage_error"), ("InsufficientStorage", "disk_full")]
)
def test_a_failed_upload_is_aborted_and_leaves_no_key(
    moto_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, code: str
) -> None:
    storage = moto_server.new_storage()
    client = storage._client
    (tmp_path / "f").write_bytes(b"x" * (PART + 1))

    def refuse(**_kwargs: object) -> None:
        raise client.exceptions.ClientError({"Error": {"Code": said}}, "UploadPart")

    monkeypatch.setattr(client, "upload_part", refuse)
    with pytest.raises(SluiceError) as caught:
        storage.put("files/f", tmp_path / "f")
    assert caught.value.code == code
    # It is shown to people: no path of this machine.
    assert said in caught.value.message
    assert str(tmp_path) not in caught.value.message
    assert storage.stat("files/f") is None
    assert "Uploads" not in client.list_multipart_uploads(Bucket=storage._bucket)


def test_what_arrived_short_is_taken_back(
    moto_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = moto_server.new_storage()
    client = storage._client
    (tmp_path / "f").write_bytes(b"whole")

    def half(_path: str, bucket: str, name: str, **_kwargs: object) -> None:
        client.put_object(Bucket=bucket, Key=name, Body=b"wh")

    monkeypatch.setattr(client, "upload_file", half)
    with pytest.raises(SluiceError, match="whole"):
        storage.put("files/f", tmp_path / "f")
    assert storage.stat("files/f") is None


def test_uploads_of_killed_processes_are_found_and_dropped(weed_server: S3Server) -> None:
    storage = weed_server.new_storage()
    client, bucket = storage._client, storage._bucket
    client.create_multipart_upload(Bucket=bucket, Key="some/prefix/work/a")
    client.create_multipart_upload(Bucket=bucket, Key="not/ours")
    [found] = storage.unfinished()
    assert found.key == "work/a"
    assert found.began_at == pytest.approx(time.time(), abs=60)
    storage.abort(found)
    storage.abort(found)
    assert list(storage.unfinished()) == []
    left = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert [upload["Key"] for upload in left] == ["not/ours"]


def test_parts_carry_checksums(moto_server: S3Server, tmp_path: Path) -> None:
    storage = moto_server.new_storage()
    (tmp_path / "f").write_bytes(b"123456789")
    storage.put("files/f", tmp_path / "f")
    head = storage._client.head_object(
        Bucket=storage._bucket, Key="some/prefix/files/f", ChecksumMode="ENABLED"
    )
    # The check value of CRC-32, as every table of CRCs gives it.
    assert base64.b64decode(head["ChecksumCRC32"]).hex() == "cbf43926"


def test_no_room_for_a_local_copy_is_disk_full(
    moto_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = moto_server.new_storage()
    (tmp_path / "f").write_bytes(b"x")
    storage.put("work/f", tmp_path / "f")
    monkeypatch.setattr("sluice_core.adapters.storage.s3._HEADROOM", 1 << 60)
    with (
        pytest.raises(SluiceError) as caught,
        storage.local("work/f", tmp_path / "scratch"),
    ):
        pass
    assert caught.value.code == "disk_full"
    assert not list((tmp_path / "scratch").iterdir())


def _calls(storage: S3Storage, folder: Path) -> list[Callable[[], object]]:
    (folder / "f").write_bytes(b"x")
    return [
        lambda: storage.put("a", folder / "f"),
        lambda: storage.stat("a"),
        lambda: list(storage.read("a")),
        lambda: list(storage.keys("a/")),
        lambda: storage.delete("a"),
        lambda: storage.local("a", folder).__enter__(),
    ]


def test_an_unreachable_endpoint_is_a_storage_error(tmp_path: Path) -> None:
    storage = S3Storage.from_url(
        f"s3://b?endpoint=http://127.0.0.1:{free_port()}&access_key=a&secret_key=b"
    )
    # Waiting between tries is the library's; once is enough to see the mapping.
    storage._client.meta.events.register("needs-retry.s3.*", lambda **_: None)
    for call in _calls(storage, tmp_path):
        with pytest.raises(SluiceError) as caught:
            call()
        assert caught.value.code == "storage_error"
