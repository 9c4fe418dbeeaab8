"""All settings, from the environment with prefix `SLUICE_`: the one place that reads it.

Built once in `main()` or `create_app()` and handed on. A wrong value is named in one sentence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit, urlunsplit
from zoneinfo import ZoneInfo

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from sluice_core.adapters.cores import usable_cores
from sluice_core.domain.egress import is_loopback
from sluice_core.domain.errors import ConfigError
from sluice_core.domain.lanes import LANES, Actor, Lane
from sluice_core.domain.masking import mask_setting

PREFIX = "SLUICE_"
#: 32 bytes in URL-safe base64.
_KEY = re.compile(r"[A-Za-z0-9_-]{43}=")


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


_G = TypeVar("_G", bound=BaseModel)


class StoreSettings(_Group):
    """Where state, work and files live."""

    #: Everything that the embedded parts keep; made when missing.
    data_dir: Path = Path(".sluice")
    #: `sqlite:///…` or `postgresql+psycopg://…`; empty: SQLite in the data folder.
    database_url: str = ""
    #: `redis://…`, `rediss://…`, `redis+sentinel://host:26379,…/name/0`, `unix://…`; empty: the
    #: embedded server.
    redis_url: str = ""
    #: For an address without one: where it lives apart from the address.
    redis_password: str = ""
    #: `file:///…` or `s3://bucket/prefix?endpoint=…`; empty: a folder in the data folder.
    storage_url: str = ""
    #: Credentials for `s3://`, when neither its address nor the usual AWS variables hold them.
    s3_access_key: str = ""
    s3_secret_key: str = ""
    #: Bytes that stay free on the disks of scratch and storage folders.
    min_free_bytes: int = Field(256 * 1024 * 1024, ge=0)
    #: Bytes that the scratch folder may hold, where its disk does not say so itself; 0: no limit.
    scratch_size: int = Field(0, ge=0)
    #: Connections that one process may hold to the database.
    database_pool: int = Field(8, ge=1, le=100)
    #: Seconds that a store may be away, or not yet set up, when a process starts.
    start_patience: float = Field(30.0, ge=0, le=600)

    @model_validator(mode="before")
    @classmethod
    def _whole_redis_url(cls, values: dict[str, Any]) -> dict[str, Any]:
        url, password = values.get("redis_url", ""), values.get("redis_password", "")
        return {**values, "redis_url": _with_password(url, password)} if password else values

    @property
    def scratch_dir(self) -> Path:
        """Local folder of running work; one sub-folder a run."""
        return self.data_dir.absolute() / "scratch"

    @property
    def effective_database_url(self) -> str:
        return self.database_url or f"sqlite:///{self.data_dir.absolute() / 'sluice.db'}"

    @property
    def effective_storage_url(self) -> str:
        if not self.storage_url:
            return f"file://{quote(str(self.data_dir.absolute() / 'storage'))}"
        if not self.s3_access_key or not self.storage_url.startswith("s3://"):
            return self.storage_url
        keys = urlencode({"access_key": self.s3_access_key, "secret_key": self.s3_secret_key})
        return f"{self.storage_url}{'&' if '?' in self.storage_url else '?'}{keys}"


class HttpSettings(_Group):
    """The API's own door."""

    http_host: str = "127.0.0.1"
    http_port: int = Field(8080, ge=0, le=65535)
    #: None: true unless bound to loopback.
    api_keys_required: bool | None = None
    #: Text of an API key with every scope, written by the migration; empty: none.
    bootstrap_key: str = ""
    #: Largest request body, bytes.
    max_body: int = Field(10 * 1024 * 1024, ge=1024)
    #: Requests of one API key within a minute, unless the key has a figure of its own; 0 is no
    #: limit. Keys with the scope `operate` have none unless they have one of their own.
    key_requests_per_minute: int = Field(30_000, ge=0)
    #: Jobs that one API key may have under way, children included; as above.
    key_max_active_jobs: int = Field(50_000, ge=0)

    @property
    def keys_required(self) -> bool:
        """Whether a request needs an API key."""
        if self.api_keys_required is not None:
            return self.api_keys_required
        return not is_loopback(self.http_host)


