"""What forked children do in these tests; `act` in the request chooses."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from sluice_core.domain.errors import SluiceError

_preloaded = []


def preload():
    _preloaded.append(os.getpid())


def main(request, emit):
    globals()[f"_{request['act']}"](request, emit)


def _hello(request, emit):
    os.write(1, b"noise on stdout\n")
    emit(
        {
            "event": "hello",
            "text": request["text"],
            "preloaded_by": _preloaded[0],
            "parent": os.getppid(),
            "cwd": str(Path.cwd()),
            "home": os.environ["HOME"],
            "stdin": str(Path("/proc/self/fd/0").readlink()),
            "session": os.getsid(0),
            "pid": os.getpid(),
            "fds": sorted(_fds()),
        }
    )


def _fds():
    for link in Path("/proc/self/fd").iterdir():
        # The descriptor of this very listing is among them, and gone by now.
        with suppress(FileNotFoundError):
            yield str(link.readlink())


def _environ(_request, emit):
    emit({"environ": Path("/proc/self/environ").read_bytes().decode()})


def _fail(_request, _emit):
    raise SluiceError("no such film", code="not_found", retry_after=3.5)


def _crash(_request, _emit):
    raise ZeroDivisionError("a fault of ours")


def _exit(request, _emit):
    sys.exit(request["status"])


def _kill_self(_request, _emit):
    os.kill(os.getpid(), signal.SIGKILL)


def _silent(_request, emit):
    emit({"event": "started"})
    time.sleep(600)


def _deaf(_request, emit):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    emit({"event": "started"})
    time.sleep(600)


def _stopped(_request, emit):
    emit({"event": "started"})
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(600)


def _flood(request, emit):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    data = request["line"].encode() * 4096
    while True:
        os.write(2 if request.get("stderr") else request.get("fd", 1), data)
        if not request.get("stderr"):
            emit({"event": "flood"})


def _endless_line(_request, emit):
    emit({"event": "before"})
    emit({"long": "x" * 200_000})
    emit({"event": "after"})


def _grandchild(request, emit):
    extra = {"start_new_session": True} if request.get("own_session") else {}
    other = subprocess.Popen(["/bin/sleep", "600"], **extra)
    emit({"event": "started", "grandchild": other.pid})
    if request.get("wait"):
        other.wait()


def _memory(request, emit):
    try:
        bytearray(request["bytes"])
    except MemoryError:
        emit({"event": "refused"})


def _file_size(request, emit):
    try:
        Path("big").write_bytes(b"x" * request["bytes"])
    except OSError as exc:
        emit({"event": "refused", "errno": exc.errno})


def _last_words(request, emit):
    emit({"event": "started"})
    try:
        if request.get("stop"):
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(600)
    finally:
        Path("last-words").write_text("flushed")


def _chatter(_request, emit):
    for number in range(600):
        emit({"event": "progress", "bytes": 7, "number": number})
        time.sleep(0.05)


def _burst(request, emit):
    for number in range(request["count"]):
        emit({"number": number})


def _names(_request, emit):
    emit({"names": sorted(os.environ)})
