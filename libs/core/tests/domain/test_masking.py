"""What stands in the place of secrets."""

from __future__ import annotations

import pytest

from sluice_core.domain.masking import mask_setting, mask_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no address", "no address"),
        ("https://a.example/b", "https://a.example/b"),
        ("https://a.example/b?c=d&e=f", "https://a.example/b?***"),
        ("<HTTPS://a.example/b#c> then", "<HTTPS://a.example/b?***> then"),
        ("('http://a.example/?k=v',)", "('http://a.example/?***',)"),
        ("redis://:word@host:6379/0", "redis://***@host:6379/0"),
        ("postgresql://u:w@host/db?sslmode=require", "postgresql://***@host/db?sslmode=require"),
        ("https://a.example/b?c https://d.example/e?f", "https://a.example/b?*** https://d.example/e?***"),
        ("a mail to me@a.example, see https://a.example/@me", "a mail to me@a.example, see https://a.example/@me"),
    ],
)  # fmt: skip
def test_of_a_line(text: str, shown: str) -> None:
    assert mask_text(text) == shown


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("database_url", "postgresql+psycopg://me:pw@db:5432/x", "postgresql+psycopg://me:***@db:5432/x"),
        ("database_url", "postgresql+psycopg://me:p%40w@db/x", "postgresql+psycopg://me:***@db/x"),
        ("redis_url", "rediss://:pw@host:6379/0", "rediss://:***@host:6379/0"),
        ("redis_url", "unix:///run/redis.sock?db=0", "unix:///run/redis.sock?db=0"),
        ("database_url", "sqlite:////var/x.db", "sqlite:////var/x.db"),
        ("storage_url", "file:///var/x", "file:///var/x"),
        ("redis_url", "redis://host/0?password=pw&x=1", "redis://host/0?password=***&x=1"),
        (
            "storage_url",
            "s3://b/p?endpoint=http://s3&access_key=AK&secret_key=SK",
            "s3://b/p?endpoint=http://s3&access_key=***&secret_key=***",
        ),
        ("egress_proxy", "http://u:pw@proxy:3128", "http://u:***@proxy:3128"),
        ("s3_secret_key", "SK", "***"),
        ("s3_access_key", "AK", "***"),
        ("http_host", "0.0.0.0", "0.0.0.0"),  # noqa: S104  # the case itself
        ("max_body", 5, "5"),
        ("log_format", None, ""),
        ("s3_secret_key", "", ""),
    ],
)  # fmt: skip
def test_of_a_setting(name: str, value: object, shown: str) -> None:
    assert mask_setting(name, value) == shown
