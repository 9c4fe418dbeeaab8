from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from sluice_cli.supervisor.nursery import clean_environment
from sluice_testing.waiting import until

from .conftest import Running, gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody adopts a fork")


def begun(running: Running, name: str, times: int = 1) -> list[str]:
    """Whether each process of the part was `forked` or ran `alone`."""

    def ways() -> list[str]:
        return [w for _, w in map(str.split, running.told(name)) if w in {"forked", "alone"}]

    until(lambda: len(ways()) >= times, why=f"{name} began {times} times")
    return ways()


def test_a_forked_part_is_the_supervisors_own(running: Running) -> None:
    running.start(running.nursery(), running.forked("parser"))
    assert begun(running, "parser") == ["forked"]
    part = psutil.Process(running.pid("parser"))
    assert part.ppid() == running.process.pid
    assert os.getsid(part.pid) == os.getpgid(part.pid) == part.pid
    assert psutil.Process(running.pid("nursery")).children() == []


def test_its_environment_is_the_supervisors_and_not_the_nurserys(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_DATABASE_URL", "postgresql://u:secret-word@x/y")
    tells = "tell('has', os.environ['SLUICE_DATABASE_URL'][-15:]); time.sleep(600)"
    running.start(running.nursery(), running.forked("parser", tells))
    until(lambda: len(running.told("parser")) == 3, why="it told its environment")
    assert running.told("parser")[-1].endswith("has secret-word@x/y")
    for name in ("nursery", "parser"):
        found = Path(f"/proc/{running.pid(name)}/environ").read_bytes()
        assert b"PATH=" in found
        assert b"secret-word" not in found


def test_a_killed_part_is_forked_again(running: Running) -> None:
    running.start(running.nursery(), running.forked("parser"), running.forked("scheduler"))
    begun(running, "parser")
    os.kill(running.pid("parser"), signal.SIGKILL)
    assert begun(running, "parser", 2) == ["forked", "forked"]
    assert running.lines() == ["sluice: parser ended (killed by SIGKILL); next start in 0.5 s"]
    assert begun(running, "scheduler") == ["forked"]
    assert len(running.told("nursery")) == 1


def test_parts_live_on_when_the_nursery_dies_and_the_next_one_forks(running: Running) -> None:
    running.start(running.nursery(), running.forked("parser"))
    begun(running, "parser")
    part = psutil.Process(running.pid("parser"))
    os.kill(running.pid("nursery"), signal.SIGKILL)
    until(lambda: len(running.told("nursery")) == 2, why="the next nursery")
    assert part.is_running()
    part.kill()
    assert begun(running, "parser", 2) == ["forked", "forked"]


def test_a_part_waits_for_a_nursery_that_is_on_its_way(running: Running) -> None:
    go = running.folder / "go"
    waits = f"while not os.path.exists({str(go)!r}):\n    time.sleep(0.01)"
    running.start(running.nursery(waits), running.forked("parser"), running.part("api"))
    running.pid("api")
    assert running.told("parser") == []
    go.touch()
    assert begun(running, "parser") == ["forked"]


def test_without_a_nursery_that_works_parts_are_started_by_their_own_commands(
    running: Running,
) -> None:
    running.start(running.nursery("sys.exit(5)"), running.forked("parser"))
    assert begun(running, "parser") == ["alone"]
    assert "nursery ended (exit code 5)" in running.lines()[0]


def test_a_part_does_not_wait_for_ever_for_a_silent_nursery(running: Running) -> None:
    running.start(running.nursery("time.sleep(600)"), running.forked("parser"), nursery_grace=0.5)
    assert begun(running, "parser") == ["alone"]


def test_a_frozen_nursery_is_replaced(running: Running) -> None:
    running.start(running.nursery(), running.forked("parser"), fork_grace=2.0)
    begun(running, "parser")
    os.kill(running.pid("nursery"), signal.SIGSTOP)
    os.kill(running.pid("parser"), signal.SIGKILL)
    assert begun(running, "parser", 2) == ["forked", "forked"]
    assert len(running.told("nursery")) >= 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_forked_outlives_the_supervisor(running: Running, number: signal.Signals) -> None:
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); tell('deaf'); time.sleep(600)"
    running.start(running.nursery(), running.forked("parser", deaf), stop_grace=0.5)
    until(lambda: len(running.told("parser")) == 3, why="it is deaf")
    family = running.family()
    assert len(family) == 2
    running.process.send_signal(number)
    until(lambda: gone(family), why="all are gone")


def test_a_forked_parts_wrong_configuration_stops_everything(running: Running) -> None:
    running.start(running.nursery(), running.forked("parser", "sys.exit(2)"))
    assert running.wait() == 2
    assert "parser can't work with this configuration" in running.lines()[-1]


def test_only_what_an_interpreter_needs_is_kept() -> None:
    given = {"PATH": "/bin", "PYTHONPATH": "/x", "LC_ALL": "C", "AWS_SECRET_ACCESS_KEY": "s"}
    assert clean_environment({**given, "SLUICE_REDIS_URL": "r", "HOME": "/h"}) == {
        "PATH": "/bin", "PYTHONPATH": "/x", "LC_ALL": "C"
    }  # fmt: skip
