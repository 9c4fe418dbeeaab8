"""The rules of one pool, in the words of KEDA and of HorizontalPodAutoscaler v2."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum


class StepKind(StrEnum):
    """What a step's value counts."""

    PODS = "Pods"
    PERCENT = "Percent"


class Select(StrEnum):
    """Which of several steps holds."""

    MAX = "Max"
    MIN = "Min"
    DISABLED = "Disabled"


@dataclass(frozen=True, slots=True)
class Step:
    """At most `value` more or fewer workers within `period` seconds."""

    kind: StepKind
    value: int
    period: float

    def limit_up(self, before: int) -> int:
        """Most workers that there may be, if there were `before` when the period began."""
        if self.kind is StepKind.PODS:
            return before + self.value
        return -(-before * (100 + self.value) // 100)

    def limit_down(self, before: int) -> int:
        """Fewest workers that there may be."""
        if self.kind is StepKind.PODS:
            return before - self.value
        return before * (100 - min(self.value, 100)) // 100


@dataclass(frozen=True, slots=True)
class Behavior:
    """How fast a pool may move in one direction; no steps: as fast as it likes."""

    #: Seconds of which the most careful recommendation holds.
    window: float
    steps: tuple[Step, ...] = ()
    select: Select = Select.MAX

    @property
    def longest_period(self) -> float:
        """Seconds for which moves must be remembered."""
        return max((step.period for step in self.steps), default=0.0)

    def choose(self, limits: Iterable[int], *, widest: Callable[[Iterable[int]], int]) -> int:
        """The limit that holds.

        Args:
            limits: of each step, at least one.
            widest: `max` for the way up, `min` for the way down.

        """
        narrowest = min if widest is max else max
        return (widest if self.select is Select.MAX else narrowest)(limits)


#: As a HorizontalPodAutoscaler without a `behavior` goes up.
UP = Behavior(window=0.0, steps=(Step(StepKind.PERCENT, 100, 15.0), Step(StepKind.PODS, 4, 15.0)))
#: And down: nothing moves before the need has been smaller for five minutes.
DOWN = Behavior(window=300.0, steps=(Step(StepKind.PERCENT, 100, 15.0),))


@dataclass(frozen=True, slots=True)
class Policy:
    """One pool's rules.

    Raises:
        ValueError: they contradict each other.

    """

    minimum: int
    maximum: int
    #: Messages that wait or run, per worker.
    target: int
    #: A pool leaves zero when the demand is above this, and goes back at or below it.
    activation: int = 0
    #: Seconds from the last demand above `activation` until the last worker goes.
    cooldown: float = 300.0
    up: Behavior = UP
    down: Behavior = DOWN

    def __post_init__(self) -> None:
        if not 0 <= self.minimum <= self.maximum:
            raise ValueError("minReplicas must be between 0 and maxReplicas")
        if self.maximum < 1:
            raise ValueError("maxReplicas must be at least 1")
        if self.target < 1:
            raise ValueError("targetPerReplica must be at least 1")
        if self.activation < 0 or self.cooldown < 0:
            raise ValueError("activation and cooldownSeconds must not be negative")

    @property
    def memory(self) -> float:
        """Seconds for which recommendations and moves must be remembered."""
        return max(
            self.up.window, self.down.window, self.up.longest_period, self.down.longest_period
        )
