"""Room is promised once, watched, and freed with a word on it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sluice_core.adapters.storage.folder import FolderStorage
from sluice_core.domain.errors import ErrorClass, SluiceError
from sluice_core.runtime.children.spec import LOCK_NAME
from sluice_core.runtime.disk import Disk, free_bytes, free_within, used_bytes

MIB = 1024 * 1024
RESERVE = 100 * MIB


class Free:
    """What the disk has, as the test says."""

    def __init__(self, mib: int) -> None:
        self.mib = mib

    def __call__(self, folder: Path) -> int:
        assert folder.is_dir()
        return self.mib * MIB


class Place:
    def __init__(self, root: Path, mib: int) -> None:
        self.free = Free(mib)
        self.storage = FolderStorage(root / "storage")
        self.storage.check()
        self.scratch = root / "scratch"
        self.disk = Disk(self.scratch, self.storage, reserve=RESERVE, free=self.free)

    def run(self, name: str, content: bytes = b"") -> Path:
        folder = self.scratch / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / LOCK_NAME).touch()
        if content:
            (folder / "137.part").write_bytes(content)
        return folder


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, 150)


def test_too_large_is_refused_before_a_byte_is_written(place: Place) -> None:
    with pytest.raises(SluiceError) as caught, place.disk.room(place.run("a"), whole=51 * MIB):
        pytest.fail("was let in")
    assert (caught.value.code, caught.value.error_class) == ("disk_full", ErrorClass.TRANSIENT)
    assert caught.value.message == (
        "51 MiB are needed and 150 MiB are free; 100 MiB stay in reserve"
    )
    with place.disk.room(place.run("a"), whole=50 * MIB):
        pass


def test_an_unknown_size_needs_the_reserve_alone(place: Place) -> None:
    place.free.mib = 99
    with (
        pytest.raises(SluiceError, match="only 99 MiB are free"),
        place.disk.room(place.run("a"), whole=0),
    ):
        pytest.fail("was let in")
    place.free.mib = 100
    with place.disk.room(place.run("a"), whole=0):
        pass


def test_room_is_promised_once(place: Place) -> None:
    with place.disk.room(place.run("a"), whole=40 * MIB) as first:
        with (
            pytest.raises(SluiceError, match="60 MiB are needed"),
            place.disk.room(place.run("b"), whole=20 * MIB),
        ):
            pytest.fail("was let in")
        # What the first one has written is no longer to come; the disk says so by itself.
        first.written(done=30 * MIB, whole=40 * MIB)
        place.free.mib = 130
        with place.disk.room(place.run("b"), whole=20 * MIB):
            pass
    with place.disk.room(place.run("c"), whole=30 * MIB):
        pass


def test_a_size_that_is_learned_late_is_judged_then(place: Place) -> None:
    with pytest.raises(SluiceError, match="60 MiB are needed"):  # noqa: PT012, SIM117  # two lessons
        with place.disk.room(place.run("a"), whole=0) as room:
            room.written(done=0, whole=40 * MIB)
            with place.disk.room(place.run("b"), whole=10 * MIB):
                room.written(done=MIB, whole=51 * MIB)
    with place.disk.room(place.run("c"), whole=50 * MIB):
        pass


def test_what_is_here_already_needs_no_room(place: Place) -> None:
    place.free.mib = 101
    with place.disk.room(place.run("a", b"x" * 2 * MIB), whole=3 * MIB):
        pass
    with pytest.raises(SluiceError), place.disk.room(place.run("b"), whole=3 * MIB):
        pytest.fail("was let in")


def test_a_low_disk_ends_the_run_and_frees_its_files(place: Place) -> None:
    scratch = place.run("a", b"x" * 3 * MIB)
    other = place.run("b", b"y")
    with pytest.raises(SluiceError) as caught, place.disk.room(scratch, whole=10 * MIB) as room:  # noqa: PT012  # the block is what is ended
        place.free.mib = 51
        room.written(done=4 * MIB, whole=10 * MIB)
        place.free.mib = 49
        room.written(done=5 * MIB, whole=10 * MIB)
    assert caught.value.code == "disk_full"
    assert "only 49 MiB are left" in caught.value.message
    assert caught.value.message.endswith("; 3 MiB of temporary files were removed")
    assert used_bytes(scratch) == 0
    assert (scratch / LOCK_NAME).exists()
    assert (other / "137.part").exists()


def test_a_few_bytes_that_were_freed_are_not_worth_a_word(place: Place) -> None:
    scratch = place.run("a", b"x")
    with pytest.raises(SluiceError) as caught, place.disk.room(scratch, whole=900 * MIB):
        pytest.fail("was let in")
    assert used_bytes(scratch) == 0
    assert "removed" not in caught.value.message


def test_the_system_saying_so_counts_too(place: Place) -> None:
    scratch = place.run("a", b"x" * MIB)
    with pytest.raises(SluiceError, match="1 MiB of temporary"), place.disk.room(scratch, whole=0):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    other = place.run("b", b"x" * MIB)
    with pytest.raises(PermissionError), place.disk.room(other, whole=0):
        raise PermissionError(errno.EACCES, "no")
    with pytest.raises(SluiceError, match="cut"), place.disk.room(other, whole=0):
        raise SluiceError("cut", code="network")
    assert used_bytes(other) == MIB


def test_a_storage_on_another_disk_needs_room_of_its_own(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place.storage, "shares_disk", lambda _folder: False)
    monkeypatch.setattr(place.storage, "free_bytes", lambda: 120 * MIB)
    with place.disk.room(place.run("a"), whole=20 * MIB):
        pass
    with (
        pytest.raises(SluiceError, match="the storage needs 21 MiB and has 120"),
        place.disk.room(place.run("a"), whole=21 * MIB),
    ):
        pytest.fail("was let in")
    with place.disk.room(place.run("a"), whole=None, stored=1) as room:
        room.stored(20 * MIB)
        with pytest.raises(SluiceError, match="the storage needs 21 MiB and has 120"):
            room.stored(21 * MIB)
    # What was refused holds no promise.
    monkeypatch.setattr(place.storage, "free_bytes", lambda: None)
    with place.disk.room(place.run("b"), whole=50 * MIB):
        pass


def test_more_than_was_asked_for_needs_room_in_such_a_storage_too(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place.storage, "free_bytes", lambda: 120 * MIB)
    with place.disk.room(place.run("a"), whole=MIB) as room:
        # On the same disk a link will do.
        room.stored(50 * MIB)
        monkeypatch.setattr(place.storage, "shares_disk", lambda _folder: False)
        room.stored(20 * MIB)
        with pytest.raises(SluiceError, match="the storage needs 21 MiB and has 120"):
            room.stored(21 * MIB)


def test_a_folder_that_may_hold_less_than_its_disk(place: Place) -> None:
    """A pod's volume is only counted, and the pod ends when it holds too much."""
    assert free_within(0) is free_bytes
    free = free_within(150 * MIB)
    disk = Disk(place.scratch, place.storage, reserve=RESERVE, free=free)
    scratch = place.run("a", b"x" * 30 * MIB)
    other = place.run("b")
    assert free(place.scratch) == 120 * MIB
    with disk.room(other, whole=20 * MIB) as room:
        with (
            pytest.raises(SluiceError, match="21 MiB are needed"),
            disk.room(place.run("c"), whole=MIB),
        ):
            pytest.fail("was let in")
        room.written(done=0, whole=None)
        (scratch / "137.part").write_bytes(b"x" * 110 * MIB)
        with pytest.raises(SluiceError) as caught:
            room.written(done=0, whole=None)
    assert caught.value.code == "disk_full"
