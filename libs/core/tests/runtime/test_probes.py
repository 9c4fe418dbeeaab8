"""What a worker process says on its METRICS_PORT: alive while busy or cut off, not while broken."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from sluice_core.adapters import settings
from sluice_core.adapters.metrics import MetricsPort, WorkerMetrics
from sluice_core.domain.errors import ConfigError
from sluice_core.runtime.probes import Probes
from sluice_testing.process import free_port
from sluice_testing.prometheus import complaints
from sluice_testing.waiting import until

LIMIT = 60.0


def get(port: int, path: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=60)


@pytest.fixture
def probes(tmp_path) -> Iterator[tuple[Probes, int]]:
    port = free_port()
    loaded = settings.load({"SLUICE_METRICS_PORT": str(port), "SLUICE_DATA_DIR": str(tmp_path)})
    loaded.store.scratch_dir.mkdir()
    made = Probes(loaded)
    yield made, port
    made.close()


def test_live_at_once_and_ready_once_started(probes) -> None:
    made, port = probes
    reasons = [""]
    made.check(lambda: reasons[0])
    assert get(port, "/livez").status_code == 200
    assert get(port, "/readyz").status_code == 503
    assert "starting" in get(port, "/readyz").text
    made.started()
    assert get(port, "/readyz").status_code == 200
    reasons[0] = "the keeper thread died"
    answer = get(port, "/livez")
    assert (answer.status_code, answer.text) == (503, "the keeper thread died\n")
    # Kubernetes restarts it for that; readiness would only choose victims.
    assert get(port, "/readyz").status_code == 200
    assert get(port, "/anything").status_code == 404
    assert complaints(get(port, "/metrics").text) == ""


def test_without_a_port_nothing_listens_and_the_library_is_not_loaded(tmp_path) -> None:
    loaded = settings.load({"SLUICE_DATA_DIR": str(tmp_path)})
    made = Probes(loaded)
    made.started()
    made.check(lambda: "broken")
    assert made.unlive() == "broken"
    made.close()


def test_a_port_that_is_taken_is_a_sentence(probes) -> None:
    _made, port = probes
    with pytest.raises(ConfigError, match=f"Port {port} .* SLUICE_METRICS_PORT"):
        MetricsPort([WorkerMetrics().registry], host="127.0.0.1", port=port)


def test_many_clients_that_say_nothing_fill_nothing(probes) -> None:
    _made, port = probes
    silent: list[socket.socket] = []
    most = 0
    deadline = time.monotonic() + LIMIT
    try:
        while len(silent) < 40 or most < 8:
            assert time.monotonic() < deadline
            # Those that were let in are sent off after a while, so more come until eight were in.
            silent.append(socket.create_connection(("127.0.0.1", port), timeout=LIMIT))
            most = max(most, sum("process_request" in t.name for t in threading.enumerate()))
            assert most <= 8
    finally:
        for one in silent:
            one.close()
    until(lambda: _lives(port))


def _lives(port: int) -> bool:
    try:
        return get(port, "/livez").status_code == 200
    except httpx.HTTPError:
        return False
