"""Where tracks lie: a site chooses their ids, and no file system may refuse or mix them up."""

from __future__ import annotations

from sluice_downloader.worker import plain_id

ALIKE = ["zh-Hans", "zh_Hans", "zh-hans", "zh.hans", "x" * 60, "x" * 61, "\U0001d41a" * 70, ""]


def test_no_two_ids_share_a_name() -> None:
    names = [plain_id(name) for name in ALIKE]
    # Large and small letters are the same on some disks.
    assert len({name.lower() for name in names}) == len(ALIKE)
    assert all(name.isascii() and len(name) <= 80 for name in names)
    assert not any(set(name) & set("/\\.\0 ") for name in names)


def test_a_plain_id_is_its_own_name() -> None:
    assert plain_id("137-drc") == "137-drc"
