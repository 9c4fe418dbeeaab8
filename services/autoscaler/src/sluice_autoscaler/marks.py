"""Marks on pods that are to take nothing new: see `sluice_core.domain.standby`.

A pod's annotation shows the mark to people and to the next leader; Redis carries it to the worker,
and the worker's answer back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import redis as redis_library

from sluice_core.adapters.redis import call
from sluice_core.domain import keys
from sluice_core.domain.standby import HOLDS, WITHDRAWN

#: Seconds without renewal after which an answer proves nothing: the worker may have given the mark
#: up and begun something.
TRUST = HOLDS / 2


@dataclass(frozen=True, slots=True)
class _Mark:
    name: str
    #: Monotonic seconds of the last renewal that got through.
    renewed_at: float


class Marks:
    """The marks that this process set or took over.

    Every method that asks Redis raises `BrokerAwayError` when it does not answer.

    Args:
        signals: client of the `sluice:` keys.
        new_name: a name that was never used before.

    """

    def __init__(self, signals: redis_library.Redis, new_name: Callable[[], str]) -> None:
        self._signals = signals
        self._new_name = new_name
        self._marks: dict[str, _Mark] = {}

    def name_for(self, pod: str, shown: str, now: float) -> str:
        """The name that the mark of a pod must have now: a new one where the old proves nothing.

        Args:
            pod: that is marked, or is to be.
            shown: its annotation; empty without one.
            now: monotonic seconds.

        """
        mark = self._marks.get(pod)
        if mark is not None and mark.name == shown and now - mark.renewed_at < TRUST:
            return shown
        return self._new_name()

    def renew(self, named: dict[str, str], now: float) -> None:
        """Tell the workers of marked pods, by pod."""
        if not named:
            return
        with call():
            pipe = self._signals.pipeline(transaction=False)
            for pod, name in named.items():
                pipe.set(keys.standby(pod), name, ex=round(HOLDS))
            pipe.execute()
        self._marks |= {pod: _Mark(name, now) for pod, name in named.items()}

    def withdraw(self, pods: Iterable[str]) -> None:
        """Let the workers of these pods take work again."""
        names = list(pods)
        if not names:
            return
        with call():
            pipe = self._signals.pipeline(transaction=False)
            for pod in names:
                pipe.set(keys.standby(pod), WITHDRAWN, ex=round(HOLDS))
            pipe.execute()
        self.forget(names)

    def forget(self, pods: Iterable[str]) -> None:
        """These pods are gone, or marked no more."""
        for pod in pods:
            self._marks.pop(pod, None)

    def known(self) -> frozenset[str]:
        """Pods that were marked by this process."""
        return frozenset(self._marks)

    def answered(self, pods: Collection[str]) -> frozenset[str]:
        """Those of the pods whose worker runs nothing, and begins nothing until told."""
        asked = [pod for pod in pods if pod in self._marks]
        if not asked:
            return frozenset()
        with call():
            answers = self._signals.mget([keys.standby_answer(pod) for pod in asked])
        return frozenset(
            pod
            for pod, answer in zip(asked, answers, strict=True)
            if answer == self._marks[pod].name
        )
