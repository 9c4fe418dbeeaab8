import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice_core.domain.errors import ErrorClass, SluiceError
from sluice_core.runtime.children import (
    ChildResult,
    ExecSpec,
    ForkServer,
    ForkSpec,
    Limits,
    child_environment,
    error_from_event,
    run,
)
from sluice_testing.waiting import fastest, until

HERE = Path(__file__).parent


def do(server, scratch, events, act, **request):
    limits = request.pop("limits", Limits())
    spec = ForkSpec(server=server, request={"act": act, **request}, scratch=scratch, limits=limits)
    return run(spec, on_line=events, deadline_s=60)


def test_child_is_forked_from_the_preloaded_server(server, scratch, events):
    result = do(server, scratch, events, "hello", text="片名 🎬 שלום")
    assert result.ok, result
    (hello,) = events.lines
    assert hello["text"] == "片名 🎬 שלום"
    assert hello["preloaded_by"] == hello["parent"] == server.pid
    assert hello["cwd"] == hello["home"] == str(scratch)
    assert hello["stdin"] == "/dev/null"
    assert hello["session"] == hello["pid"]
    assert "noise on stdout" in result.stderr_tail


def test_child_inherits_no_descriptor_that_is_not_its_own(server, scratch, events):
    do(server, scratch, events, "hello", text="")
    kinds = [fd for fd in events.lines[0]["fds"] if not fd.startswith("/proc")]
    assert not [fd for fd in kinds if fd.startswith(("socket:", "anon_inode"))], kinds
    assert str(scratch / ".writer.lock") in kinds


def test_environment_is_the_given_one_alone(tmp_path, scratch, events, monkeypatch):
    monkeypatch.setenv("SLUICE_DATABASE_URL", "postgresql+psycopg://u:hunter2@db/x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    env = child_environment(
        home=tmp_path,
        programs=[Path("/opt/deno")],
        base={**os.environ, "SSL_CERT_FILE": "/c", "SSL_CERT_DIR": "/d"},
    )
    assert env["PATH"].startswith("/opt/deno:")
    with ForkServer(
        module="child_module", env=env | {"PYTHONPATH": str(HERE)}, cwd=tmp_path
    ) as server:
        do(server, scratch, events, "environ")
    text = events.lines[0]["environ"]
    names = {part.partition("=")[0] for part in text.split("\0") if part}
    assert names == {
        "PATH",
        "LANG",
        "HOME",
        "TMPDIR",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "PYTHONPATH",
    }
    assert "hunter2" not in text


def test_failure_with_a_code_arrives_as_such(server, scratch, events):
    result = do(server, scratch, events, "fail")
    error = error_from_event(events.lines[-1])
    assert (result.exit_code, error.code, error.retry_after) == (1, "not_found", 3.5)
    assert error.error_class is ErrorClass.PERMANENT
    assert error.message == "no such film"


@pytest.mark.parametrize(
    ("request_", "end"),
    [
        ({"act": "crash"}, (70, None, "ZeroDivisionError: a fault of ours")),
        ({"act": "exit", "status": 7}, (7, None, "")),
        ({"act": "kill_self"}, (None, signal.SIGKILL, "")),
    ],
)
def test_end_is_reported(server, scratch, events, request_, end):
    exit_code, signum, tail = end
    result = do(server, scratch, events, **request_)
    assert (result.reason, result.exit_code, result.signal) == ("exited", exit_code, signum)
    assert tail in result.stderr_tail


@pytest.mark.parametrize(
    ("reason", "exit_code", "signum", "lost"),
    [
        ("exited", None, signal.SIGKILL, True),
        ("exited", None, signal.SIGTERM, True),
        ("exited", 143, None, True),
        ("exited", 1, None, False),
        ("exited", 0, None, False),
        ("exited", None, signal.SIGSEGV, False),
        ("exited", None, signal.SIGXFSZ, False),
        ("canceled", None, signal.SIGKILL, False),
        ("stalled", None, signal.SIGKILL, False),
    ],
)
def test_only_who_was_ended_by_somebody_else_was_lost(reason, exit_code, signum, lost):
    assert ChildResult(reason, exit_code, signum, "").was_lost is lost


def test_memory_limit(server, scratch, events):
    limits = Limits(memory=256 * 1024**2)
    do(server, scratch, events, "memory", bytes=512 * 1024**2, limits=limits)
    assert events.lines == [{"event": "refused"}]


def test_file_size_limit(server, scratch, events):
    do(server, scratch, events, "file_size", bytes=2_000_000, limits=Limits(file_size=1_000_000))
    assert events.lines[0]["event"] == "refused"
    assert (scratch / "big").stat().st_size == 1_000_000


def test_fork_to_first_line_takes_less_than_30_ms(server, scratch, events):
    do(server, scratch, events, "hello", text="warm")

    def seconds():
        spec = ForkSpec(server=server, request={"act": "hello", "text": ""}, scratch=scratch)
        took, began = [], time.perf_counter()
        run(spec, on_line=lambda _line: took.append(time.perf_counter() - began), deadline_s=60)
        return took[0]

    assert fastest(seconds, below=0.03, tries=50) < 0.03


