from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice_cli.local import folder
from sluice_core.adapters.seal import Sealer
from sluice_core.domain.errors import ConfigError


@contextmanager
def locked(path: Path) -> Iterator[None]:
    descriptor = folder.lock(path)
    try:
        yield
    finally:
        os.close(descriptor)


def test_a_folder_is_for_one_instance_and_free_after_it(tmp_path: Path) -> None:
    with locked(tmp_path):
        (tmp_path / folder.STATE).write_text(json.dumps({"url": "http://x:1", "pid": 7}))
        with pytest.raises(ConfigError, match=r"runs on .* at http://x:1 \(process 7\)"):
            folder.lock(tmp_path)
        assert folder.running_on(tmp_path) == folder.Instance("http://x:1", 7)
    # The state file of an instance that was killed is not believed.
    assert folder.running_on(tmp_path) is None
    with locked(tmp_path):
        assert folder.is_locked(tmp_path)


def test_a_lock_without_a_state_file_is_an_instance_that_just_starts(tmp_path: Path) -> None:
    with locked(tmp_path):
        assert folder.running_on(tmp_path) is None
        (tmp_path / folder.STATE).write_text("{half")
        assert folder.running_on(tmp_path) is None


def test_the_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    made = folder.prepare(tmp_path / "a" / "b")
    assert made.stat().st_mode & 0o777 == 0o700


def test_an_impossible_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"^The data folder .*file/x can't be written: Not a dir"):
        folder.prepare(tmp_path / "file" / "x")


def test_a_deep_folder_gets_its_sockets_elsewhere_at_the_same_place(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    found = folder.socket_folder(deep, name="redis.sock")
    assert found == folder.socket_folder(deep, name="redis.sock")
    assert len(os.fsencode(found / "redis.sock")) <= folder.MAX_SOCKET_PATH
    assert found.stat().st_mode & 0o777 == 0o700
    found.chmod(0o755)
    with pytest.raises(ConfigError, match="must belong to you alone"):
        folder.socket_folder(deep, name="redis.sock")
    found.rmdir()


def test_the_key_of_what_sites_are_shown_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    # What a start that was killed left.
    (tmp_path / f"{folder.SITE_SECRETS_KEY}.new").write_text("half")
    made = folder.site_secrets_key(tmp_path)
    assert Sealer([made]).has_key
    assert folder.site_secrets_key(tmp_path) == made
    path = tmp_path / folder.SITE_SECRETS_KEY
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="readable by you alone"):
        folder.site_secrets_key(tmp_path)


@pytest.mark.parametrize("content", [b"", b"half a key", b"\xff\xfe"])
def test_a_file_that_holds_no_key_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    folder.site_secrets_key(tmp_path)
    (tmp_path / folder.SITE_SECRETS_KEY).write_bytes(content)
    with pytest.raises(ConfigError, match=r"site-secrets.key holds no key"):
        folder.site_secrets_key(tmp_path)


def test_a_key_that_can_t_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / f"{folder.SITE_SECRETS_KEY}.new").mkdir()
    with pytest.raises(ConfigError, match=r"site-secrets.key can't be read or made: "):
        folder.site_secrets_key(tmp_path)
