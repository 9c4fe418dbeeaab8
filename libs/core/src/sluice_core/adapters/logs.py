"""Structured logs: one JSON object a line, or coloured words on a terminal.

Links are part of what is logged, and often hold what must not be: no line shows the query of a web
address, nor the user and password of any address.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Literal

import structlog

from sluice_core.domain.masking import mask_text

#: Libraries whose INFO is our DEBUG.
_CHATTY = ("dramatiq", "alembic", "botocore", "boto3", "urllib3", "gunicorn")


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, list | tuple):
        return [_masked(item) for item in value]
    if isinstance(value, dict):
        return {name: _masked(item) for name, item in value.items()}
    return value


def _mask_addresses(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    for name, value in event.items():
        event[name] = _masked(value)
    return event


def configure(
    *, level: str = "INFO", log_format: Literal["json", "console"] | None = None, process: str
) -> None:
    """Set up logging of this process, the standard library's loggers included.

    Args:
        level: lowest level shown.
        log_format: None shows words on a terminal and JSON otherwise.
        process: name carried by every line, e.g. `parser`.

    """
    shown = log_format or ("console" if sys.stderr.isatty() else "json")
    shared: list[structlog.types.Processor] = [
        # Not bound: what is bound belongs to one thread, and is forgotten with its run.
        lambda _logger, _method, event: {"process": process, **event},
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _mask_addresses,
    ]
    renderer: structlog.types.Processor = (
        # The fancy tracebacks print local variables, secrets among them.
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if shown == "console"
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level)),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
