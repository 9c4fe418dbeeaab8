"""`docs/metrics.md`, made from the catalogue in the code."""

from __future__ import annotations

from pathlib import Path

from sluice_core.domain.metrics import METRICS, Metric, Source

PAGE = Path(__file__).parents[3] / "docs/metrics.md"

_HEAD = """# Metrics

<!-- Made from sluice_core.domain.metrics: python -m tests.ops.monitoring --write -->

Every metric that there is. Names and labels are a contract; label values come from fixed sets,
never from a link, a title or an id.

**Where.** The API shows `/metrics` on its own port; with `SLUICE_METRICS_PORT` set, each
process (API, workers, schedulers, autoscaler) listens on that port instead, at
`SLUICE_METRICS_HOST`, with `/metrics`, `/livez` and `/readyz` (`SLUICE_API_METRICS_PORT` is for
the API alone, where all processes share one environment). The page needs no key: give it a port
of its own where strangers reach the API.

**What counts.** What the installation did is counted in the database, in the transaction in
which it happened, and added up by the scheduler within a second or two: it is right with any
number of processes, counts nothing twice when something is tried again, and survives every
restart. What could not be read is left out of the page and never shown as 0; `sluice_up` says
which store was away. Reading is done when asked, at most once a second, and counts no table of
jobs.

**How to take several tellers together.** Of the *installation* every API process tells the
same: use `max without (instance, pod)`, never `sum`. What a process tells of itself is summed.
"""

_SECTIONS = {
    Source.INSTALLATION: ("Of the installation", "Told by every API process, out of the stores."),
    Source.API: ("Of one API process", ""),
    Source.PROCESS: (
        "Of one worker or scheduler process",
        "On its METRICS_PORT, beside `process_*` of the system.",
    ),
    Source.AUTOSCALER: ("Of the autoscaler", "On its METRICS_PORT."),
}


def page() -> str:
    """The whole text."""
    parts = [_HEAD]
    for source, (title, words) in _SECTIONS.items():
        parts.append(f"## {title}\n" + (f"\n{words}\n" if words else ""))
        rows = [_row(metric) for metric in METRICS.values() if metric.source is source]
        parts.append(
            "| name | kind | labels | meaning |\n| --- | --- | --- | --- |\n" + "".join(rows)
        )
    parts.append("## Buckets\n\nUpper bounds; `+Inf` comes last.\n")
    parts.append("".join(_buckets(metric) for metric in METRICS.values() if metric.buckets))
    return "\n".join(parts)


def _row(metric: Metric) -> str:
    labels = "<br>".join(f"`{name}`: {_values(values)}" for name, values in metric.labels.items())
    return f"| `{metric.full_name}` | {metric.kind} | {labels} | {metric.help} |\n"


def _values(values: object) -> str:
    if isinstance(values, str):
        return values
    known = list(values)  # type: ignore[call-overload]  # a sequence of words
    if all("." in one for one in known):
        return "`<actor>.<lane>`"
    if len(known) > 12:  # a list for machines
        return "an error code"
    return " ".join(f"`{one}`" for one in known)


def _buckets(metric: Metric) -> str:
    bounds = ", ".join(f"{bound:g}" for bound in metric.buckets)
    return f"- `{metric.full_name}` ({metric.unit}): {bounds}\n"
