"""The trace that the present thread or greenlet works for: in its log lines, and handed on."""

from __future__ import annotations

import os
from contextvars import ContextVar

from structlog.contextvars import bind_contextvars, clear_contextvars

from sluice_core.domain import trace
from sluice_core.domain.trace import Trace

_current: ContextVar[Trace | None] = ContextVar("sluice_trace", default=None)


def enter(header: str | None) -> Trace:
    """Begin a step of the trace that `header` names, or of a new one; forgets all bound before."""
    leave()
    given = trace.parse(header)
    made = given.child(os.urandom) if given else trace.new(os.urandom)
    _current.set(made)
    bind_contextvars(trace_id=made.trace_id, span_id=made.span_id)
    return made


def leave() -> None:
    """Work for nobody: log lines carry nothing that was bound."""
    _current.set(None)
    clear_contextvars()


def current() -> Trace | None:
    return _current.get()


def header() -> str:
    """What is handed on: of the present step, or of a new trace where there is none."""
    return (_current.get() or trace.new(os.urandom)).header


def environment() -> dict[str, str]:
    """What a child is told; nothing where there is no trace."""
    present = _current.get()
    return {trace.VARIABLE: present.header} if present else {}
