"""How a process begins: settings, log lines, one sentence when something is set wrongly."""

from __future__ import annotations

import sys
from collections.abc import Callable

from sluice_core.adapters import logs, settings
from sluice_core.adapters.settings import Settings
from sluice_core.domain.errors import ConfigError

EXIT_OK, EXIT_UNHEALTHY, EXIT_CONFIG = 0, 1, 2


def run(name: str, serve: Callable[[Settings], int]) -> int:
    """Serve with the settings of the environment; returns the exit status.

    Args:
        name: of the process, on each of its log lines.
        serve: runs until told to stop; a `ConfigError` becomes its sentence and `EXIT_CONFIG`.

    """
    try:
        loaded = settings.load()
        logs.configure(level=loaded.log.log_level, log_format=loaded.log.log_format, process=name)
        return serve(loaded)
    except ConfigError as exc:
        sys.stderr.write(f"{exc}\n")
        return EXIT_CONFIG
