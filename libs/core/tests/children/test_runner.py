import os
import resource
import signal
import threading
import time
from pathlib import Path

import pytest

from sluice_core.domain.errors import SluiceError
from sluice_core.runtime.children import (
    ExecSpec,
    ForkServer,
    ForkSpec,
    Limits,
    is_alive,
    proof,
    run,
    runner,
)
from sluice_testing.waiting import fastest, until


@pytest.fixture(params=["alone", "server"])
def starter(request, env, tmp_path):
    """Commands are started with and without a fork server."""
    if request.param == "alone":
        yield None
        return
    with ForkServer(module=None, env=env, cwd=tmp_path) as running:
        yield running


@pytest.fixture
def command(starter, env, scratch):
    def make(*argv, **extra):
        return ExecSpec(argv=argv, scratch=scratch, env=env, server=starter, **extra)

    return make


CANCEL = [
    {"act": "silent"},
    {"act": "deaf"},
    {"act": "stopped"},
    {"act": "grandchild", "wait": True},
    {"act": "flood", "line": "noise\n"},
    {"act": "flood", "line": "no end", "stderr": True},
]


@pytest.mark.parametrize("request_", CANCEL)
def test_cancel_takes_two_seconds_at_most(server, scratch, events, gone, request_):
    def seconds():
        events.forget()
        pids = []
        stop = (
            events.stop_after_first("canceled")
            if "stderr" not in request_
            else _after(0.5, "canceled", events)
        )
        spec = ForkSpec(server=server, request=request_, scratch=scratch)
        result = run(
            spec, on_line=events, deadline_s=60, stop=stop, on_start=lambda *a: pids.append(a)
        )
        took = time.monotonic() - events.asked_at
        assert result.reason == "canceled"
        # Stopped before it began, it may never have had a process to tell of.
        assert not any(is_alive(*child) for child in pids)
        assert not proof.lock_is_held(spec.lock)
        if request_["act"] == "grandchild":
            assert gone(events.lines[0]["grandchild"])
        return took

    assert fastest(seconds, below=2) < 2


def _after(seconds, reason, events):
    at = time.monotonic() + seconds

    def stop():
        if time.monotonic() < at:
            return None
        events.asked_at = events.asked_at or time.monotonic()
        return reason

    return stop


def test_cancel_while_the_server_still_starts(env, tmp_path, scratch, events):
    with ForkServer(module="child_module", env=env, cwd=tmp_path) as server:
        os.kill(server.pid, signal.SIGSTOP)
        spec = ForkSpec(server=server, request={"act": "silent"}, scratch=scratch)
        # Neither when the server's time is over nor at the deadline.
        result = run(spec, on_line=events, deadline_s=60, stop=_after(0, "canceled", events))
        assert result.reason == "canceled"
        assert not events.lines
        os.kill(server.pid, signal.SIGCONT)
        until(lambda: not proof.lock_is_held(spec.lock))


def test_cancel_of_a_flood_whose_lines_are_handled_slowly(server, scratch, events):
    def slow(line):
        events(line)
        time.sleep(0.01)

    def seconds():
        events.forget()
        spec = ForkSpec(server=server, request={"act": "burst", "count": 10_000}, scratch=scratch)
        stop = _after(0.3, "canceled", events)
        result = run(spec, on_line=slow, deadline_s=60, stop=stop, max_line=1000)
        assert result.reason == "canceled"
        return time.monotonic() - events.asked_at

    assert fastest(seconds, below=2) < 2


def test_every_line_before_the_end_is_delivered_in_order(server, scratch, events):
    spec = ForkSpec(server=server, request={"act": "burst", "count": 20_000}, scratch=scratch)
    assert run(spec, on_line=events, deadline_s=60).ok
    assert [line["number"] for line in events.lines] == list(range(20_000))


def test_last_lines_are_delivered_when_the_child_ended_before_they_were_read(
    server, scratch, events
):
    def slow(line):
        events(line)
        time.sleep(0.0002)

    spec = ForkSpec(server=server, request={"act": "burst", "count": 5000}, scratch=scratch)
    assert run(spec, on_line=slow, deadline_s=60).ok
    assert len(events.lines) == 5000


def test_soft_end_reaches_a_stopped_child(server, scratch, events):
    request = {"act": "last_words", "stop": True}
    spec = ForkSpec(server=server, request=request, scratch=scratch)
    run(spec, on_line=events, deadline_s=60, stop=events.stop_after_first("drained"))
    assert (scratch / "last-words").read_text() == "flushed"