class EgressSettings(_Group):
    """What media work may reach."""

    #: Comma-separated networks, `address:port` or `name:port` pairs, reachable although not public.
    egress_allow: str = ""
    #: HTTP proxy that all media work goes through, e.g. `http://proxy:3128`.
    egress_proxy: str = ""
    #: Bytes per second per download; 0 is no cap.
    rate_limit: int = Field(0, ge=0)
    #: Downloads at once from one remote host, over all workers; 0 is no limit.
    host_concurrency: int = Field(4, ge=0)

    @property
    def allow(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.egress_allow.split(",") if part.strip())


class JobSettings(_Group):
    """Limits of a job."""

    #: Largest file that is fetched, bytes; 0 is no limit.
    max_file_size: int = Field(0, ge=0)
    #: Longest collection, entries.
    max_entries: int = Field(5000, ge=1, le=100_000)
    #: Jobs that may be under way at once, children included; more are refused for a while.
    max_active_jobs: int = Field(100_000, ge=1)
    #: Ended jobs that are remembered; the oldest go, with their files, before their time.
    max_ended_jobs: int = Field(1_000_000, ge=1)
    #: Extra presets, a TOML file.
    presets_file: Path | None = None
    #: Folder of a yt-dlp that is used instead of the installed one.
    ytdlp_path: Path | None = None
    #: How long finished files are kept, seconds.
    retention_files: float = Field(30 * 86400.0, gt=0)
    #: How long rows of ended jobs are kept, seconds.
    retention_jobs: float = Field(90 * 86400.0, gt=0)
    #: How long partial work of failed jobs is kept for a retry by hand, seconds.
    retention_partial: float = Field(2 * 86400.0, gt=0)
    #: Seconds of a segment of a long encode, which is what a lost worker costs; 0: none is cut.
    segment_seconds: float = Field(60.0, ge=0)
    #: Idle transcode slots that may help with one long encode at once; 0: none.
    segment_helpers: int = Field(2, ge=0, le=64)
    #: Zone in which people's times are read and shown.
    timezone: str = "UTC"

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ValueError, KeyError, OSError) as exc:
            raise ValueError("there is no such time zone") from exc
        return value


class SchedulerSettings(_Group):
    """What happens by the clock, and when a job has ended."""

    #: Key of the signature of callbacks; empty: they are not signed.
    callback_secret: str = ""
    #: Seconds of silence after which another scheduler takes the lead.
    lease_patience: float = Field(10.0, ge=1, le=300)


class AutoscalerSettings(_Group):
    """Replicas by demand, on Kubernetes."""

    #: JSON file of the pools, see `sluice_autoscaler.config`.
    autoscaler_pools: Path | None = None
    #: Where the workers are; empty: the pod's own namespace.
    autoscaler_namespace: str = ""
    #: Name of the Lease that says which autoscaler acts.
    autoscaler_lease: str = "sluice-autoscaler"
    #: Seconds of silence after which another autoscaler takes over.
    autoscaler_patience: float = Field(15.0, ge=2, le=300)
    #: Seconds between two readings of the demand.
    autoscaler_interval: float = Field(1.0, ge=0.1, le=60)
    #: False: no marks and no deletion costs; any pod may go, as with other autoscalers.
    autoscaler_drain: bool = True


class SiteSettings(_Group):
    """What sites are shown, see `sluice_core.domain.sites`."""

    #: Keys that cookies and passwords of sites are sealed with, each 32 bytes in URL-safe base64,
    #: comma-separated: the first seals, all open. Empty: none can be kept.
    site_secrets_key: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.site_secrets_key.split(",") if part.strip())

    @field_validator("site_secrets_key")
    @classmethod
    def _are_keys(cls, value: str) -> str:
        for key in value.split(","):
            if key.strip() and not _KEY.fullmatch(key.strip()):
                raise ValueError("a key is 32 bytes in URL-safe base64, 44 characters")
        return value


