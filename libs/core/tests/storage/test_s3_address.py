"""Addresses of S3, its refusals in words, and links that browsers follow."""
# ruff: noqa: S310  # the only servers here are our own, on loopback

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from sluice_core.adapters.storage import open_storage
from sluice_core.adapters.storage.s3_address import S3Address
from sluice_core.domain.errors import ConfigError, NotYetError
from sluice_testing.process import free_port
from sluice_testing.s3 import SECRET_KEY, S3Server


def test_an_address_taken_apart() -> None:
    found = S3Address.parse(
        "s3://media/in/here/?endpoint=http://s3:8333&public_endpoint=https://files.example.org"
        "&region=eu-north-1&access_key=AK&secret_key=a%2Bb%2Fc&presign=off&checksums=off"
    )
    assert (found.bucket, found.prefix, found.region) == ("media", "in/here/", "eu-north-1")
    assert (found.endpoint, found.public_endpoint) == (
        "http://s3:8333",
        "https://files.example.org",
    )
    assert (found.access_key, found.secret_key) == ("AK", "a+b/c")
    assert not found.presigns
    assert not found.checksums
    assert S3Address.parse("s3://media").prefix == ""
    assert "a+b/c" not in repr(found)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("s3://user:pw@bucket/x", "must look like s3://bucket/prefix"),
        ("s3://b?endpoint=s3.local", "endpoint .* must begin with http"),
        ("s3://b?public_endpoint=ftp://x", "public_endpoint .* must begin with http"),
        ("s3://b?access_key=AK", "only one of access_key and secret_key"),
        ("s3://b?presign=maybe", "presign .* must be on or off"),
        ("s3://b?endpont=http://x", "unknown option 'endpont'"),
        ("s3:///no-bucket", "must be file:///folder or s3://bucket/prefix"),
    ],
)
def test_a_wrong_address_is_told_in_one_sentence(url: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        open_storage(url)
    assert "pw" not in str(caught.value)
    assert "AK" not in str(caught.value)


def test_credentials_may_come_from_the_usual_variables(
    weed_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = weed_server.new_bucket()
    query = parse_qs(urlsplit(url).query)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", query["access_key"][0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", query["secret_key"][0])
    bare = url.partition("&access_key")[0]
    open_storage(bare).check()


def test_check_names_a_missing_bucket(weed_server: S3Server) -> None:
    with pytest.raises(ConfigError, match=r"^The storage has no bucket 'nowhere'\.$"):
        open_storage(weed_server.url("nowhere")).check()


def test_check_names_wrong_credentials(weed_server: S3Server) -> None:
    url = weed_server.new_bucket().replace("secret_key=", "secret_key=wrong")
    with pytest.raises(ConfigError, match=r"denies access|refuses the credentials") as caught:
        open_storage(url).check()
    assert SECRET_KEY not in str(caught.value)


def test_check_names_an_unreachable_endpoint() -> None:
    url = f"s3://b?endpoint=http://127.0.0.1:{free_port()}&access_key=a&secret_key=b"
    with pytest.raises(ConfigError, match=r"^The storage can't be reached: .*\.$"):
        open_storage(url).check()


class Starting(BaseHTTPRequestHandler):
    """A server whose own parts are not there yet."""

    def _refuse(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_PUT = _refuse  # noqa: N815  # the base class looks for these

    def log_message(self, *_args: object) -> None:
        pass


def test_check_waits_for_a_server_that_is_still_starting() -> None:
    """As one does that was killed, in MinIO's way or another's; nothing has to be set otherwise."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Starting) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            endpoint = f"http://127.0.0.1:{server.server_port}"
            with pytest.raises(NotYetError, match=r"^The storage has a fault of its own: 503"):
                open_storage(f"s3://b?endpoint={endpoint}&access_key=a&secret_key=b").check()
        finally:
            server.shutdown()
            thread.join(60)


def test_check_names_missing_credentials(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, weed_server: S3Server
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="credentials"):
        open_storage(f"s3://b?endpoint={weed_server.endpoint}").check()


def test_a_presigned_link_gives_the_file_under_its_name(
    weed_server: S3Server, tmp_path: Path
) -> None:
    storage = weed_server.new_storage()
    (tmp_path / "f").write_bytes(b"0123456789")
    storage.put("files/a/transcode.1/x.mp4", tmp_path / "f")
    link = storage.presigned(
        "files/a/transcode.1/x.mp4", name='影片 "🎬".mp4', content_type="video/mp4", seconds=60
    )
    assert link is not None
    request = urllib.request.Request(link, headers={"Range": "bytes=2-4"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 206
        assert answer.read() == b"234"
        assert answer.headers["Content-Type"] == "video/mp4"
        disposition = answer.headers["Content-Disposition"]
    assert disposition.startswith("attachment; ")
    assert "filename*=UTF-8''%E5%BD%B1%E7%89%87%20%22%F0%9F%8E%AC%22.mp4" in disposition


def test_a_presigned_link_is_bound_to_what_was_signed(
    weed_server: S3Server, tmp_path: Path
) -> None:
    storage = weed_server.new_storage()
    for name in ("mine", "other"):
        (tmp_path / name).write_bytes(name.encode())
        storage.put(f"files/{name}", tmp_path / name)
    link = storage.presigned("files/mine", name="m", content_type="a/b", seconds=60)
    assert link is not None
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(link.replace("files/mine", "files/other"), timeout=60)
    caught.value.close()
    assert caught.value.code == 403


def test_browsers_get_the_public_address_or_none(weed_server: S3Server) -> None:
    url = weed_server.url("b")
    public = open_storage(f"{url}&public_endpoint=https://files.example.org")
    link = public.presigned("files/a", name="a", content_type="a/b", seconds=60)
    assert link is not None
    assert link.startswith("https://files.example.org/b/files/a?")
    hidden = open_storage(f"{url}&presign=off")
    assert hidden.presigned("files/a", name="a", content_type="a/b", seconds=60) is None
