"""Settings: read once, wrong ones named in a sentence, secrets never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice_core.adapters.settings import load
from sluice_core.adapters.storage import open_storage
from sluice_core.domain.errors import ConfigError
from sluice_core.domain.lanes import STAGES, Actor


def test_defaults_need_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load({})
    assert settings.store.effective_database_url == f"sqlite:///{tmp_path}/.sluice/sluice.db"
    assert settings.store.effective_storage_url == f"file://{tmp_path}/.sluice/storage"
    assert not settings.http.keys_required
    assert set(settings.stages) == set(STAGES)
    assert settings.stages[Actor.DOWNLOAD].soft_time_limit is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTP_PORT", "many"),
        ("HTTP_PORT", "70000"),
        ("MAX_ENTRIES", "0"),
        ("MAX_FILE_SIZE", "-1"),
        ("DATABASE_POOL", "1.5"),
        ("LOG_FORMAT", "xml"),
        ("LOG_LEVEL", "LOUD"),
        ("API_KEYS_REQUIRED", "perhaps"),
        ("RETENTION_FILES", "0"),
        ("RETENTION_JOBS", "soon"),
        ("RATE_LIMIT", "-5"),
        ("CONCURRENCY", "0"),
        ("STALL_TIMEOUT", "0"),
        ("MAX_TRIES", "99"),
        ("SOFT_TIME_LIMIT", "-1"),
        ("HARD_TIME_LIMIT", "x"),
    ],
)
def test_a_wrong_value_is_named_in_one_sentence(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load({f"SLUICE_{name}": value})
    sentence = str(caught.value)
    assert sentence.startswith(f"SLUICE_{name} has a wrong value '{value}': ")
    assert sentence.endswith(".")
    assert "\n" not in sentence


def test_the_line_at_the_start_has_what_was_set_alone() -> None:
    assert load({}).changed() == {}
    environ = {
        "SLUICE_S3_SECRET_KEY": "abc",
        "SLUICE_PARSE_MAX_TRIES": "9",
        "SLUICE_HTTP_PORT": "8080",
    }
    changed = load(environ).changed()
    assert set(changed) == {"SLUICE_S3_SECRET_KEY", "SLUICE_PARSE_MAX_TRIES"}
    assert "abc" not in changed.values()


def test_a_wrong_value_of_one_stage_is_named_as_it_was_set() -> None:
    with pytest.raises(ConfigError, match=r"^SLUICE_DOWNLOAD_CONCURRENCY has a wrong value '0': "):
        load({"SLUICE_DOWNLOAD_CONCURRENCY": "0"})


def test_limits_that_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="SOFT_TIME_LIMIT must be below HARD_TIME_LIMIT"):
        load({"SLUICE_PARSE_SOFT_TIME_LIMIT": "300", "SLUICE_PARSE_HARD_TIME_LIMIT": "300"})


def test_a_stage_goes_before_all_stages() -> None:
    settings = load({"SLUICE_MAX_TRIES": "7", "SLUICE_DOWNLOAD_MAX_TRIES": "2"})
    tries = {actor: stage.max_tries for actor, stage in settings.stages.items()}
    assert tries == {Actor.PARSE: 7, Actor.DOWNLOAD: 2, Actor.TRANSCODE: 7}


def test_empty_means_unset_and_overrides_win() -> None:
    settings = load({"SLUICE_HTTP_PORT": "", "SLUICE_LOG_LEVEL": "DEBUG"}, log_level="ERROR")
    assert settings.http.http_port == 8080
    assert settings.log.log_level == "ERROR"
    assert load({"SLUICE_HTTP_PORT": "9000"}, http_port=None).http.http_port == 9000


@pytest.mark.parametrize(
    ("host", "required", "expected"),
    [
        ("127.0.0.1", "", False),
        ("::1", "", False),
        ("localhost", "", False),
        ("0.0.0.0", "", True),  # noqa: S104  # the case itself
        ("example.org", "", True),
        ("127.0.0.1", "true", True),
        ("0.0.0.0", "false", False),  # noqa: S104  # as above
    ],
)
def test_keys_are_required_off_loopback(host: str, required: str, *, expected: bool) -> None:
    settings = load({"SLUICE_HTTP_HOST": host, "SLUICE_API_KEYS_REQUIRED": required})
    assert settings.http.keys_required is expected


def test_no_secret_is_shown_or_told() -> None:
    env = {
        "SLUICE_DATABASE_URL": "postgresql+psycopg://me:hush1@db/x",
        "SLUICE_REDIS_URL": "redis://:hush2@host/0",
        "SLUICE_STORAGE_URL": "s3://b?access_key=hush3&secret_key=hush4",
        "SLUICE_EGRESS_PROXY": "http://u:hush5@proxy",
        "SLUICE_S3_ACCESS_KEY": "hush6",
        "SLUICE_S3_SECRET_KEY": "hush7",
    }
    settings = load(env)
    assert "hush" not in str(settings.effective())
    assert set(env) <= set(settings.effective())
    with pytest.raises(ConfigError) as caught:
        load({"SLUICE_DATABASE_POOL": "redis://:hush@host"})
    assert "hush" not in str(caught.value)


def test_the_effective_settings_can_be_set_again() -> None:
    before = load({"SLUICE_DOWNLOAD_CONCURRENCY": "9", "SLUICE_TIMEZONE": "Europe/Oslo"})
    assert load(before.effective()) == before


def test_s3_credentials_join_the_address() -> None:
    env = {"SLUICE_S3_ACCESS_KEY": "A", "SLUICE_S3_SECRET_KEY": "a+b/c&d"}
    store = load({**env, "SLUICE_STORAGE_URL": "s3://b/p?region=x"}).store
    assert store.effective_storage_url == "s3://b/p?region=x&access_key=A&secret_key=a%2Bb%2Fc%26d"
    assert (
        load({**env, "SLUICE_STORAGE_URL": "file:///x"}).store.effective_storage_url == "file:///x"
    )


def test_a_data_folder_with_odd_signs(tmp_path: Path) -> None:
    folder = tmp_path / "my data 100% #1?"
    store = load({"SLUICE_DATA_DIR": str(folder)}).store
    open_storage(store.effective_storage_url).check()
    assert (folder / "storage").is_dir()
