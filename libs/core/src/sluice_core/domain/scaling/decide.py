"""The decision itself: demand in, workers out. Pure; times are the caller's monotonic seconds.

Two figures come out. `open` is how many workers should take work; `replicas` is how many there
should be, which is more while some that take nothing new still finish what they have.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from sluice_core.domain.scaling.policy import Behavior, Policy, Select

#: Seconds without a decision after which the remembered past says nothing about the present.
GAP = 60.0


class Reason(StrEnum):
    """Why a pool gets the workers it gets; label values of a metric."""

    #: More work than workers.
    UP = "up"
    #: Less work than workers.
    DOWN = "down"
    #: As many as needed, or a window or step says not yet.
    STEADY = "steady"
    #: The first worker of an empty pool.
    FROM_ZERO = "from_zero"
    #: The last worker goes.
    TO_ZERO = "to_zero"
    #: A reading failed: everything stays.
    BLIND = "blind"
    #: A person named a number.
    PAUSED = "paused"
    #: A person said: as it is.
    HELD = "held"


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of a pool at one moment."""

    #: Messages that wait or run; None when a reading failed.
    demand: int | None
    #: Workers asked for now, those that drain included.
    replicas: int
    #: Workers that were told to take nothing new.
    draining: int = 0
    #: Workers that run something, draining or not.
    busy: int = 0
    #: The number that a person named, see the annotation `sluice.dev/paused-replicas`.
    paused: int | None = None
    #: Whether a person wants everything to stay as it is.
    held: bool = False

    @property
    def open(self) -> int:
        """Workers that take work."""
        return max(0, self.replicas - self.draining)


