"""What the API works with, opened once per process and handed on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import redis

from sluice_api.backlog import Backlog
from sluice_api.database import Database
from sluice_api.events.allowed import OpenKeys
from sluice_api.events.hub import Hub
from sluice_api.installation import InstallationReader
from sluice_api.positions import Positions
from sluice_api.publisher import Publisher
from sluice_api.threads import Threads
from sluice_api.throttle import Throttle
from sluice_core.adapters import redis as redis_adapter
from sluice_core.adapters.db.clock import DatabaseClock
from sluice_core.adapters.db.engine import open_engine
from sluice_core.adapters.metrics import ApiMetrics, Registry
from sluice_core.adapters.metrics.installation import Installation
from sluice_core.adapters.settings import Settings
from sluice_core.adapters.storage import Storage, open_storage
from sluice_core.domain.egress import AddressPolicy
from sluice_core.domain.errors import ConfigError
from sluice_core.domain.presets import Preset, load_presets
from sluice_core.runtime.broker import SluiceBroker
from sluice_core.runtime.failpoints import Failpoints

#: Seconds until Redis is called away: a request may never wait longer for what it can do without.
REDIS_PATIENCE = 1.0
#: Reads of stored files at once; each holds a thread for one piece only.
FILE_THREADS = 8
#: Seconds that a blocking read of the event stream lasts.
STREAM_BLOCK = 5.0


@dataclass(frozen=True, slots=True)
class Deps:
    """Everything that a request may need."""

    settings: Settings
    database: Database
    #: For work on stored files.
    threads: Threads
    storage: Storage
    broker: SluiceBroker
    #: Client of the `sluice:` keys.
    signals: redis.Redis
    publisher: Publisher
    positions: Positions
    hub: Hub
    open_keys: OpenKeys
    #: What this process counts for itself.
    metrics: ApiMetrics
    #: What the stores know, read when it is shown.
    installation: Registry
    throttle: Throttle
    backlog: Backlog
    presets: Mapping[str, Preset]
    addresses: AddressPolicy
    #: Unix seconds, as all write them who use this database.
    clock: Callable[[], float]

    def close(self) -> None:
        self.hub.close()
        self.publisher.close()
        self.database.close()
        self.threads.close()
        self.broker.client.close()
        self.signals.close()


def check_settings(settings: Settings) -> None:
    """See at start what would fail in the first request.

    Raises:
        ConfigError: one sentence on what is set wrongly.

    """
    if not settings.store.redis_url:
        raise ConfigError("SLUICE_REDIS_URL is not set; `sluice up` brings a Redis of its own.")
    redis_adapter.connect(settings.store.redis_url).close()
    open_engine(settings.store.effective_database_url).dispose()
    open_storage(settings.store.effective_storage_url)
    load_presets(settings.jobs.presets_file)
    AddressPolicy.parse(settings.egress.allow)


def _for_files(storage_url: str) -> Threads:
    """Where work on stored files is done: a disk stops the event loop, a connection does not."""
    return Threads(FILE_THREADS, real=not storage_url.startswith("s3:"))


def open_deps(settings: Settings) -> Deps:
    """Open the stores; none needs to answer yet.

    Raises:
        ConfigError: one sentence on what is set wrongly.

    """
    check_settings(settings)
    store = settings.store
    clock = DatabaseClock()
    database = Database(
        lambda: open_engine(store.effective_database_url, pool_size=1, durable=True, clock=clock),
        threads=store.database_pool,
    )
    broker = SluiceBroker(
        redis_adapter.connect_broker(store.redis_url, socket_timeout=REDIS_PATIENCE)
    )
    signals = redis_adapter.connect(store.redis_url, socket_timeout=REDIS_PATIENCE)
    positions = Positions(broker, patience=REDIS_PATIENCE)
    stream = redis_adapter.connect(store.redis_url, socket_timeout=STREAM_BLOCK * 2)
    threads = _for_files(store.effective_storage_url)
    storage = open_storage(store.effective_storage_url)
    hub = Hub(database, stream, positions, block=STREAM_BLOCK, clock=clock)
    metrics = ApiMetrics()
    metrics.streams_from(lambda: hub.clients)
    figures = InstallationReader(
        database=database,
        threads=threads,
        storage=storage,
        broker=broker,
        signals=signals,
        reserve=store.min_free_bytes,
        clock=clock,
    )
    return Deps(
        settings=settings,
        database=database,
        threads=threads,
        storage=storage,
        broker=broker,
        signals=signals,
        publisher=Publisher(
            broker,
            signals,
            failpoints=Failpoints(settings.log.failpoints, settings.log.failpoints_log),
            clock=clock,
        ),
        positions=positions,
        hub=hub,
        open_keys=OpenKeys(database),
        metrics=metrics,
        installation=Installation.registry(figures.read),
        throttle=Throttle(signals, settings.http, metrics),
        backlog=Backlog(settings.jobs.max_active_jobs),
        presets=load_presets(settings.jobs.presets_file),
        addresses=AddressPolicy.parse(settings.egress.allow),
        clock=clock,
    )
