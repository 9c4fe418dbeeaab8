# ruff: noqa: ARG002, ARG005  # hooks have fixed signatures
"""What the broker leans on inside dramatiq; a new version that changes it fails here, by name."""

from __future__ import annotations

import dataclasses
import inspect
from importlib.metadata import version
from queue import PriorityQueue

import dramatiq
from dramatiq.broker import MessageProxy
from dramatiq.message import Message
from dramatiq.worker import WorkerThread, _WorkQueueItem

from sluice_core.runtime.broker.middleware.shutdown import NotStartedError


class Notes:
    def __init__(self):
        self.notes = []

    def post_process_message(self, message):
        self.notes.append((message.message_id, message._exception, message.failed))  # noqa: SLF001


def run_one(fn, *, middleware=(), options=None):
    broker = dramatiq.Broker(middleware=list(middleware))
    broker.declare_queue = lambda queue_name: None
    dramatiq.Actor(
        fn, broker=broker, actor_name="a", queue_name="q", priority=0, options=options or {}
    )
    notes, work_queue = Notes(), PriorityQueue()
    thread = WorkerThread(
        broker=broker, consumers={"q": notes}, work_queue=work_queue, worker_timeout=10
    )
    message = MessageProxy(Message("q", "a", (), {}, {}, message_id="m"))
    work_queue.put(_WorkQueueItem(0, message))
    thread.process_message(work_queue.get().message)
    return notes.notes


def test_the_version_is_the_one_that_was_read():
    assert version("dramatiq").startswith("2.2.")


def test_a_worker_thread_post_processes_at_its_messages_queue_when_the_actor_returned():
    assert run_one(lambda: None) == [("m", None, False)]


def test_an_exception_is_on_the_proxy_while_the_message_is_post_processed():
    error = ValueError("x")

    def fail():
        raise error

    assert run_one(fail) == [("m", error, False)]  # not failed: dramatiq would acknowledge it


def test_a_middleware_error_before_the_run_keeps_the_actor_from_running():
    class Refuse(dramatiq.Middleware):
        def before_process_message(self, broker, message):
            raise NotStartedError("no")

    ran = []
    [(_, error, _)] = run_one(lambda: ran.append(1), middleware=[Refuse()])
    assert isinstance(error, NotStartedError)
    assert ran == []


def test_a_worker_thread_needs_these_parts_only():
    parameters = set(inspect.signature(WorkerThread.__init__).parameters) - {"self"}
    assert parameters == {"broker", "consumers", "work_queue", "worker_timeout"}
    assert "consumers[message.queue_name].post_process_message" in inspect.getsource(
        WorkerThread.process_message
    )


def test_a_queue_item_is_priority_then_message():
    fields = [field.name for field in dataclasses.fields(_WorkQueueItem)]
    assert fields == ["priority", "message", "_queued_time"]


def test_time_limit_disarms_first_when_it_is_last():
    order = []

    class Named(dramatiq.Middleware):
        def __init__(self, name):
            self.name = name

        def before_process_message(self, broker, message):
            order.append(f"+{self.name}")

        def after_process_message(self, broker, message, *, result=None, exception=None):
            order.append(f"-{self.name}")

    class Last(Named):
        pass

    run_one(lambda: None, middleware=[Named("other"), Last("last")])
    assert order == ["+other", "+last", "-last", "-other"]
