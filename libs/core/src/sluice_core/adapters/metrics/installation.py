"""What the stores know, as metrics: read anew for each scrape, kept in no process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from sluice_core.adapters.metrics.instruments import Registry
from sluice_core.domain import metrics as catalogue
from sluice_core.domain.metrics import METRICS, Kind, Source
from sluice_core.domain.tallies import Cells, bound_text

#: Series of a counter that are shown as 0 before they first count; larger sets appear one by one.
_FEW = 32


@dataclass(slots=True)
class Snapshot:
    """One reading. What could not be read is not in it, and so not on the page: never a zero."""

    #: Metric -> label values in the order of its labels -> value.
    values: dict[str, dict[tuple[str, ...], float]] = field(default_factory=dict)
    #: Counters and histograms out of the database; None when it could not be read.
    cells: Cells | None = None

    def put(self, metric: str, value: float, *labels: str) -> None:
        self.values.setdefault(metric, {})[labels] = value


class Installation(Collector):
    """Shows a snapshot, read when Prometheus asks.

    Args:
        read: the newest snapshot.

    """

    def __init__(self, read: Callable[[], Snapshot]) -> None:
        self._read = read

    @classmethod
    def registry(cls, read: Callable[[], Snapshot]) -> Registry:
        """A registry with nothing else in it."""
        # Not described: that would read before anybody asks.
        registry = Registry(auto_describe=False)
        registry.register(cls(read))
        return registry

    def collect(self) -> Iterator[Metric]:
        snapshot = self._read()
        of_cells = _by_metric(snapshot.cells) if snapshot.cells is not None else None
        for metric in METRICS.values():
            if metric.source is not Source.INSTALLATION:
                continue
            if metric.name in snapshot.values:
                yield _plain(metric, snapshot.values[metric.name])
            elif of_cells is not None and metric.kind is Kind.COUNTER:
                yield _plain(metric, {**_zeros(metric), **of_cells.get(metric.name, {})})
            elif of_cells is not None and metric.kind is Kind.HISTOGRAM:
                yield _histogram(metric, of_cells)


_Series = dict[tuple[str, ...], float]


def _by_metric(cells: Cells) -> dict[str, _Series]:
    """Series -> label values -> value; `le`, where there is one, comes last."""
    found: dict[str, _Series] = {}
    for (series, text), value in cells.items():
        known = METRICS.get(series.removesuffix("_bucket").removesuffix("_sum"))
        labels = json.loads(text)
        # A newer version may have counted what this one does not know.
        if known is not None and set(labels) - {"le"} == set(known.labels):
            order = [*known.labels, *(["le"] if "le" in labels else [])]
            found.setdefault(series, {})[tuple(labels[name] for name in order)] = value
    return found


def _zeros(metric: catalogue.Metric) -> _Series:
    sets = list(metric.labels.values())
    if any(isinstance(values, str) for values in sets):
        return {}
    combined = list(product(*sets))
    return dict.fromkeys(combined, 0.0) if len(combined) <= _FEW else {}


def _plain(metric: catalogue.Metric, series: Mapping[tuple[str, ...], float]) -> Metric:
    family = (GaugeMetricFamily, CounterMetricFamily)[metric.kind is Kind.COUNTER](
        metric.full_name, metric.help, labels=tuple(metric.labels)
    )
    for labels, value in sorted(series.items()):
        family.add_metric(labels, value)
    return family


def _histogram(metric: catalogue.Metric, of_cells: Mapping[str, _Series]) -> Metric:
    buckets = of_cells.get(f"{metric.name}_bucket", {})
    sums = of_cells.get(f"{metric.name}_sum", {})
    family = HistogramMetricFamily(metric.full_name, metric.help, labels=tuple(metric.labels))
    bounds = [*(bound_text(bound) for bound in metric.buckets), "+Inf"]
    shown: Iterable[tuple[str, ...]] = {labels[:-1] for labels in buckets}
    if not metric.labels:
        shown = [()]
    for labels in sorted(shown):
        total, cumulative = 0.0, []
        for bound in bounds:
            total += buckets.get((*labels, bound), 0.0)
            cumulative.append((bound, total))
        family.add_metric(labels, cumulative, sums.get(labels, 0.0))
    return family