class MetricsSettings(_Group):
    """The port of `/metrics`, and of `/livez` and `/readyz` for processes that have no other."""

    #: Where each process listens; 0: nowhere, and the API shows `/metrics` on its own port.
    metrics_port: int = Field(0, ge=0, le=65535)
    #: Instead of it, for the API alone: where all processes share a machine and an environment.
    api_metrics_port: int = Field(0, ge=0, le=65535)
    #: Address of that port.
    metrics_host: str = "127.0.0.1"


class LogSettings(_Group):
    """How the system speaks of itself."""

    #: `json` or `console`; None: console on a terminal.
    log_format: Literal["json", "console"] | None = None
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    #: Name of the pod that this process is in; empty: the machine's name.
    pod_name: str = Field("", max_length=80)
    #: Fault injection for tests: `name=action,…`; see `sluice_core.runtime.failpoints`.
    failpoints: str = ""
    #: File to which each reached failpoint appends its name.
    failpoints_log: Path | None = None


class StageSettings(BaseModel):
    """One stage's own limits: `SLUICE_DOWNLOAD_CONCURRENCY`, or `SLUICE_CONCURRENCY` for all."""

    model_config = ConfigDict(frozen=True)

    #: Lanes that a worker takes from, comma-separated; empty: all of them.
    lanes: str = ""
    #: Runs at once in one process.
    concurrency: int = Field(ge=1, le=256)
    #: Counted tries before a job fails.
    max_tries: int = Field(default=4, ge=1, le=20)
    #: Seconds without progress before a run is called stalled.
    stall_timeout: float = Field(gt=0)
    #: Seconds after which a run ends cleanly; None is no limit.
    soft_time_limit: float | None = Field(default=None, gt=0)
    #: Seconds after which a run is killed; 60 above the soft limit where only that is set.
    hard_time_limit: float | None = Field(default=None, gt=0)
    #: Seconds that each second of media adds to both limits.
    time_limit_per_second: float = Field(default=0.0, ge=0)
    #: Seconds that a stopping worker gives its runs to finish; then they hand back.
    drain_grace: float = Field(default=10.0, ge=0)
    #: Losses of a process in which a suspect job runs alone, after which it is put aside.
    lone_losses: int = Field(default=1, ge=1)
    #: Messages after which a worker retires, drained, and another takes its place; 0 is never.
    max_tasks: int = Field(default=0, ge=0)
    #: Resident memory of the worker itself, MiB, above which it retires likewise; 0 is never.
    max_memory_mib: int = Field(default=0, ge=0)

    @property
    def taken_lanes(self) -> tuple[Lane, ...]:
        """Lanes that a worker takes from, highest first."""
        named = {part.strip() for part in self.lanes.split(",") if part.strip()}
        return tuple(lane for lane in LANES if not named or lane.value in named)

    @field_validator("lanes")
    @classmethod
    def _known_lanes(cls, value: str) -> str:
        unknown = {part.strip() for part in value.split(",") if part.strip()} - set(LANES)
        if unknown:
            raise ValueError(f"there is no lane '{min(unknown)}'; there are {', '.join(LANES)}")
        return value

    @model_validator(mode="after")
    def _soft_before_hard(self) -> Self:
        soft, hard = self.soft_time_limit, self.hard_time_limit
        if soft is not None and hard is not None and soft >= hard:
            raise ValueError("SOFT_TIME_LIMIT must be below HARD_TIME_LIMIT")
        return self


#: What suits each stage: parsing waits for the network, transcoding eats cores.
_STAGE_DEFAULTS: dict[Actor, dict[str, Any]] = {
    Actor.PARSE: {
        "concurrency": 4,
        "stall_timeout": 60.0,
        "soft_time_limit": 240.0,
        "hard_time_limit": 300.0,
    },
    Actor.DOWNLOAD: {"concurrency": 4, "stall_timeout": 30.0},
    Actor.TRANSCODE: {
        "concurrency": usable_cores(),
        "stall_timeout": 120.0,
        "soft_time_limit": 1800.0,
        # The slowest honest encode is far faster than this; a hung one is a stall long before.
        "time_limit_per_second": 60.0,
    },
}