def test_soft_end_lets_the_child_flush(server, scratch, events):
    spec = ForkSpec(server=server, request={"act": "last_words"}, scratch=scratch)
    result = run(spec, on_line=events, deadline_s=60, stop=events.stop_after_first("drained"))
    assert (result.reason, result.exit_code) == ("drained", 128 + signal.SIGTERM)
    assert (scratch / "last-words").read_text() == "flushed"


def test_deadline(server, scratch, events):
    def seconds():
        spec = ForkSpec(server=server, request={"act": "chatter"}, scratch=scratch)
        began = time.monotonic()
        assert run(spec, on_line=events, deadline_s=0.5).reason == "deadline"
        return time.monotonic() - began

    assert 0.5 <= fastest(seconds, below=2.5) < 2.5


def test_a_silent_child_is_stalled(server, scratch, events):
    spec = ForkSpec(server=server, request={"act": "silent"}, scratch=scratch)
    assert run(spec, on_line=events, deadline_s=60, stall_s=0.5).reason == "stalled"


@pytest.fixture
def slow_server(env, tmp_path):
    """Makes ready for 1.5 s before it starts a child; 1.5 s more if it preloads."""
    (tmp_path / "slow_child.py").write_text(
        "import time\n"
        "from child_module import main\n"
        "time.sleep(1.5)\n"
        "def preload():\n"
        "    time.sleep(1.5)\n"
        "    open('preloaded', 'w').close()\n"
    )
    paths = f"{env['PYTHONPATH']}:{tmp_path}"
    return lambda **more: ForkServer(
        module="slow_child", env=env | {"PYTHONPATH": paths}, cwd=tmp_path, **more
    )


def test_a_child_whose_server_makes_ready_is_not_stalled(slow_server, scratch, events):
    with slow_server() as server:
        spec = ForkSpec(server=server, request={"act": "environ"}, scratch=scratch)
        assert run(spec, on_line=events, deadline_s=60, stall_s=2.5).reason == "exited"


def test_a_server_for_one_child_preloads_nothing(slow_server, scratch, events, tmp_path):
    with slow_server(preload=False) as server:
        spec = ForkSpec(server=server, request={"act": "environ"}, scratch=scratch)
        assert run(spec, on_line=events, deadline_s=60).reason == "exited"
    assert not (tmp_path / "preloaded").exists()


def test_a_chatty_child_without_progress_is_stalled(server, scratch, events):
    spec = ForkSpec(server=server, request={"act": "chatter"}, scratch=scratch)
    result = run(
        spec,
        on_line=events,
        deadline_s=60,
        stall_s=0.5,
        marker=lambda: events.lines[-1]["bytes"] if events.lines else 0,
    )
    assert result.reason == "stalled"


def test_a_slow_child_with_progress_is_not_stalled(command):
    lines = []
    spec = command("/bin/sh", "-c", "for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done")
    result = run(spec, on_line=lines.append, deadline_s=60, stall_s=2.5)
    assert (result.reason, lines) == ("exited", ["1", "2", "3", "4", "5", "6"])


