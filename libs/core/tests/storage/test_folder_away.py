"""A storage folder that is away is not an empty one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sluice_core.adapters.storage.folder import FolderStorage
from sluice_core.domain.errors import ConfigError, NotYetError, SluiceError

KEY = "work/a/parse.1/info.json"


@pytest.mark.parametrize(
    "ask",
    [
        lambda storage: list(storage.keys("work/a/")),
        lambda storage: list(storage.read(KEY)),
        lambda storage: storage.stat(KEY),
        lambda storage: storage.delete(KEY),
        lambda storage: storage.put(KEY, Path(__file__)),
    ],
    ids=["keys", "read", "stat", "delete", "put"],
)
@pytest.mark.parametrize("place", ["a file", "nothing", "an empty folder"])
def test_away(tmp_path: Path, ask: Callable[[FolderStorage], object], place: str) -> None:
    """Also as a disk is that was unmounted: its mount point is an empty folder."""
    root = tmp_path / "storage"
    storage = FolderStorage(root)
    storage.check()
    file = tmp_path / "file"
    file.write_bytes(b"{}")
    storage.put(KEY, file)
    root.rename(tmp_path / "elsewhere")
    if place == "a file":
        root.write_bytes(b"")
    if place == "an empty folder":
        root.mkdir()
    with pytest.raises(SluiceError) as caught:
        ask(storage)
    assert caught.value.code == "storage_error"
    # As a probe asks again and again.
    with pytest.raises(ConfigError):
        storage.check()
    if root.is_dir():
        assert list(root.iterdir()) == []
        root.rmdir()
    root.unlink(missing_ok=True)
    (tmp_path / "elsewhere").rename(root)
    assert list(storage.keys("work/")) == [KEY]
    assert b"".join(storage.read(KEY)) == b"{}"


@pytest.mark.parametrize(("away", "code"), [(True, "storage_error"), (False, "bad_media")])
def test_what_failed_over_a_file_that_went_away_is_no_fault_of_the_file(
    tmp_path: Path, code: str, *, away: bool
) -> None:
    storage = FolderStorage(tmp_path / "storage")
    file = tmp_path / "file"
    file.write_bytes(b"{}")
    storage.put(KEY, file)

    def probe() -> None:
        with storage.local(KEY, tmp_path):
            if away:
                (tmp_path / "storage").rename(tmp_path / "elsewhere")
            raise SluiceError(code="bad_media")

    with pytest.raises(SluiceError) as caught:
        probe()
    assert caught.value.code == code


def test_a_bare_mount_point_is_not_taken_for_a_storage_in_use(tmp_path: Path) -> None:
    root = tmp_path / "storage"
    root.mkdir()
    with pytest.raises(NotYetError, match=r"is its disk mounted\?.* make \.incoming"):
        FolderStorage(root).check(used=True)
    assert list(root.iterdir()) == []
    FolderStorage(root).check()
    FolderStorage(root).check(used=True)
