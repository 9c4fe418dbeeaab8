from __future__ import annotations

import os
import signal
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest

from sluice_cli.supervisor.probe import is_ready
from sluice_testing.waiting import fastest, until

from .conftest import PATIENCE, Running, gone

#: A program that leaves a child in a session of its own and outside any group.
WITH_STRAY = (
    "stray = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
    " start_new_session=True)\n"
    "tell('stray', str(stray.pid))\n"
    "time.sleep(600)"
)
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN); tell('deaf'); time.sleep(600)"


def test_a_killed_part_comes_back_with_one_clear_line(running: Running) -> None:
    running.start(running.part("parser"), running.part("api"))
    first, api = running.pid("parser"), running.pid("api")
    os.kill(first, signal.SIGKILL)
    until(lambda: len(running.told("parser")) == 2, why="parser is back")
    assert running.lines() == ["sluice: parser ended (killed by SIGKILL); next start in 0.5 s"]
    assert running.pid("parser") != first
    assert running.told("api") == [f"{api} start"]


def test_a_part_that_keeps_failing_is_started_less_and_less(running: Running) -> None:
    running.start(running.part("api", "sys.exit(7)"))
    until(lambda: len(running.lines()) == 3, why="three ends")
    assert [line.rpartition(" in ")[2] for line in running.lines()] == ["0.5 s", "1 s", "2 s"]
    assert "exit code 7" in running.lines()[0]


def test_a_missing_program_is_a_line_and_not_the_end(running: Running) -> None:
    missing = running.part("api")._replace(command=("/no/such/program",))
    running.start(missing, running.part("parser"))
    running.pid("parser")
    until(lambda: len(running.lines()) == 2, why="two tries")
    assert running.lines()[0].startswith("sluice: api could not be started: ")
    assert running.process.poll() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_all_and_exits_zero(running: Running, number: signal.Signals) -> None:
    # Whoever runs these tests may ignore SIGHUP, which programs inherit.
    before = signal.signal(number, signal.SIG_DFL) if number == signal.SIGHUP else None
    running.start(running.part("redis", level=0), running.part("api"), running.part("parser"))
    if before is not None:
        signal.signal(number, before)
    for name in ("redis", "api", "parser"):
        running.pid(name)
    family = running.family()
    running.process.send_signal(number)
    assert running.wait() == 0
    assert gone(family)
    assert len(family) == 3


def test_lower_levels_stop_after_higher_ones_have_ended(running: Running) -> None:
    slow = (
        "def slow(*_):\n    time.sleep(0.5); tell('ended', str(time.monotonic())); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, slow); tell('set'); time.sleep(600)"
    )
    running.start(running.part("redis", level=0), running.part("parser", slow))
    running.pid("redis")
    until(lambda: len(running.told("parser")) == 2, why="parser is set")
    running.process.terminate()
    assert running.wait() == 0
    ended = float(running.told("parser")[-1].split()[-1])
    asked = float(running.told("redis")[-1].split()[-1])
    assert asked > ended


def test_a_deaf_part_is_killed_after_the_grace(running: Running) -> None:
    running.start(running.part("api", DEAF), running.part("parser"), stop_grace=0.5)
    until(lambda: len(running.told("api")) == 2, why="api is deaf")
    running.pid("parser")
    family = running.family()
    began = time.monotonic()
    running.process.terminate()
    assert running.wait() == 0
    assert time.monotonic() - began > 0.4
    assert gone(family)
    # A busy machine may give the other no turn by then.
    assert "sluice: api did not stop in time; killed" in running.lines()


def ask_twice(running: Running, *deaf: str) -> None:
    """Two signals to a supervisor of these deaf parts and of a parser; the first has arrived."""
    for name in deaf:
        until(lambda name=name: len(running.told(name)) == 2, why="all are deaf")
    running.pid("parser")
    running.process.send_signal(signal.SIGINT)
    until(lambda: len(running.told("parser")) == 2, why="the stop began")
    running.process.send_signal(signal.SIGINT)


def test_a_second_signal_does_not_wait(running: Running) -> None:
    parts = (running.part("api", DEAF), running.part("parser"))
    running.start(*parts, stop_grace=10 * PATIENCE)
    ask_twice(running, "api")
    assert running.wait() == 0


def test_a_second_signal_is_for_those_who_are_asked_later_too(running: Running) -> None:
    parts = (
        running.part("redis", DEAF, level=0),
        running.part("api", DEAF),
        running.part("parser"),
    )
    running.start(*parts, stop_grace=10 * PATIENCE)
    ask_twice(running, "redis", "api")
    assert running.wait() == 0


def test_what_a_dead_part_left_behind_is_ended(running: Running) -> None:
    running.start(running.part("parser", WITH_STRAY))
    until(lambda: len(running.told("parser")) == 2, why="the stray runs")
    stray = psutil.Process(int(running.told("parser")[1].split()[-1]))
    os.kill(running.pid("parser"), signal.SIGKILL)
    until(lambda: gone([stray]), why="the stray is gone")


def test_nothing_outlives_a_stop(running: Running) -> None:
    running.start(running.part("parser", WITH_STRAY))
    until(lambda: len(running.told("parser")) == 2, why="the stray runs")
    family = running.family()
    assert len(family) == 2
    running.process.terminate()
    assert running.wait() == 0
    assert gone(family)