class Settings(BaseModel):
    """Every setting of one process."""

    model_config = ConfigDict(frozen=True)

    store: StoreSettings
    http: HttpSettings
    egress: EgressSettings
    jobs: JobSettings
    scheduler: SchedulerSettings
    sites: SiteSettings
    autoscaler: AutoscalerSettings
    metrics: MetricsSettings
    log: LogSettings
    stages: dict[Actor, StageSettings]

    def effective(self) -> dict[str, str]:
        """`SLUICE_NAME` -> value, secrets masked: for `sluice config`."""
        shown: dict[str, str] = {}
        for group in (
            self.store,
            self.http,
            self.egress,
            self.jobs,
            self.scheduler,
            self.sites,
            self.autoscaler,
            self.metrics,
            self.log,
        ):
            for name, value in group.model_dump().items():
                shown[PREFIX + name.upper()] = mask_setting(name, value)
        for actor, stage in self.stages.items():
            for name, value in stage.model_dump().items():
                shown[f"{PREFIX}{actor.value.upper()}_{name.upper()}"] = mask_setting(name, value)
        return shown

    def changed(self) -> dict[str, str]:
        """Of `effective`, what is not as it comes: few enough for a line of the log."""
        usual = load({}).effective()
        return {name: value for name, value in self.effective().items() if value != usual[name]}


def _with_password(url: str, password: str) -> str:
    """The address with the password, unless it has one itself."""
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    if not parts.netloc or ":" in login:
        return url
    return urlunsplit(parts._replace(netloc=f"{login}:{quote(password, safe='')}@{hosts}"))


#: Where the system keeps certificates, when it says so: names of OpenSSL.
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def certificates(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Where this machine's own authorities are, for children that talk to sites; empty if unsaid.

    Args:
        environ: instead of the process' own environment.

    """
    env = os.environ if environ is None else environ
    return {name: env[name] for name in _CERTIFICATES if env.get(name)}


def load(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """Read all settings.

    Args:
        environ: instead of the process' own environment.
        overrides: field name -> value, stronger than the environment (command-line options).

    Raises:
        ConfigError: one sentence that names the wrong setting.

    """
    env = dict(os.environ if environ is None else environ)
    try:
        return Settings(
            store=_group(StoreSettings, env, overrides),
            http=_group(HttpSettings, env, overrides),
            egress=_group(EgressSettings, env, overrides),
            jobs=_group(JobSettings, env, overrides),
            scheduler=_group(SchedulerSettings, env, overrides),
            sites=_group(SiteSettings, env, overrides),
            metrics=_group(MetricsSettings, env, overrides),
            autoscaler=_group(AutoscalerSettings, env, overrides),
            log=_group(LogSettings, env, overrides),
            stages={actor: _stage(actor, env) for actor in _STAGE_DEFAULTS},
        )
    except ValidationError as exc:
        raise ConfigError(_sentence(exc)) from exc


def _group(cls: type[_G], env: Mapping[str, str], overrides: Mapping[str, Any]) -> _G:
    values: dict[str, Any] = {}
    for name in cls.model_fields:
        text = env.get(PREFIX + name.upper(), "")
        if text != "":
            values[name] = text
        if overrides.get(name) is not None:
            values[name] = overrides[name]
    return cls.model_validate(values)


def _stage(actor: Actor, env: Mapping[str, str]) -> StageSettings:
    values = dict(_STAGE_DEFAULTS[actor])
    set_by: dict[str, str] = {}
    for name in StageSettings.model_fields:
        for key in (f"{PREFIX}{name.upper()}", f"{PREFIX}{actor.value.upper()}_{name.upper()}"):
            if env.get(key, "") != "":
                values[name] = env[key]
                set_by[name] = key
    try:
        return StageSettings.model_validate(values)
    except ValidationError as exc:
        raise ConfigError(_sentence(exc, set_by)) from exc


def _sentence(exc: ValidationError, set_by: Mapping[str, str] = MappingProxyType({})) -> str:
    first = exc.errors()[0]
    words = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:
        return f"Wrong settings: {words}."
    field = str(first["loc"][0])
    name = set_by.get(field, PREFIX + field.upper())
    return f"{name} has a wrong value '{mask_setting(field, first['input'])}': {words}."
