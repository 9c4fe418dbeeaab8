"""The counters, gauges and histograms that a process keeps for itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics import MetricWrapperBase

from sluice_core.domain.metrics import METRICS, PREFIX, Kind

# A series of its own per counter, which nothing asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]  # of the library

Registry = CollectorRegistry
_M = TypeVar("_M", bound=MetricWrapperBase)

_CLASSES: dict[Kind, type[MetricWrapperBase]] = {
    Kind.COUNTER: Counter,
    Kind.GAUGE: Gauge,
    Kind.HISTOGRAM: Histogram,
}


def _make(registry: Registry, name: str, kind: type[_M]) -> _M:
    """The metric as the catalogue has it."""
    metric = METRICS[name]
    if _CLASSES[metric.kind] is not kind:
        raise TypeError(f"{name} is a {metric.kind}")
    options = {"buckets": metric.buckets} if metric.kind is Kind.HISTOGRAM else {}
    return kind(PREFIX + name, metric.help, tuple(metric.labels), registry=registry, **options)  # type: ignore[arg-type]  # options fit the kind


class _Joined(Registry):
    """Several registries as one page, which has one end."""

    def __init__(self, registries: Sequence[Registry]) -> None:
        super().__init__(auto_describe=False)
        self._registries = registries

    def collect(self) -> Iterator[Metric]:
        for registry in self._registries:
            yield from registry.collect()


def render(registries: Sequence[Registry], accept: str = "") -> tuple[bytes, str]:
    """A page for Prometheus, and its content type, in the form that `accept` asks for."""
    encode, content_type = choose_encoder(accept)
    return encode(_Joined(registries)), content_type


def _process_registry() -> Registry:
    """One that tells memory, processor time and open files of this process too."""
    registry = Registry()
    ProcessCollector(registry=registry)
    return registry


class ApiMetrics:
    """What one API process counts for itself."""

    def __init__(self) -> None:
        self.registry = _process_registry()
        self._requests = _make(self.registry, "http_request_duration_seconds", Histogram)
        self._streams = _make(self.registry, "sse_clients", Gauge)
        self._skipped = _make(self.registry, "rate_limit_skipped_total", Counter)

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """One request was answered.

        Args:
            route: its pattern; `unmatched` when there is none.
            method: of HTTP.
            status: of the answer.
            seconds: until the answer began.

        """
        self._requests.labels(route, method, str(status)).observe(seconds)

    def streams_from(self, count: Callable[[], int]) -> None:
        """Where the number of open event streams is read, at each scrape."""
        self._streams.set_function(count)

    def rate_limit_skipped(self) -> None:
        """A request was let through uncounted, since Redis was away."""
        self._skipped.inc()


class AutoscalerMetrics:
    """What the autoscaler decided."""

    def __init__(self) -> None:
        self.registry = _process_registry()
        self._replicas = {
            kind: _make(self.registry, f"autoscaler_{kind}_replicas", Gauge)
            for kind in ("desired", "current", "busy")
        }
        self._decisions = _make(self.registry, "autoscaler_decisions_total", Counter)
        self._read_errors = _make(self.registry, "autoscaler_read_errors_total", Counter)
        self._apply_errors = _make(self.registry, "autoscaler_apply_errors_total", Counter)
        self._leader = _make(self.registry, "autoscaler_leader", Gauge)

    def replicas(self, pool: str, *, desired: int, current: int, busy: int) -> None:
        """How a pool stands after a decision."""
        for kind, count in (("desired", desired), ("current", current), ("busy", busy)):
            self._replicas[kind].labels(pool).set(count)

    def decided(self, pool: str, reason: str) -> None:
        """A decision; `reason` is one of a fixed set."""
        self._decisions.labels(pool, reason).inc()

    def read_failed(self) -> None:
        """Demand could not be read, so the replicas are held."""
        self._read_errors.inc()

    def apply_failed(self, reason: str) -> None:
        """Kubernetes could not be told; `reason` is one of a fixed set, e.g. `conflict`."""
        self._apply_errors.labels(reason).inc()

    def leads(self, *, leading: bool) -> None:
        """Whether this process leads; who does not must show no replicas."""
        self._leader.set(int(leading))
        if not leading:
            for gauge in self._replicas.values():
                gauge.clear()


class WorkerMetrics:
    """What one worker or scheduler process knows of itself."""

    def __init__(self) -> None:
        self.registry = _process_registry()
        self._slots = _make(self.registry, "worker_slots", Gauge)
        self._messages = _make(self.registry, "worker_messages_total", Counter)
        self._series: dict[tuple[str, str], Counter] = {}
        self._beat = _make(self.registry, "worker_beat_age_seconds", Gauge)
        self._paused = _make(self.registry, "worker_paused", Gauge)
        self._scratch = _make(self.registry, "scratch_free_bytes", Gauge)

    def message(self, queue: str, outcome: str) -> None:
        """A message is done with: `ok`, `raised` or `skipped`."""
        # Looked up once: to find a series by its labels costs more than to count.
        key = (queue, outcome)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = self._messages.labels(*key)
        series.inc()

    def watch(
        self,
        stage: str,
        *,
        threads: int,
        busy: Callable[[], int],
        beat_age: Callable[[], float | None],
        paused: Callable[[], bool],
    ) -> None:
        """Where a worker's state is read, at each scrape."""
        self._slots.labels(stage, "busy").set_function(busy)
        self._slots.labels(stage, "idle").set_function(lambda: max(0, threads - busy()))
        # One that never beat is as old as its process.
        began = time.monotonic()
        self._beat.labels(stage).set_function(
            lambda: time.monotonic() - began if (age := beat_age()) is None else age
        )
        self._paused.labels(stage).set_function(lambda: int(paused()))

    def scratch_from(self, free_bytes: Callable[[], float]) -> None:
        """Where the free space of the scratch folder is read, at each scrape."""
        self._scratch.set_function(free_bytes)