def test_nothing_outlives_kill_9_of_the_supervisor(running: Running) -> None:
    running.start(running.part("redis", level=0), running.part("api", DEAF))
    until(lambda: len(running.told("api")) == 2, why="api is deaf")
    family = running.family()
    assert len(family) == 2
    running.process.kill()
    until(lambda: gone(family), why="all are gone")


def test_a_frozen_part_is_stopped_as_well(running: Running) -> None:
    running.start(running.part("api"), stop_grace=0.5)
    os.kill(running.pid("api"), signal.SIGSTOP)
    family = running.family()
    running.process.terminate()
    assert running.wait() == 0
    assert gone(family)


def test_wrong_configuration_stops_everything_with_exit_2(running: Running) -> None:
    words = "sys.stderr.write('SLUICE_X has a wrong value.\\n'); sys.exit(2)"
    running.start(running.part("parser"), running.part("api", f"time.sleep(0.3); {words}"))
    running.pid("parser")
    family = running.family()
    assert running.wait() == 2
    assert gone(family)
    assert running.lines() == [
        "SLUICE_X has a wrong value.",
        "sluice: api can't work with this configuration; stopping all",
    ]


def test_a_part_that_worked_before_is_started_again(running: Running) -> None:
    """Its configuration was right; a store that is away comes back."""
    running.start(running.part("parser", "time.sleep(0.6); sys.exit(2)"), proof=0.5)
    until(lambda: len(running.told("parser")) >= 2, why="it runs again")
    running.process.send_signal(signal.SIGTERM)
    assert running.wait() == 0
    assert not any("configuration" in line for line in running.lines())


def test_a_part_that_was_killed_before_is_started_again(running: Running) -> None:
    """It came to work before it was killed; who kills it may have taken a store away too."""
    once = running.folder / "once"
    script = f"import pathlib; p = pathlib.Path({str(once)!r}); p.exists() and sys.exit(2);"
    running.start(running.part("parser", f"{script} p.touch(); os.kill(os.getpid(), 9)"))
    until(lambda: len(running.told("parser")) >= 3, why="it runs again")
    running.process.send_signal(signal.SIGTERM)
    assert running.wait() == 0
    assert not any("configuration" in line for line in running.lines())


def test_the_next_level_waits_for_the_socket(running: Running) -> None:
    path = str(running.folder / "s")
    opens = (
        "import socket; time.sleep(0.4); s = socket.socket(socket.AF_UNIX);"
        f" tell('opens', str(time.time())); s.bind({path!r}); s.listen(); time.sleep(600)"
    )
    running.start(
        running.part("redis", opens, level=0, socket=path),
        running.part("api", "tell('at', str(time.time())); time.sleep(600)"),
    )
    until(lambda: len(running.told("api")) == 2, why="api runs")
    opened = float(running.told("redis")[-1].split()[-1])
    assert float(running.told("api")[-1].split()[-1]) > opened


def test_a_part_that_never_opens_its_socket_ends_the_start(running: Running) -> None:
    broken = running.part("redis", "sys.exit(1)", level=0, socket=str(running.folder / "s"))
    running.start(broken, running.part("api"))
    assert running.wait() == 2
    assert running.told("api") == []
    assert running.lines() == ["sluice: redis did not start; see its lines above"]


class _Readyz(BaseHTTPRequestHandler):
    #: Answers so often that it is not ready.
    refusals = 2

    def do_GET(self) -> None:
        ready = self.path == "/readyz" and type(self).refusals == 0
        type(self).refusals = max(0, type(self).refusals - 1)
        self.send_response(200 if ready else 503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


def test_the_url_is_printed_once_the_system_is_ready_and_told_to_others(running: Running) -> None:
    state = running.folder / "sluice.json"
    with ThreadingHTTPServer(("127.0.0.1", 0), _Readyz) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        port = server.server_address[1]
        running.start(running.part("api"), port=port, state_file=str(state))
        until(running.output.read_text, why="the line is printed")
        server.shutdown()
        thread.join()
    assert running.output.read_text() == "Sluice is ready: http://x\n"
    assert _Readyz.refusals == 0
    assert f'"pid": {running.process.pid}' in state.read_text()
    running.process.terminate()
    running.wait()
    assert not state.exists()


def test_it_is_lean(running: Running) -> None:
    running.start(running.part("api"))
    running.pid("api")
    memory = psutil.Process(running.process.pid).memory_full_info()
    assert memory.pss < 15 * 2**20
    assert memory.rss < 20 * 2**20


def test_an_idle_supervisor_sleeps(running: Running) -> None:
    running.start(running.part("api"))
    running.pid("api")
    process = psutil.Process(running.process.pid)

    def turns() -> int:
        """So often it woke up within a second."""
        before = process.num_ctx_switches().voluntary
        time.sleep(1.0)
        found: int = process.num_ctx_switches().voluntary - before
        return found

    # It may have been starting still.
    assert fastest(turns, below=3) < 3


def test_a_free_port_is_not_ready() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        assert not is_ready("127.0.0.1", probe.getsockname()[1])
