"""Child processes: where untrusted input is handled, confined, watched and surely ended.

Two kinds, one runner::

    env = child_environment(home=folder, programs=[deno_folder], base=environment_of_the_worker)
    server = ForkServer(module="sluice_core.adapters.ytdlp.child", env=env, cwd=folder)
    server.start()                      # once per worker process; restarts itself when it died

    result = run(
        ForkSpec(server=server, request={...}, scratch=folder),       # module.main(request, emit)
        # or: ExecSpec(argv=[ffmpeg, ...], scratch=folder, env=env, server=None or a ForkServer)
        on_line=handle_line,            # str, one JSON line of `emit` or one line of stdout
        stop=lambda: None,              # asked each 0.1 s: None, or why to end ("canceled", ...)
        deadline_s=3600, stall_s=60,
        marker=lambda: bytes_so_far,    # optional: what changes with progress
        on_start=lambda pid, started: ...,
    )                                   # ChildResult(reason, exit_code, signal, stderr_tail, ...)
    server.close()

When `run` returns or raises, no process of the child's group is left. From before its start to its
end the child holds a lock file in its scratch folder (`spec.lock`); `lock_is_held(path)` and
`is_alive(pid, started)` prove to a later run that it is gone. `run` raises `BlockingIOError` when
another writer still holds that lock.

A `ForkServer(module=None, ...)` starts commands only, some 20 ms sooner than without a server.

A forked child that raises `SluiceError` emits it as an event of `protocol.error_event`
(`{"event": "error", "code", "class", "message", "retry_after"}`, see `error_from_event`) and exits
with 1; any other exception leaves a traceback on stderr.
"""

from sluice_core.runtime.children.endings import error_for
from sluice_core.runtime.children.environment import child_environment
from sluice_core.runtime.children.forkclient import ForkServer
from sluice_core.runtime.children.prefork import Preforked, prefork
from sluice_core.runtime.children.proof import is_alive, lock_is_held, start_time
from sluice_core.runtime.children.protocol import error_from_event
from sluice_core.runtime.children.runner import run
from sluice_core.runtime.children.spec import ChildResult, EndReason, ExecSpec, ForkSpec, Limits

__all__ = [
    "ChildResult",
    "EndReason",
    "ExecSpec",
    "ForkServer",
    "ForkSpec",
    "Limits",
    "Preforked",
    "child_environment",
    "error_for",
    "error_from_event",
    "is_alive",
    "lock_is_held",
    "prefork",
    "run",
    "start_time",
]
