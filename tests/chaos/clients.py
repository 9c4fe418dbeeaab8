"""Clients that never give up: each asks until it has an answer, and knows its job's fate."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from threading import Event, Lock
from typing import Any

import httpx

from tests.chaos.links import Link

#: Seconds after which a client gives up on the system, and so does the run.
PATIENCE = 150.0
WORKERS = 12
ACCEPTED, CONFLICT, MISSING = httpx.codes.ACCEPTED, httpx.codes.CONFLICT, httpx.codes.NOT_FOUND
CANCELED, GONE = "CANCELED", "gone"

#: What is done to a job after it was submitted -> share.
ROLES = {"keep": 12, "cancel": 2, "cancel, retry": 2, "delete": 1, "submit again": 3}


@dataclass(slots=True)
class Order:
    """One job as its client sees it."""

    link: Link
    url: str
    role: str
    #: Seconds after the start of the run.
    at: float
    #: Seconds from its submission to what its role does.
    pause: float
    job_id: str = ""
    #: States in which it may end.
    fates: set[str] = field(default_factory=set)
    #: It was canceled or retried, so its stages may rightly run again.
    moved: bool = False


def orders(links: list[Link], urls: list[str], *, seconds: float, rng: Random) -> list[Order]:
    """Who submits what, when, and what becomes of it."""
    roles = list(ROLES)
    made = []
    for number, (link, url) in enumerate(zip(links, urls, strict=True)):
        [role] = rng.choices(roles, list(ROLES.values()))
        at = seconds * number / len(links)
        made.append(Order(link, url, role, at, rng.uniform(0.0, 8.0), fates={link.status}))
    return made


class Clients:
    """Carries out all orders, each in its time."""

    def __init__(self, base: str, todo: list[Order]) -> None:
        self._base = base
        self._todo = todo
        self._stop = Event()
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="client")
        self._futures: list[Future[None]] = []
        self.answers: Counter[str] = Counter()
        #: What no system should have answered.
        self.wrong: list[str] = []

    def start(self) -> None:
        began = time.monotonic()
        self._futures = [self._pool.submit(self._carry_out, order, began) for order in self._todo]

    @property
    def left(self) -> int:
        return sum(not future.done() for future in self._futures)

    def finish(self) -> None:
        """Wait for all; raises what one of them met."""
        for future in self._futures:
            future.result()
        self._pool.shutdown()

    def abort(self) -> None:
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)

    def _carry_out(self, order: Order, began: float) -> None:
        self._rest(began + order.at - time.monotonic())
        # `orders` gives each link once, so the link itself is a key as good as any.
        link = order.link
        body = {"url": order.url, "preset": link.preset, "priority": link.priority}
        order.job_id = self._submit(body, key=order.url)
        self._rest(order.pause)
        if order.role == "cancel":
            self._cancel(order)
        elif order.role == "cancel, retry":
            self._cancel(order)
            self._rest(order.pause / 2)
            self._move(order, "retry")
            order.fates = {order.link.status}
        elif order.role == "delete":
            self._ask("DELETE", f"/v1/jobs/{order.job_id}", {ACCEPTED, MISSING})
            order.fates = {GONE}
        elif order.role == "submit again":
            self._submit_again(order, body)

    def _submit(self, body: dict[str, str], *, key: str | None) -> str:
        headers = {"Idempotency-Key": key} if key else {}
        answer, _ = self._ask("POST", "/v1/jobs", {ACCEPTED}, json=body, headers=headers)
        return str(answer.json()["id"])

    def _submit_again(self, order: Order, body: dict[str, str]) -> None:
        """The same key means the same job always; without one, as long as it has not failed."""
        keys = [order.url, None] if order.link.status == "SUCCESS" else [order.url]
        for key in keys:
            found = self._submit(body, key=key)
            if found != order.job_id:
                self._complain(f"{order.job_id} was submitted again (key {key}) and got {found}")

    def _cancel(self, order: Order) -> None:
        answer, tries = self._move(order, "cancel")
        order.fates = {CANCELED}
        if answer.status_code == CONFLICT:
            # It had ended; with an answer lost before, perhaps by this very cancel.
            order.fates = {order.link.status} | ({CANCELED} if tries > 1 else set())

    def _move(self, order: Order, what: str) -> tuple[httpx.Response, int]:
        order.moved = True
        return self._ask("POST", f"/v1/jobs/{order.job_id}/{what}", {ACCEPTED, CONFLICT})

    def _ask(
        self, method: str, path: str, definite: set[int], **more: Any
    ) -> tuple[httpx.Response, int]:
        """The first definite answer, and how many tries it took."""
        deadline, tries = time.monotonic() + PATIENCE, 0
        while not self._stop.is_set():
            tries += 1
            try:
                answer = httpx.request(method, self._base + path, timeout=15.0, **more)
            except httpx.TransportError as exc:
                said = type(exc).__name__
            else:
                said = str(answer.status_code)
                if answer.status_code in definite:
                    self._count(said)
                    return answer, tries
                if answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
                    self._complain(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
                    raise RuntimeError(self.wrong[-1])
                if answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR:
                    self._complain(f"{method} {path}: 500 {answer.text[:200]}")
            self._count(said)
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer to {method} {path} for {PATIENCE} s: {said}")
            self._stop.wait(0.5)
        raise RuntimeError("the run was stopped")

    def _rest(self, seconds: float) -> None:
        if self._stop.wait(max(0.0, seconds)):
            raise RuntimeError("the run was stopped")

    def _count(self, said: str) -> None:
        with self._lock:
            self.answers[said] += 1

    def _complain(self, words: str) -> None:
        with self._lock:
            self.wrong.append(words)
