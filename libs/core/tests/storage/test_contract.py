"""What every storage must do; the same tests on a folder, a fake S3 and a real one."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from sluice_core.adapters.storage import Storage
from sluice_core.domain.errors import SluiceError

MIB = 1024 * 1024


def file(folder: Path, content: bytes, name: str = "file") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def whole(storage: Storage, key: str, *, start: int = 0, length: int | None = None) -> bytes:
    return b"".join(storage.read(key, start=start, length=length))


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


@pytest.mark.parametrize("content", [b"", b"x", b"0123456789" * 1000], ids=["0", "1", "10000"])
def test_what_was_put_is_there(storage: Storage, tmp_path: Path, content: bytes) -> None:
    storage.put("files/a/b.mp4", file(tmp_path, content))
    found = storage.stat("files/a/b.mp4")
    assert found is not None
    assert found.bytes == len(content)
    assert found.etag
    assert found.modified_at == pytest.approx((tmp_path / "file").stat().st_mtime, abs=30)
    assert whole(storage, "files/a/b.mp4") == content


def test_names_in_any_script(storage: Storage, tmp_path: Path) -> None:
    key = "files/a/影片 🎬 100% it's +a?&=#.mp4"
    storage.put(key, file(tmp_path, b"film"))
    assert list(storage.keys("files/a/")) == [key]
    assert whole(storage, key) == b"film"


def test_more_than_one_part(storage: Storage, tmp_path: Path, scratch: Path) -> None:
    content = os.urandom(MIB) * 17 + b"end"
    storage.put("work/big", file(tmp_path, content))
    assert storage.stat("work/big").bytes == len(content)  # type: ignore[union-attr]
    pieces = list(storage.read("work/big"))
    assert max(map(len, pieces)) <= MIB
    assert b"".join(pieces) == content
    with storage.local("work/big", scratch) as path:
        assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [
        (0, None, b"0123456789"),
        (4, None, b"456789"),
        (4, 3, b"456"),
        (8, 99, b"89"),
        (10, None, b""),
        (99, 5, b""),
        (0, 0, b""),
    ],
)
def test_ranges(
    storage: Storage, tmp_path: Path, start: int, length: int | None, expected: bytes
) -> None:
    storage.put("work/ten", file(tmp_path, b"0123456789"))
    assert whole(storage, "work/ten", start=start, length=length) == expected


def test_what_is_missing_is_nothing_and_no_error(storage: Storage, scratch: Path) -> None:
    assert storage.stat("files/no/such") is None
    assert whole(storage, "files/no/such") == b""
    assert list(storage.keys("files/no/")) == []
    storage.delete("files/no/such")
    with (
        pytest.raises(SluiceError, match="missing") as caught,
        storage.local("files/no/such", scratch),
    ):
        pass
    assert caught.value.code == "storage_error"


def test_put_replaces(storage: Storage, tmp_path: Path) -> None:
    storage.put("files/a/b", file(tmp_path, b"first", "1"))
    before = storage.stat("files/a/b")
    storage.put("files/a/b", file(tmp_path, b"second", "2"))
    assert whole(storage, "files/a/b") == b"second"
    assert storage.stat("files/a/b") != before


def test_what_cannot_be_read_leaves_no_key(storage: Storage, tmp_path: Path) -> None:
    with pytest.raises(SluiceError) as caught:
        storage.put("files/a/b", tmp_path / "missing")
    assert caught.value.code == "storage_error"
    assert storage.stat("files/a/b") is None


def test_keys_of_one_prefix_only(storage: Storage, tmp_path: Path) -> None:
    source = file(tmp_path, b"x")
    for key in ("files/a/1", "files/a/deep/2", "files/ab/3", "work/a/4"):
        storage.put(key, source)
    assert sorted(storage.keys("files/a/")) == ["files/a/1", "files/a/deep/2"]
    assert sorted(storage.keys("files/")) == ["files/a/1", "files/a/deep/2", "files/ab/3"]


def test_delete_takes_one_key(storage: Storage, tmp_path: Path) -> None:
    source = file(tmp_path, b"x")
    storage.put("files/a/1", source)
    storage.put("files/a/2", source)
    storage.delete("files/a/1")
    storage.delete("files/a/1")
    assert list(storage.keys("files/a/")) == ["files/a/2"]
    storage.delete("files/a/2")
    assert list(storage.keys("files/")) == []


def test_local_leaves_nothing_behind(storage: Storage, tmp_path: Path, scratch: Path) -> None:
    storage.put("work/a.webm", file(tmp_path, b"media"))
    with storage.local("work/a.webm", scratch) as path:
        assert path.read_bytes() == b"media"
        assert path.suffix == ".webm"
    assert not scratch.exists() or not list(scratch.iterdir())
    assert whole(storage, "work/a.webm") == b"media"


def test_a_reader_may_leave_early(storage: Storage, tmp_path: Path) -> None:
    storage.put("work/a", file(tmp_path, b"x" * 3 * MIB))
    pieces = storage.read("work/a")
    assert next(pieces)
    pieces.close()  # type: ignore[attr-defined]


def test_a_key_never_leads_out(storage: Storage, tmp_path: Path) -> None:
    source = file(tmp_path, b"x")
    for key in ("", "/etc/passwd", "../x", "a/../../x", "a//b", "a/./b", "a\0b"):
        with pytest.raises(ValueError, match="not a storage key"):
            storage.put(key, source)
        for call in (storage.stat, storage.delete, partial(whole, storage)):
            with pytest.raises(ValueError, match="not a storage key"):
                call(key)


def test_check_is_content_and_leaves_no_key(storage: Storage) -> None:
    storage.check()
    assert list(storage.keys(".check/")) == []


def test_free_space_is_a_figure_or_no_limit(storage: Storage) -> None:
    storage.check()
    free = storage.free_bytes()
    assert free is None or free > 0
