"""Structured logs: one JSON object a line, or coloured words on a terminal."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog

#: Libraries whose INFO is our DEBUG.
_CHATTY = ("dramatiq", "alembic", "botocore", "boto3", "urllib3", "gunicorn")


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
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
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
    structlog.contextvars.bind_contextvars(process=process)
