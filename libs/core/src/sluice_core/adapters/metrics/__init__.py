"""Metrics of this process: the only importer of `prometheus_client`.

What to use:

- `ApiMetrics`, `AutoscalerMetrics`, `WorkerMetrics`: one object a process, made in `main()` or
  `create_app()` and handed on; each has a registry of its own, none is global.
- `render(registry, accept)`: a page for Prometheus.
- `MetricsPort(registries, host, port, live=…, ready=…)`: a port with `/metrics`, `/livez` and
  `/readyz` for processes that have no other.

What the stores know (queues, jobs, stages) is no process' own: `sluice_core.runtime.figures` reads
it, and `Installation` shows it at the API. Names and labels: `sluice_core.domain.metrics`.
"""

from sluice_core.adapters.metrics.instruments import (
    ApiMetrics,
    AutoscalerMetrics,
    Registry,
    WorkerMetrics,
    render,
)
from sluice_core.adapters.metrics.port import MetricsPort

__all__ = ["ApiMetrics", "AutoscalerMetrics", "MetricsPort", "Registry", "WorkerMetrics", "render"]
