"""What a child writes to stderr: lines of its run, bounded."""

from __future__ import annotations

import pytest
from structlog.contextvars import bind_contextvars, clear_contextvars, merge_contextvars
from structlog.testing import capture_logs

from sluice_core.adapters import tracing
from sluice_core.domain import trace
from sluice_core.runtime.children import ExecSpec, ForkSpec, run
from sluice_core.runtime.children.said import MAX_SHOWN, MAX_WIDTH

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def told():
    """Events of the log, with what was bound."""
    with capture_logs(processors=[merge_contextvars]) as seen:
        yield seen
    clear_contextvars()


def say(script, scratch, env):
    spec = ExecSpec(argv=["/bin/sh", "-c", script], scratch=scratch, env=env)
    return run(spec, on_line=lambda _line: None, deadline_s=60)


def test_each_line_carries_what_its_run_has_bound(told, scratch, env):
    bind_contextvars(job="a", attempt=2)
    say("echo first >&2; echo out; printf '\\n  last' >&2", scratch, env)
    assert told == [
        {"job": "a", "attempt": 2, "event": "child_said", "log_level": "info", "line": line}
        for line in ("first", "last")
    ]


def test_what_a_child_says_is_bounded(told, scratch, env):
    lines = MAX_SHOWN + 30
    script = f"i=0; while [ $i -lt {lines} ]; do printf '%0600d\\n' $i >&2; i=$((i+1)); done"
    assert say(script, scratch, env).ok
    assert len(told) == MAX_SHOWN + 1
    assert {len(event["line"]) for event in told[:-1]} == {MAX_WIDTH}
    assert told[-1] == {"event": "child_said_more", "log_level": "info", "lines": 30}


def test_children_are_told_their_trace(scratch, env, server, events):
    given = tracing.enter(f"00-{TRACE}-b7ad6b7169203331-01")
    try:
        seen = []
        spec = ExecSpec(argv=["/usr/bin/env"], scratch=scratch, env=env)
        run(spec, on_line=seen.append, deadline_s=60)
        assert f"{trace.VARIABLE}={given.header}" in seen
        run(
            ForkSpec(server=server, request={"act": "names"}, scratch=scratch),
            on_line=events,
            deadline_s=60,
        )
        assert trace.VARIABLE in events.lines[0]["names"]
    finally:
        tracing.leave()
