"""Tables. Times are Unix seconds, sizes bytes, durations seconds."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from sluice_core.adapters.db.types import Json, Words

#: Newest migration; a database may be ahead of a process while an update rolls out, never behind.
REVISION = "0001"

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
_Id = sa.String(26)


def _where(condition: str) -> dict[str, Any]:
    """Of an index that has only some rows."""
    return {f"{name}_where": sa.text(condition) for name in ("sqlite", "postgresql")}


#: Of attempts: those that own their job while they run.
_NO_HELP = "stage <> 'help'"

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("url", Words, nullable=False),
    sa.Column("preset", sa.String(64), nullable=False),
    sa.Column("lane", sa.String(16), nullable=False),
    #: The request as submitted, see `sluice_core.domain.job.Request`.
    sa.Column("options", Json, nullable=False),
    #: Hash of submitter and request; null once the job can't stand for a new submit.
    sa.Column("dedup_key", sa.String(64), unique=True),
    sa.Column("api_key_id", _Id),
    sa.Column("parent_id", _Id),
    #: The schedule or subscription that made the job.
    sa.Column("schedule_id", _Id),
    sa.Column("entry_key", sa.String(64)),
    sa.Column("entry", Json),
    sa.Column("expansion_done", sa.Boolean),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("stage", sa.String(16), nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False, server_default="0"),
    sa.Column("version", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("waiting_for", sa.String(16)),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("losses", sa.Integer, nullable=False, server_default="0"),
    sa.Column("retry_at", sa.Double),
    sa.Column("percent", sa.Double),
    sa.Column("bytes", sa.BigInteger),
    sa.Column("total_bytes", sa.BigInteger),
    sa.Column("bytes_per_second", sa.Double),
    sa.Column("eta_seconds", sa.Double),
    sa.Column("title", Words),
    sa.Column("extractor", Words(128)),
    sa.Column("duration", sa.Double),
    sa.Column("thumbnail", Words),
    sa.Column("plan", Json),
    sa.Column("sources", Json),
    sa.Column("error_code", sa.String(32)),
    sa.Column("error_class", sa.String(16)),
    sa.Column("error_message", Words(500)),
    #: What the files of a PARTIAL job are without, see `sluice_core.domain.gaps`.
    sa.Column("gaps", Json),
    sa.Column("traceparent", sa.String(64)),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("finished_at", sa.Double),
    sa.Column("expires_at", sa.Double),
    #: Set by deletion; the row and its files go with the next sweep.
    sa.Column("deleted_at", sa.Double),
    #: Since when somebody waits for it, where that is not since it was made: a start time, a retry.
    sa.Column("wanted_at", sa.Double),
    #: Since when files of no more use may lie in storage; null once swept.
    sa.Column("sweep_at", sa.Double),
    sa.UniqueConstraint("parent_id", "entry_key"),
    # Without deleted ones: counted without a look at the rows.
    sa.Index("ix_jobs_status_id", "status", "id", **_where("deleted_at IS NULL")),
    sa.Index(
        "ix_jobs_api_key_id_status_id",
        *("api_key_id", "status", "id"),
        **_where("deleted_at IS NULL"),
    ),
    sa.Index("ix_jobs_roots", "id", **_where("parent_id IS NULL")),
    sa.Index("ix_jobs_parent_id_status_id", "parent_id", "status", "id"),
    sa.Index("ix_jobs_updated_at", "updated_at"),
    sa.Index("ix_jobs_sweep_at", "sweep_at"),
    sa.Index("ix_jobs_expires_at", "expires_at"),
)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("job_id", _Id, nullable=False),
    #: A stage, or `help`: a slot that encodes segments for the job's transcode run.
    sa.Column("stage", sa.String(16), nullable=False),
    #: Counts the runs of one job's stage, from 1.
    sa.Column("number", sa.Integer, nullable=False),
    #: The epoch that the claim gave this run; of a help, the one that the job had.
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("worker", sa.String(128), nullable=False),
    #: Cut where a stranger chose it.
    sa.Column("message_id", Words(26), nullable=False),
    sa.Column("queue", sa.String(64), nullable=False),
    sa.Column("published_at", sa.Double),
    sa.Column("publishes", sa.Integer, nullable=False, server_default="0"),
    #: How often the message was given to a worker, this time included.
    sa.Column("deliveries", sa.Integer, nullable=False, server_default="1"),
    sa.Column("delivered_at", sa.Double),
    sa.Column("claimed_at", sa.Double, nullable=False),
    #: A counter, raised while the worker lives: no clock is compared with another.
    sa.Column("beat", sa.BigInteger, nullable=False, server_default="0"),
    #: Media child: process group and start time, which name one process for sure.
    sa.Column("child_pid", sa.Integer),
    sa.Column("child_started", sa.BigInteger),
    #: Durable progress made: a loss after it does not count towards quarantine.
    sa.Column("progressed", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("ended_at", sa.Double),
    #: `ok`, `failed`, `retry`, `handed_back`, `lost`, `child_lost`, `canceled`; null while it runs.
    sa.Column("outcome", sa.String(16)),
    sa.Column("error_code", sa.String(32)),
    sa.Column("error_message", Words(500)),
    sa.Index("ix_attempts_job_id", "job_id"),
    # One run of an epoch, and any number of slots that help it.
    sa.Index("uq_attempts_job_id_epoch", "job_id", "epoch", unique=True, **_where(_NO_HELP)),
    sa.Index("ix_attempts_open", "ended_at", **_where("ended_at IS NULL")),
)

#: Segments of an encode that several slots share; see `sluice_core.adapters.db.segments`.
segments = sa.Table(
    "segments",
    metadata,
    sa.Column("job_id", _Id, primary_key=True),
    #: From 0, as they follow each other.
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    #: What it depends on: who plans otherwise takes none.
    sa.Column("fingerprint", sa.String(32), nullable=False),
    #: Pictures in it.
    sa.Column("frames", sa.Integer, nullable=False),
    #: The attempt that encodes it, or did.
    sa.Column("holder", _Id),
    #: Pictures of it that are encoded.
    sa.Column("encoded", sa.Integer, nullable=False, server_default="0"),
    sa.Column("done", sa.Boolean, nullable=False, server_default=sa.false()),
    #: Where it is stored; null where the run itself made it and needs no other copy.
    sa.Column("key", sa.Text),
)

outbox = sa.Table(
    "outbox",
    metadata,
    #: Also the broker's message id.
    sa.Column("id", _Id, primary_key=True),
    sa.Column("job_id", _Id, nullable=False, index=True),
    sa.Column("actor", sa.String(16), nullable=False),
    sa.Column("queue", sa.String(64), nullable=False),
    #: The job's epoch at the time of writing: a claim must find it unchanged.
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("due_at", sa.Double, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("published_at", sa.Double),
    sa.Column("publishes", sa.Integer, nullable=False, server_default="0"),
    sa.Column("traceparent", sa.String(64)),
    #: API key or collection that it is for; owners take turns in the bulk lane.
    sa.Column("owner", _Id),
    # The queue is there for those who only count.
    sa.Index("ix_outbox_published_at_due_at_queue", "published_at", "due_at", "queue"),
)

artifacts = sa.Table(
    "artifacts",
    metadata,
    sa.Column("job_id", _Id, primary_key=True),
    sa.Column("name", sa.String(255), primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("content_type", sa.String(128), nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
)

#: Jobs that were deleted with all that they had; their messages may still be on their way.
gone_jobs = sa.Table(
    "gone_jobs",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("gone_at", sa.Double, nullable=False, index=True),
)

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    #: Hash of API key and the header's value: never shared between API keys.
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("body_hash", sa.String(64), nullable=False),
    sa.Column("job_id", _Id, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False, index=True),
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("name", sa.String(128), nullable=False),
    #: SHA-256 of the key; keys are random and long, so no slow hash is needed.
    sa.Column("hash", sa.String(64), nullable=False, unique=True),
    #: Space-separated of `submit`, `read`, `operate`.
    sa.Column("scopes", sa.String(64), nullable=False),
    #: Its own limits; null: those of the settings, 0: none.
    sa.Column("requests_per_minute", sa.Integer),
    sa.Column("max_active_jobs", sa.Integer),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("revoked_at", sa.Double),
)

dead_letters = sa.Table(
    "dead_letters",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("queue", sa.String(64), nullable=False),
    #: As a message names it: cut where no job can have that id.
    sa.Column("job_id", Words(26), index=True),
    #: One sentence, or `<error code>: <message>`.
    sa.Column("reason", Words(500), nullable=False),
    #: The message as it came, cut at 2,000 characters.
    sa.Column("payload", Words, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Index("ix_dead_letters_queue", "queue"),
)

#: What was given up, e.g. dead letters beyond the cap.
counters = sa.Table(
    "counters",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
)

#: What is to happen again and again: see `sluice_core.domain.schedule`.
schedules = sa.Table(
    "schedules",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("name", sa.String(128), nullable=False, unique=True),
    #: `submit`, `subscription` or `builtin`.
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False),
    #: Either a cron expression, read in the time zone, or an interval and its anchor.
    sa.Column("cron", sa.String(128)),
    sa.Column("timezone", sa.String(64), nullable=False),
    sa.Column("every", sa.Double),
    sa.Column("anchor", sa.Double, nullable=False),
    #: `skip` or `once`.
    sa.Column("missed", sa.String(8), nullable=False),
    #: The request of its jobs; null for what is built in.
    sa.Column("request", Json),
    #: Subscription: whether entries that were there from the start become jobs too.
    sa.Column("backfill", sa.Boolean, nullable=False, server_default=sa.false()),
    #: Subscription: its list was read to the end at least once.
    sa.Column("baseline_done", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("api_key_id", _Id),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    #: Null when it never fires any more.
    sa.Column("next_at", sa.Double),
    sa.Index("ix_schedules_next_at", "next_at"),
)

#: One row per schedule and planned time: its primary key is what makes each firing happen once.
firings = sa.Table(
    "firings",
    metadata,
    sa.Column("schedule_id", _Id, primary_key=True),
    sa.Column("planned_at", sa.Double, primary_key=True),
    sa.Column("fired_at", sa.Double, nullable=False),
    #: Null while a built-in task runs.
    sa.Column("ended_at", sa.Double),
    #: `ok`, `failed`, `overlap`, `missed` or `lost`; null while it runs.
    sa.Column("outcome", sa.String(16)),
    sa.Column("job_id", _Id),
    sa.Column("message", Words(500)),
    #: Fence of the leader that fired it.
    sa.Column("fence", sa.BigInteger, nullable=False),
)

#: Who leads; see `sluice_core.adapters.db.leases`.
leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    #: Empty when it was given back.
    sa.Column("holder", sa.String(128), nullable=False),
    #: Raised by each change of holder.
    sa.Column("fence", sa.BigInteger, nullable=False),
    #: Raised by the holder: a sign of life that needs no clock.
    sa.Column("beat", sa.BigInteger, nullable=False),
)

#: Entries of a subscription's list that were seen: they become jobs once.
subscription_entries = sa.Table(
    "subscription_entries",
    metadata,
    sa.Column("schedule_id", _Id, primary_key=True),
    #: SHA-256 of the entry's key, in hex.
    sa.Column("entry_key", sa.String(64), primary_key=True),
    #: When it last stood in the list.
    sa.Column("seen_at", sa.Double, nullable=False),
)

#: Ends of jobs that somebody asked to be told of.
callbacks = sa.Table(
    "callbacks",
    metadata,
    sa.Column("job_id", _Id, primary_key=True),
    #: The job's epoch when it ended: a job may end several times, by retry.
    sa.Column("epoch", sa.Integer, primary_key=True),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("lane", sa.String(16), nullable=False),
    sa.Column("url", sa.Text, nullable=False),
    #: The job as it was then, in the form of the API.
    sa.Column("body", Json, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
    #: `sent` or `gave_up`; null while it is on its way.
    sa.Column("outcome", sa.String(16)),
    sa.Column("error", Words(500)),
    sa.Index("ix_callbacks_created_at", "created_at"),
)

#: Queues of which nothing is handed out until an operator resumes them.
paused_queues = sa.Table(
    "paused_queues",
    metadata,
    sa.Column("queue", sa.String(64), primary_key=True),
    sa.Column("paused_at", sa.Double, nullable=False),
    #: Who paused it, in words.
    sa.Column("paused_by", sa.String(128), nullable=False),
)

#: Workers that an operator asked to take nothing more, to finish what they run, and to end.
drains = sa.Table(
    "drains",
    metadata,
    sa.Column("worker", sa.String(128), primary_key=True),
    sa.Column("asked_at", sa.Double, nullable=False),
)

#: What operators did.
audit = sa.Table(
    "audit",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("at", sa.Double, nullable=False),
    #: Null where no keys are needed.
    sa.Column("api_key_id", _Id),
    #: The key's name then, or `anybody`.
    sa.Column("actor", sa.String(128), nullable=False),
    #: E.g. `queue.pause`.
    sa.Column("action", sa.String(32), nullable=False),
    #: What it was done to: a queue, a worker, an id; null for many.
    sa.Column("target", sa.String(128)),
    #: Filters and counts of what was done to many.
    sa.Column("detail", Json),
)

#: What sites ask of whoever comes, see `sluice_core.domain.sites`.
sites = sa.Table(
    "sites",
    metadata,
    sa.Column("host", sa.String(255), primary_key=True),
    #: A `Login`, encrypted: see `sluice_core.adapters.seal`.
    sa.Column("sealed", sa.Text, nullable=False),
    #: How many cookies, and when the first of them ends; null: with its session.
    sa.Column("cookies", sa.Integer, nullable=False),
    sa.Column("expires_at", sa.Double),
    #: Whether there is a user name with a password.
    sa.Column("password", sa.Boolean, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("used_at", sa.Double),
)

#: Jobs by state that are counted for good; what changed since stands in `job_changes`.
job_counts = sa.Table(
    "job_counts",
    metadata,
    sa.Column("status", sa.String(16), primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False),
)

#: Written by triggers with each change of a job's state, so that nothing has to count jobs; added
#: up by the scheduler. Appended only: a shared counter would make all writers wait for each other.
job_changes = sa.Table(
    "job_changes",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("status", sa.String(16), nullable=False),
    #: 1 or -1.
    sa.Column("delta", sa.Integer, nullable=False),
)

#: What happened, written in the transaction in which it did; added to `tallies` by the scheduler.
tally_events = sa.Table(
    "tally_events",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    #: A metric of `sluice_core.domain.metrics`, without prefix.
    sa.Column("metric", sa.String(64), nullable=False),
    #: JSON object of its labels, keys sorted.
    sa.Column("labels", sa.String(255), nullable=False),
    sa.Column("value", sa.Double, nullable=False),
)

#: Counters and histograms of the installation since it was made.
tallies = sa.Table(
    "tallies",
    metadata,
    #: The metric; of a histogram `<metric>_sum`, and `<metric>_bucket` with the label `le`.
    sa.Column("series", sa.String(64), primary_key=True),
    sa.Column("labels", sa.String(255), primary_key=True),
    sa.Column("value", sa.Double, nullable=False),
)

#: By the bytes, so that texts with one start lie side by side, as they do in SQLite anyway.
_Bytes = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

#: What jobs are found by; see `sluice_core.adapters.db.search`.
job_search = sa.Table(
    "job_search",
    metadata,
    sa.Column("job_id", _Id, primary_key=True),
    sa.Column("api_key_id", _Id),
    sa.Column("preset", sa.String(64), nullable=False),
    #: Start of the link as `sluice_core.domain.search.fold` leaves it; so is the title.
    sa.Column("link", _Bytes, nullable=False),
    sa.Column("title", _Bytes, nullable=False),
    #: Its words, a space around each.
    sa.Column("words", sa.Text, nullable=False),
    sa.Index("ix_job_search_preset_job_id", "preset", "job_id"),
    sa.Index("ix_job_search_link_job_id", "link", "job_id"),
    sa.Index("ix_job_search_title_job_id", "title", "job_id"),
    sqlite_with_rowid=False,
)

#: Words and pairs of words of titles, each with its jobs in order of time.
job_terms = sa.Table(
    "job_terms",
    metadata,
    sa.Column("term", _Bytes, primary_key=True),
    sa.Column("job_id", _Id, primary_key=True),
    sqlite_with_rowid=False,
)
