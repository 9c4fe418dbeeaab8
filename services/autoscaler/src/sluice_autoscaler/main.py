"""The autoscaler process: one leader that reads, decides and acts every second."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from contextlib import ExitStack, closing

import redis as redis_library
import structlog

from sluice_autoscaler import kube
from sluice_autoscaler.config import PoolConfig, read_pools
from sluice_autoscaler.elector import KubernetesElector
from sluice_autoscaler.loop import Loop, Stores
from sluice_autoscaler.marks import Marks
from sluice_autoscaler.pool import Pool
from sluice_core.adapters import redis
from sluice_core.adapters.db.clock import DatabaseClock
from sluice_core.adapters.db.engine import check, open_engine
from sluice_core.adapters.ids import new_id
from sluice_core.adapters.metrics import AutoscalerMetrics, MetricsPort
from sluice_core.adapters.settings import Settings
from sluice_core.domain.errors import ConfigError
from sluice_core.runtime import process
from sluice_core.runtime.broker import SluiceBroker
from sluice_core.runtime.patience import patiently
from sluice_core.runtime.process import EXIT_OK
from sluice_core.runtime.signals import EndSignals

log = structlog.get_logger(__name__)


def main() -> None:
    """Run until SIGTERM or SIGINT; exits the process."""
    sys.exit(process.run("autoscaler", serve))


def serve(loaded: Settings) -> int:
    """Run until told to stop; returns the exit status.

    Raises:
        ConfigError: something is wrong that waiting does not mend.

    """
    log.info("settings", **loaded.changed())
    pools = read_pools(loaded.autoscaler.autoscaler_pools)
    with ExitStack() as stack:
        told = stack.enter_context(closing(EndSignals()))
        told.listen()
        cluster = kube.connect(loaded.autoscaler.autoscaler_namespace)
        stores, signals = _open_stores(loaded, stack)
        metrics = AutoscalerMetrics()
        loop = Loop(
            elector=KubernetesElector(
                cluster,
                name=loaded.autoscaler.autoscaler_lease,
                holder=f"{loaded.log.pod_name or socket.gethostname()}-{new_id()[-6:]}",
                patience=loaded.autoscaler.autoscaler_patience,
            ),
            stores=stores,
            pools=_pools(pools, loaded, cluster=cluster, signals=signals, metrics=metrics),
            metrics=metrics,
        )
        _open_port(loaded, metrics, loop, stack)
        log.info("autoscaler_ready", pools=sorted(pools), namespace=cluster.namespace)
        while not told.count:
            loop.turn()
            told.wait(loaded.autoscaler.autoscaler_interval)
        loop.stop()
        return EXIT_OK


def _open_stores(loaded: Settings, stack: ExitStack) -> tuple[Stores, redis_library.Redis]:
    url = loaded.store.redis_url
    if not url:
        raise ConfigError("SLUICE_REDIS_URL is not set.")
    signals = redis.connect(url)
    stack.callback(signals.close)
    client = redis.connect_broker(url)
    stack.callback(client.close)
    clock = DatabaseClock()
    database = open_engine(
        loaded.store.effective_database_url, pool_size=loaded.store.database_pool, clock=clock
    )
    stack.callback(database.dispose)
    patiently(lambda: redis.check(signals), loaded.store.start_patience)
    patiently(lambda: check(database), loaded.store.start_patience)
    return Stores(broker=SluiceBroker(client), engine=database, clock=clock), signals


def _pools(
    pools: Mapping[str, PoolConfig],
    loaded: Settings,
    *,
    cluster: kube.Kube,
    signals: redis_library.Redis,
    metrics: AutoscalerMetrics,
) -> list[Pool]:
    return [
        Pool(
            name,
            config,
            cluster=cluster,
            marks=Marks(signals, new_id),
            metrics=metrics,
            drains=loaded.autoscaler.autoscaler_drain,
        )
        for name, config in pools.items()
    ]


def _open_port(loaded: Settings, metrics: AutoscalerMetrics, loop: Loop, stack: ExitStack) -> None:
    if not loaded.metrics.metrics_port:
        return
    port = MetricsPort(
        [metrics.registry],
        host=loaded.metrics.metrics_host,
        port=loaded.metrics.metrics_port,
        live=loop.stuck,
    )
    port.start()
    stack.callback(port.close)