def test_server_that_died_is_started_again(server, scratch, events):
    do(server, scratch, events, "hello", text="")
    first = server.pid
    os.kill(first, signal.SIGKILL)
    until(lambda: server.pid is None)
    assert do(server, scratch, events, "hello", text="").ok
    assert server.pid not in (None, first)


def test_death_of_the_server_ends_its_children(server, scratch, events, gone):
    seen, killed = {}, []

    def kill_server_when_started():
        if events.lines and not killed:
            killed.append(server.pid)
            os.kill(server.pid, signal.SIGKILL)

    spec = ForkSpec(server=server, request={"act": "grandchild", "wait": True}, scratch=scratch)
    result = run(
        spec,
        on_line=events,
        deadline_s=60,
        stop=kill_server_when_started,
        on_start=lambda pid, _started: seen.update(pid=pid),
    )
    # Not at the deadline: as soon as it is seen.
    assert (result.reason, result.exit_code, result.signal) == ("exited", None, signal.SIGKILL)
    assert gone(seen["pid"])
    assert gone(events.lines[0]["grandchild"])


_WORKER = """
import sys
from pathlib import Path
from sluice_core.runtime.children import ForkServer, ForkSpec, run
folder, here = Path(sys.argv[1]), sys.argv[2]
env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": here}
with ForkServer(module="child_module", env=env, cwd=folder) as server:
    spec = ForkSpec(server=server, request={"act": "grandchild", "wait": True}, scratch=folder)
    run(spec, on_line=lambda line: print(server.pid, line, flush=True), deadline_s=60,
        on_start=lambda pid, _: print(pid, flush=True))
"""


@contextmanager
def started_worker(scratch):
    """A worker with its server, that one's child, and what the child has started: process ids."""
    worker = subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(scratch), str(HERE)], stdout=subprocess.PIPE, text=True
    )
    with worker:
        child = int(worker.stdout.readline())
        line = worker.stdout.readline()
        server = int(line.split()[0])
        grandchild = int(line.rpartition(":")[2].strip(" }\n"))
        yield worker, server, child, grandchild


def test_death_of_the_worker_ends_server_children_and_grandchildren(scratch, gone):
    with started_worker(scratch) as (worker, server, child, grandchild):
        worker.kill()
    for pid in (server, child, grandchild):
        until(lambda pid=pid: gone(pid))


@pytest.mark.parametrize("sent", [b"\0\0", b"\0\0\0\x08{"], ids=["length", "header"])
def test_a_worker_that_ends_within_a_request_ends_its_server(sent):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-m", "sluice_core.runtime.children.forkserver"]
        server = subprocess.Popen(
            [*command, str(theirs.fileno()), "-"],
            pass_fds=[theirs.fileno()],
            stderr=subprocess.DEVNULL,
        )
        ours.sendall(sent)
    try:
        assert server.wait(60) == 1
    finally:
        server.kill()
        server.wait()


def test_server_that_can_not_import_its_module_fails_the_run(env, tmp_path, scratch, events):
    with (
        ForkServer(module="no_such_module", env=env, cwd=tmp_path) as server,
        pytest.raises(SluiceError, match="fork server ended"),
    ):
        do(server, scratch, events, "hello", text="")


def test_server_that_is_killed_before_the_child_started_loses_the_run(server, scratch, events):
    do(server, scratch, events, "hello", text="warm")
    os.kill(server.pid, signal.SIGSTOP)
    left = [server.pid]

    def kill_server_when_asked():
        """By then the request is with it."""
        if left:
            os.kill(left.pop(), signal.SIGKILL)

    spec = ForkSpec(server=server, request={"act": "hello", "text": ""}, scratch=scratch)
    assert run(spec, on_line=events, deadline_s=60, stop=kill_server_when_asked).was_lost


def test_modules_in_the_working_folder_are_not_imported(env, tmp_path, scratch, events):
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the working folder')")
    with ForkServer(module="child_module", env=env, cwd=tmp_path) as server:
        assert do(server, scratch, events, "hello", text="").ok


def test_children_die_with_their_server_while_the_worker_is_frozen(scratch, gone):
    """Nobody but the kernel can end them then, nor what they have started."""
    with started_worker(scratch) as (worker, server, child, grandchild):
        worker.send_signal(signal.SIGSTOP)
        try:
            os.kill(server, signal.SIGKILL)
            until(lambda: gone(child))
            until(lambda: gone(grandchild))
        finally:
            worker.kill()


def test_large_requests_of_many_threads_do_not_mix(server, tmp_path):
    def one(number):
        scratch = tmp_path / f"s{number}"
        scratch.mkdir()
        lines = []
        env = {f"LARGE_{at}": str(number) * 60_000 for at in range(8)}
        spec = ExecSpec(
            argv=["/bin/sh", "-c", 'echo "$LARGE_7"'], scratch=scratch, env=env, server=server
        )
        result = run(spec, on_line=lines.append, deadline_s=60, max_line=1_000_000)
        return result.ok and lines == [str(number) * 60_000]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(24)))
