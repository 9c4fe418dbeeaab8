import json
import time
from pathlib import Path

import pytest

from sluice_core.runtime.children import ForkServer, child_environment

HERE = Path(__file__).parent


@pytest.fixture
def env(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    return child_environment(home=home, base={}) | {"PYTHONPATH": str(HERE)}


@pytest.fixture
def scratch(tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def server(env, tmp_path):
    with ForkServer(module="child_module", env=env, cwd=tmp_path) as running:
        yield running


class Events:
    """Collects JSON lines; as `stop`, gives `reason` once an event was seen."""

    def __init__(self):
        self.lines = []
        self.asked_at = None

    def __call__(self, line):
        self.lines.append(json.loads(line))

    def forget(self):
        """Begin anew, for another run."""
        self.__init__()

    def stop_after_first(self, reason):
        def stop():
            if self.lines and self.asked_at is None:
                self.asked_at = time.monotonic()
            return reason if self.lines else None

        return stop


@pytest.fixture
def events():
    return Events()


def gone(pid):
    """Dead, or a zombie that waits for its parent."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


@pytest.fixture(name="gone")
def _gone():
    return gone