def test_time_in_which_the_runner_was_suspended_is_no_stall(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(runner.time, "monotonic", lambda: clock[0])
    watch = runner._StallWatch(30.0, lambda: "same")  # noqa: SLF001  # a clock can be set only here
    assert not watch.is_stalled(clock[0])
    assert not watch.is_stalled(clock[0] + 3600)
    assert not watch.is_stalled(clock[0] + 3601)


def test_long_lines_are_dropped_and_counted(server, scratch, events):
    spec = ForkSpec(server=server, request={"act": "endless_line"}, scratch=scratch)
    result = run(spec, on_line=events, deadline_s=60)
    assert [line["event"] for line in events.lines] == ["before", "after"]
    assert result.lines_dropped == 1


def test_error_of_a_callback_ends_the_child(server, scratch):
    pids = []

    def on_line(_line):
        raise KeyError("a fault of the caller's")

    spec = ForkSpec(server=server, request={"act": "deaf"}, scratch=scratch)
    with pytest.raises(KeyError, match="a fault"):
        run(spec, on_line=on_line, deadline_s=60, on_start=lambda *a: pids.append(a))
    assert not is_alive(*pids[0])


def test_two_writers_in_one_folder_are_refused(server, scratch, events):
    spec = ForkSpec(server=server, request={"act": "silent"}, scratch=scratch)
    other = threading.Thread(
        target=run,
        args=(spec,),
        kwargs={"on_line": events, "deadline_s": 20, "stop": lambda: done and "canceled"},
    )
    done = None
    other.start()
    try:
        until(lambda: events.lines)
        assert proof.lock_is_held(spec.lock)
        with pytest.raises(BlockingIOError):
            run(spec, on_line=events, deadline_s=60)
    finally:
        done = True
        other.join(60)
    assert not proof.lock_is_held(spec.lock)


def test_command_with_status_and_output(command):
    lines = []
    result = run(
        command("/bin/sh", "-c", "echo out; printf last; echo err >&2; exit 3"),
        on_line=lines.append,
        deadline_s=60,
    )
    assert (result.exit_code, result.signal, lines) == (3, None, ["out", "last"])
    assert result.stderr_tail == "err\n"


def test_command_that_does_not_exist(command):
    result = run(command("/no/such/program"), on_line=print, deadline_s=60)
    assert result.exit_code == 70
    assert "/no/such/program: No such file" in result.stderr_tail


def test_command_gets_the_given_environment_alone(command, env, monkeypatch):
    monkeypatch.setenv("SLUICE_SECRET", "hunter2")
    lines = []
    run(command("/usr/bin/env"), on_line=lines.append, deadline_s=60)
    names = {line.partition("=")[0] for line in lines}
    assert names - {"PWD", "SHLVL", "_"} == set(env)


def test_command_that_ignores_the_soft_end_is_killed_with_its_children(command, events, gone):
    script = "trap '' TERM; sleep 600 & echo $!; while :; do sleep 1; done"

    def seconds():
        events.forget()
        pids, lines = [], []
        result = run(
            command("/bin/sh", "-c", script),
            on_line=lambda line: (lines.append(int(line)), events('{"x": 1}')),
            deadline_s=60,
            stop=events.stop_after_first("canceled"),
            on_start=lambda *a: pids.append(a),
        )
        took = time.monotonic() - events.asked_at
        assert (result.reason, result.signal) == ("canceled", signal.SIGKILL)
        assert not is_alive(*pids[0])
        assert gone(lines[0])
        return took

    assert fastest(seconds, below=2) < 2


def test_children_that_a_command_leaves_behind_are_ended(command, gone):
    lines = []
    result = run(
        command("/bin/sh", "-c", "sleep 600 & echo $!; exit 0"),
        on_line=lines.append,
        deadline_s=60,
    )
    assert result.ok
    assert gone(int(lines[0]))


def test_flood_of_stderr_keeps_the_tail(command):
    result = run(
        command(
            "/bin/sh", "-c", "yes 'a long complaint' | head -c 3000000 >&2; echo 'the end' >&2"
        ),
        on_line=print,
        deadline_s=60,
    )
    assert result.stderr_tail.endswith("the end\n")
    assert len(result.stderr_tail) <= 8192


def test_limits_reach_the_command(command):
    lines = []
    limits = Limits(memory=64 * 1024**2, file_size=4096 * 1024, open_files=99)
    run(
        command("/bin/sh", "-c", "ulimit -d; ulimit -f; ulimit -n; ulimit -c", limits=limits),
        on_line=lines.append,
        deadline_s=60,
    )
    assert lines == ["65536", "8192", "99", "0"]


def test_server_that_hangs_is_an_error(env, tmp_path, scratch, monkeypatch):
    monkeypatch.setattr(runner, "START_TIMEOUT", 0.5)
    with ForkServer(module="child_module", env=env, cwd=tmp_path) as server:
        os.kill(server.pid, signal.SIGSTOP)
        spec = ForkSpec(server=server, request={"act": "silent"}, scratch=scratch)
        with pytest.raises(SluiceError, match="did not start in time") as caught:
            run(spec, on_line=print, deadline_s=60)
        assert caught.value.code == "overloaded"


def test_no_descriptor_to_spare_is_the_machines_fault(scratch, env):
    """And told apart from a lock that somebody holds, which is the same error of Python's."""
    spec = ExecSpec(argv=["true"], scratch=scratch, env=env)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    held = [os.dup(0) for _ in range(8)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 2, hard))
    try:
        with pytest.raises(SluiceError, match="Too many open files") as caught:
            run(spec, on_line=print, deadline_s=20)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in held:
            os.close(fd)
    assert caught.value.code == "overloaded"
    assert len(list(Path("/proc/self/fd").iterdir())) == used


def test_a_bad_end_of_whoever_was_told_to_stop_is_that_stop(command, tmp_path, events):
    """As when a signal reaches the worker and its child in one moment: the child is the first."""
    told = tmp_path / "told"
    spec = command("/bin/sh", "-c", f"touch {told}; exit 183")
    result = run(
        spec,
        on_line=events,
        deadline_s=60,
        stop=lambda: "drained" if told.exists() else None,
    )
    assert (result.reason, result.was_lost) == ("drained", False)
