import os
import subprocess
import sys

import pytest

from sluice_core.runtime.children import confine, is_alive, lock_is_held, start_time
from sluice_core.runtime.children.proof import take_lock
from sluice_testing.waiting import until


def test_start_time_tells_a_process_from_a_later_one_with_its_id():
    me = os.getpid()
    assert is_alive(me, start_time(me))
    assert not is_alive(me, start_time(me) - 1)


def test_process_that_nobody_waited_for_is_not_alive():
    process = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, start_new_session=True)
    started = start_time(process.pid)
    assert is_alive(process.pid, started)
    process.stdin.close()
    until(lambda: not is_alive(process.pid, started))
    process.wait()
    assert not is_alive(process.pid, started)


def test_group_whose_leader_is_gone_is_alive_while_a_member_is():
    script = "exec 3<&0; cat <&3 & exec true"
    command = ["/bin/sh", "-c", script]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    started = start_time(process.pid)
    process.wait()
    assert is_alive(process.pid, started)
    process.stdin.close()
    until(lambda: not is_alive(process.pid, started))


def test_start_time_of_no_process():
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    with pytest.raises(ProcessLookupError):
        start_time(process.pid)


def test_lock_is_held_until_the_last_copy_is_closed(tmp_path):
    path = tmp_path / "lock"
    assert not lock_is_held(path)
    fd = take_lock(path)
    copy = os.dup(fd)
    os.close(fd)
    assert lock_is_held(path)
    with pytest.raises(BlockingIOError):
        take_lock(path, wait_s=0.05)
    os.close(copy)
    assert not lock_is_held(path)


_WATCHED = """
import os, sys, time
from sluice_core.runtime.children import confine
os.setsid()
confine.die_with_parent(os.getppid(), int(sys.argv[1]), by_signal=False)
print("ready", flush=True)
time.sleep(600)
"""


def test_child_without_parent_death_signal_ends_when_the_pipe_closes():
    """What systems other than Linux do."""
    read_end, write_end = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", _WATCHED, str(read_end)],
        pass_fds=[read_end],
        stdout=subprocess.PIPE,
    )
    with child:
        os.close(read_end)
        assert child.stdout.readline() == b"ready\n"
        assert child.poll() is None
        os.close(write_end)
        assert child.wait(60) == -9


def test_child_whose_parent_is_gone_already_ends_at_once():
    argv = confine.wrap(["/bin/sleep", "600"], 1, -1, (None, None, None, None))
    assert subprocess.run(argv, timeout=60, check=False).returncode == confine.EX_SETUP
