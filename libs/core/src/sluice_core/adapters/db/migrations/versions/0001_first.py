"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.String(length=64), nullable=False),
        sa.Column("requests_per_minute", sa.Integer(), nullable=True),
        sa.Column("max_active_jobs", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("hash", name=op.f("uq_api_keys_hash")),
    )
    op.create_table(
        "artifacts",
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("content_type", sa.String(length=128), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "name", name=op.f("pk_artifacts")),
    )
    op.create_table(
        "attempts",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("worker", sa.String(length=128), nullable=False),
        sa.Column("message_id", sa.String(length=26), nullable=False),
        sa.Column("queue", sa.String(length=64), nullable=False),
        sa.Column("published_at", sa.Double(), nullable=True),
        sa.Column("publishes", sa.Integer(), server_default="0", nullable=False),
        sa.Column("deliveries", sa.Integer(), server_default="1", nullable=False),
        sa.Column("delivered_at", sa.Double(), nullable=True),
        sa.Column("claimed_at", sa.Double(), nullable=False),
        sa.Column("beat", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("child_pid", sa.Integer(), nullable=True),
        sa.Column("child_started", sa.BigInteger(), nullable=True),
        sa.Column("progressed", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.Column("error_code", sa.String(length=32), nullable=True),
        sa.Column("error_message", sa.String(length=500), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
    )
    op.create_index("ix_attempts_job_id", "attempts", ["job_id"], unique=False)
    op.create_index(
        "uq_attempts_job_id_epoch",
        "attempts",
        ["job_id", "epoch"],
        unique=True,
        sqlite_where=sa.text("stage <> 'help'"),
        postgresql_where=sa.text("stage <> 'help'"),
    )
    op.create_index(
        "ix_attempts_open",
        "attempts",
        ["ended_at"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "segments",
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("fingerprint", sa.String(length=32), nullable=False),
        sa.Column("frames", sa.Integer(), nullable=False),
        sa.Column("holder", sa.String(length=26), nullable=True),
        sa.Column("encoded", sa.Integer(), server_default="0", nullable=False),
        sa.Column("done", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_segments")),
    )
    op.create_table(
        "dead_letters",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("queue", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=26), nullable=True),
        sa.Column("reason", sa.String(length=500), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dead_letters")),
    )
    op.create_index(op.f("ix_dead_letters_job_id"), "dead_letters", ["job_id"], unique=False)
    op.create_index("ix_dead_letters_queue", "dead_letters", ["queue"], unique=False)
    op.create_table(
        "counters",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_counters")),
    )
    op.create_table(
        "gone_jobs",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("gone_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gone_jobs")),
    )
    op.create_index(op.f("ix_gone_jobs_gone_at"), "gone_jobs", ["gone_at"], unique=False)
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("body_hash", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index(
        op.f("ix_idempotency_keys_created_at"), "idempotency_keys", ["created_at"], unique=False
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("preset", sa.String(length=64), nullable=False),
        sa.Column("lane", sa.String(length=16), nullable=False),
        sa.Column(
            "options",
            sa.JSON(none_as_null=True).with_variant(
                postgresql.JSONB(none_as_null=True), "postgresql"
            ),
            nullable=False,
        ),
        sa.Column("dedup_key", sa.String(length=64), nullable=True),
        sa.Column("api_key_id", sa.String(length=26), nullable=True),
        sa.Column("parent_id", sa.String(length=26), nullable=True),
        sa.Column("schedule_id", sa.String(length=26), nullable=True),
        sa.Column("entry_key", sa.String(length=64), nullable=True),
        sa.Column(
            "entry",
            sa.JSON(none_as_null=True).with_variant(
                postgresql.JSONB(none_as_null=True), "postgresql"
            ),
            nullable=True,
        ),
        sa.Column("expansion_done", sa.Boolean(), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("epoch", sa.Integer(), server_default="0", nullable=False),
        sa.Column("version", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("waiting_for", sa.String(length=16), nullable=True),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("losses", sa.Integer(), server_default="0", nullable=False),
        sa.Column("retry_at", sa.Double(), nullable=True),
        sa.Column("percent", sa.Double(), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.Column("total_bytes", sa.BigInteger(), nullable=True),
        sa.Column("bytes_per_second", sa.Double(), nullable=True),
        sa.Column("eta_seconds", sa.Double(), nullable=True),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("extractor", sa.String(length=128), nullable=True),
        sa.Column("duration", sa.Double(), nullable=True),
        sa.Column("thumbnail", sa.Text(), nullable=True),
        sa.Column(
            "plan",
            sa.JSON(none_as_null=True).with_variant(
                postgresql.JSONB(none_as_null=True), "postgresql"
            ),
            nullable=True,
        ),
        sa.Column(
            "sources",
            sa.JSON(none_as_null=True).with_variant(
                postgresql.JSONB(none_as_null=True), "postgresql"
            ),
            nullable=True,
        ),
        sa.Column("error_code", sa.String(length=32), nullable=True),
        sa.Column("error_class", sa.String(length=16), nullable=True),
        sa.Column("error_message", sa.String(length=500), nullable=True),
        sa.Column(
            "gaps",
            sa.JSON(none_as_null=True).with_variant(
                postgresql.JSONB(none_as_null=True), "postgresql"
            ),
            nullable=True,
        ),
        sa.Column("traceparent", sa.String(length=64), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("deleted_at", sa.Double(), nullable=True),
        sa.Column("wanted_at", sa.Double(), nullable=True),
        sa.Column("sweep_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("dedup_key", name=op.f("uq_jobs_dedup_key")),
        sa.UniqueConstraint("parent_id", "entry_key", name=op.f("uq_jobs_parent_id_entry_key")),
    )
    visible = sa.text("deleted_at IS NULL")
    op.create_index(
        "ix_jobs_api_key_id_status_id",
        "jobs",
        ["api_key_id", "status", "id"],
        unique=False,
        sqlite_where=visible,
        postgresql_where=visible,
    )
    op.create_index("ix_jobs_expires_at", "jobs", ["expires_at"], unique=False)
    op.create_index(
        "ix_jobs_parent_id_status_id", "jobs", ["parent_id", "status", "id"], unique=False
    )
    op.create_index(
        "ix_jobs_status_id",
        "jobs",
        ["status", "id"],
        unique=False,
        sqlite_where=visible,
        postgresql_where=visible,
    )
    op.create_index(
        "ix_jobs_roots",
        "jobs",
        ["id"],
        unique=False,
        sqlite_where=sa.text("parent_id IS NULL"),
        postgresql_where=sa.text("parent_id IS NULL"),
    )
    op.create_index("ix_jobs_sweep_at", "jobs", ["sweep_at"], unique=False)
    op.create_index("ix_jobs_updated_at", "jobs", ["updated_at"], unique=False)
    op.create_table(
        "outbox",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("actor", sa.String(length=16), nullable=False),
        sa.Column("queue", sa.String(length=64), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("published_at", sa.Double(), nullable=True),
        sa.Column("publishes", sa.Integer(), server_default="0", nullable=False),
        sa.Column("traceparent", sa.String(length=64), nullable=True),
        sa.Column("owner", sa.String(length=26), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
    )
    op.create_index(op.f("ix_outbox_job_id"), "outbox", ["job_id"], unique=False)
    op.create_index(
        "ix_outbox_published_at_due_at_queue",
        "outbox",
        ["published_at", "due_at", "queue"],
        unique=False,
    )
    op.create_table(
        "schedules",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("cron", sa.String(length=128), nullable=True),
        sa.Column("timezone", sa.String(length=64), nullable=False),
        sa.Column("every", sa.Double(), nullable=True),
        sa.Column("anchor", sa.Double(), nullable=False),
        sa.Column("missed", sa.String(length=8), nullable=False),
        sa.Column(
            "request",
            sa.JSON(none_as_null=True).with_variant(
                postgresql.JSONB(none_as_null=True), "postgresql"
            ),
            nullable=True,
        ),
        sa.Column("backfill", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("baseline_done", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("api_key_id", sa.String(length=26), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("next_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedules")),
        sa.UniqueConstraint("name", name=op.f("uq_schedules_name")),
    )
    op.create_index("ix_schedules_next_at", "schedules", ["next_at"], unique=False)
    op.create_table(
        "firings",
        sa.Column("schedule_id", sa.String(length=26), nullable=False),
        sa.Column("planned_at", sa.Double(), nullable=False),
        sa.Column("fired_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.Column("job_id", sa.String(length=26), nullable=True),
        sa.Column("message", sa.String(length=500), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("schedule_id", "planned_at", name=op.f("pk_firings")),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("holder", sa.String(length=128), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("beat", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "subscription_entries",
        sa.Column("schedule_id", sa.String(length=26), nullable=False),
        sa.Column("entry_key", sa.String(length=64), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("schedule_id", "entry_key", name=op.f("pk_subscription_entries")),
    )
    op.create_table(
        "callbacks",
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("lane", sa.String(length=16), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column(
            "body",
            sa.JSON(none_as_null=True).with_variant(
                postgresql.JSONB(none_as_null=True), "postgresql"
            ),
            nullable=False,
        ),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.Column("error", sa.String(length=500), nullable=True),
        sa.PrimaryKeyConstraint("job_id", "epoch", name=op.f("pk_callbacks")),
    )
    op.create_index("ix_callbacks_created_at", "callbacks", ["created_at"], unique=False)
    op.create_table(
        "paused_queues",
        sa.Column("queue", sa.String(length=64), nullable=False),
        sa.Column("paused_at", sa.Double(), nullable=False),
        sa.Column("paused_by", sa.String(length=128), nullable=False),
        sa.PrimaryKeyConstraint("queue", name=op.f("pk_paused_queues")),
    )
    op.create_table(
        "drains",
        sa.Column("worker", sa.String(length=128), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("worker", name=op.f("pk_drains")),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("api_key_id", sa.String(length=26), nullable=True),
        sa.Column("actor", sa.String(length=128), nullable=False),
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("target", sa.String(length=128), nullable=True),
        sa.Column(
            "detail",
            sa.JSON(none_as_null=True).with_variant(
                postgresql.JSONB(none_as_null=True), "postgresql"
            ),
            nullable=True,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_table(
        "sites",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("cookies", sa.Integer(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("password", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("used_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("host", name=op.f("pk_sites")),
    )
    op.create_table(
        "job_counts",
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("status", name=op.f("pk_job_counts")),
    )
    op.create_table(
        "job_changes",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            nullable=False,
        ),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("delta", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_changes")),
    )
    op.create_table(
        "tally_events",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            nullable=False,
        ),
        sa.Column("metric", sa.String(length=64), nullable=False),
        sa.Column("labels", sa.String(length=255), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tally_events")),
    )
    op.create_table(
        "tallies",
        sa.Column("series", sa.String(length=64), nullable=False),
        sa.Column("labels", sa.String(length=255), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("series", "labels", name=op.f("pk_tallies")),
    )
    by_bytes = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "job_search",
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.Column("api_key_id", sa.String(length=26), nullable=True),
        sa.Column("preset", sa.String(length=64), nullable=False),
        sa.Column("link", by_bytes, nullable=False),
        sa.Column("title", by_bytes, nullable=False),
        sa.Column("words", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_job_search")),
        sqlite_with_rowid=False,
    )
    for column in ("preset", "link", "title"):
        name = f"ix_job_search_{column}_job_id"
        op.create_index(name, "job_search", [column, "job_id"], unique=False)
    op.create_table(
        "job_terms",
        sa.Column("term", by_bytes, nullable=False),
        sa.Column("job_id", sa.String(length=26), nullable=False),
        sa.PrimaryKeyConstraint("term", "job_id", name=op.f("pk_job_terms")),
        sqlite_with_rowid=False,
    )
    _watch_jobs()


#: A row counts while it is not deleted.
_MOVED = "OLD.status <> NEW.status OR (OLD.deleted_at IS NULL) <> (NEW.deleted_at IS NULL)"
_ADD = "INSERT INTO job_changes (status, delta) SELECT NEW.status, 1 WHERE NEW.deleted_at IS NULL;"
_TAKE = (
    "INSERT INTO job_changes (status, delta) SELECT OLD.status, -1 WHERE OLD.deleted_at IS NULL;"
)


def _watch_jobs() -> None:
    """Triggers that note each change of a job's state."""
    triggers = {
        "jobs_counted_new": ("AFTER INSERT ON jobs FOR EACH ROW", "", _ADD),
        "jobs_counted_moved": (
            "AFTER UPDATE OF status, deleted_at ON jobs FOR EACH ROW",
            f"WHEN ({_MOVED})",
            f"{_TAKE} {_ADD}",
        ),
        "jobs_counted_gone": ("AFTER DELETE ON jobs FOR EACH ROW", "", _TAKE),
    }
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    for name, (event, when, body) in triggers.items():
        if is_postgresql:
            op.execute(
                f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN {body} RETURN NULL; END $$"
            )
            op.execute(f"CREATE TRIGGER {name} {event} {when} EXECUTE FUNCTION {name}()")
        else:
            op.execute(f"CREATE TRIGGER {name} {event} {when} BEGIN {body} END")