@dataclass(frozen=True, slots=True)
class State:
    """What a decision must know of earlier ones."""

    #: When the last decision was made.
    at: float
    #: When the demand was last above the activation, as far as known.
    active_at: float
    #: (when, workers) that were recommended, before windows and steps.
    recommended: tuple[tuple[float, int], ...]
    #: (when, difference) of own moves.
    moves: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What a pool should have."""

    #: Workers that should take work.
    open: int
    #: Workers there should be: no fewer than are busy.
    replicas: int
    reason: Reason


def begin(observed: Observation, now: float) -> State:
    """A state that knows nothing but the present: a start is no reason to shrink."""
    return State(at=now, active_at=now, recommended=((now, observed.open),))


def decide(
    observed: Observation, state: State, policy: Policy, now: float
) -> tuple[Decision, State]:
    """How many workers the pool should have, and what the next decision must know.

    Args:
        observed: the pool as it is.
        state: of the last decision, or of `begin`.
        policy: the pool's rules.
        now: monotonic seconds, never below those of the last decision.

    """
    if now - state.at > GAP:
        # Nobody looked: windows must fill again before anything shrinks.
        state = replace(begin(observed, now), moves=state.moves)
    if observed.demand is None:
        return _stay(observed, Reason.BLIND), _unknown(observed, state, policy, now)
    if observed.paused is not None:
        state = _unknown(observed, state, policy, now)
        return _result(observed, observed.paused, Reason.PAUSED), state
    if observed.held:
        return _stay(observed, Reason.HELD), _unknown(observed, state, policy, now)
    active = observed.demand > policy.activation
    state = replace(state, active_at=now) if active else state
    wanted = _wanted(observed.demand, active=active, policy=policy)
    state = _remember(state, wanted, policy, now)
    chosen = _stabilized(observed, state, wanted, policy, now)
    chosen = _limited(observed.open, state, chosen, policy, now)
    chosen = _bounded(observed, state, chosen, policy, now, active=active)
    decision = _result(observed, chosen, _reason(observed.open, chosen))
    return decision, _moved(state, observed.open, chosen, now)


def _stay(observed: Observation, reason: Reason) -> Decision:
    return Decision(observed.open, observed.replicas, reason)


def _result(observed: Observation, chosen: int, reason: Reason) -> Decision:
    # A worker that runs something is there already: this adds none.
    return Decision(chosen, max(chosen, min(observed.busy, observed.replicas)), reason)


def _wanted(demand: int, *, active: bool, policy: Policy) -> int:
    """Workers by demand alone, within the bounds."""
    needed = -(-demand // policy.target) if active else 0
    return min(max(needed, policy.minimum), policy.maximum)


def _stabilized(
    observed: Observation, state: State, wanted: int, policy: Policy, now: float
) -> int:
    """The smallest wish of the way up's window, the greatest of the way down's."""
    current = observed.open
    up = min([wanted, *_within(state, policy.up.window, now)])
    down = max([wanted, *_within(state, policy.down.window, now)])
    if wanted > current == 0:
        # The first worker of an empty pool waits for nothing.
        return max(up, 1)
    if current < up:
        return up
    return min(current, down)


def _within(state: State, window: float, now: float) -> list[int]:
    return [workers for at, workers in state.recommended if now - at < window]


def _limited(current: int, state: State, chosen: int, policy: Policy, now: float) -> int:
    if chosen > current:
        return _limit_up(current, state, chosen, policy.up, now)
    if chosen < current:
        return _limit_down(current, state, chosen, policy.down, now)
    return chosen


def _limit_up(current: int, state: State, chosen: int, rules: Behavior, now: float) -> int:
    if rules.select is Select.DISABLED:
        return current
    if not rules.steps:
        return chosen
    limits = [
        step.limit_up(max(0, current - _net(state, step.period, now))) for step in rules.steps
    ]
    # The steps of a pool that is empty may all be percentages: of nothing.
    return min(chosen, max(rules.choose(limits, widest=max), current, 1))


def _limit_down(current: int, state: State, chosen: int, rules: Behavior, now: float) -> int:
    if rules.select is Select.DISABLED:
        return current
    if not rules.steps:
        return chosen
    limits = [step.limit_down(current - _net(state, step.period, now)) for step in rules.steps]
    return max(chosen, min(rules.choose(limits, widest=min), current))


def _net(state: State, period: float, now: float) -> int:
    """Own moves of the last `period` seconds, ups less downs."""
    return sum(difference for at, difference in state.moves if now - at < period)


def _bounded(
    observed: Observation, state: State, chosen: int, policy: Policy, now: float, *, active: bool
) -> int:
    """Bounds win over windows and steps; the last worker waits for the cooldown."""
    cooling = observed.open > 0 and now - state.active_at < policy.cooldown
    floor = policy.minimum or int(active or cooling)
    return min(max(chosen, floor), policy.maximum)


def _reason(current: int, chosen: int) -> Reason:
    if chosen == current:
        return Reason.STEADY
    if chosen > current:
        return Reason.UP if current else Reason.FROM_ZERO
    return Reason.DOWN if chosen else Reason.TO_ZERO


def _unknown(observed: Observation, state: State, policy: Policy, now: float) -> State:
    """What was not measured counts as what is there, so that nothing shrinks right after."""
    return _remember(replace(state, active_at=now), observed.open, policy, now)


def _remember(state: State, wanted: int, policy: Policy, now: float) -> State:
    """Add a recommendation; forget what no window reaches any more."""
    kept = [
        (at, workers)
        for at, workers in state.recommended
        if now - at < max(policy.up.window, policy.down.window)
    ]
    # A run of equal wishes is kept by its first and last: ticks must not fill the memory.
    if len(kept) >= 2 and kept[-1][1] == kept[-2][1] == wanted:  # noqa: PLR2004  # a run
        kept.pop()
    moves = tuple(move for move in state.moves if now - move[0] < policy.memory)
    return replace(state, at=now, recommended=(*kept, (now, wanted)), moves=moves)


def _moved(state: State, current: int, chosen: int, now: float) -> State:
    if chosen == current:
        return state
    return replace(state, moves=(*state.moves, (now, chosen - current)))
