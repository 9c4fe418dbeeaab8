"""`decide` as a table: what a pool looks like, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_core.domain.scaling import (
    Behavior,
    Decision,
    Observation,
    Policy,
    Reason,
    Select,
    State,
    Step,
    StepKind,
    begin,
    decide,
)

PODS, PERCENT = StepKind.PODS, StepKind.PERCENT
AT_ONCE = Behavior(window=0.0)
NEVER = Behavior(window=0.0, select=Select.DISABLED)
NOW = 10_000.0


def steps(*rules: tuple[StepKind, int, float], window: float = 0.0, select: Select = Select.MAX):
    return Behavior(window=window, steps=tuple(Step(*rule) for rule in rules), select=select)


def policy(**fields: Any) -> Policy:
    usual = {"minimum": 0, "maximum": 20, "target": 2, "cooldown": 60.0}
    return Policy(**(usual | {"up": AT_ONCE, "down": AT_ONCE} | fields))


@dataclass(frozen=True)
class Row:
    """One look at a pool; `ago` are earlier recommendations and moves, by seconds before now."""

    name: str
    demand: int | None
    replicas: int
    expected: tuple[int, int, str]
    policy: dict[str, Any] = field(default_factory=dict)
    draining: int = 0
    busy: int = 0
    paused: int | None = None
    held: bool = False
    idle_for: float = 1_000.0
    recommended: tuple[tuple[float, int], ...] = ()
    moves: tuple[tuple[float, int], ...] = ()
    seen_ago: float = 1.0


U, D, S, FZ, TZ = "up", "down", "steady", "from_zero", "to_zero"
FOUR = {"up": steps((PODS, 4, 15.0))}
HALF = {"down": steps((PERCENT, 50, 60.0))}
ROWS = [
    # Demand alone.
    Row("nothing to do, nobody there", 0, 0, (0, 0, S)),
    Row("one message wakes an empty pool", 1, 0, (1, 1, FZ)),
    Row("a burst wakes as many as it needs", 9, 0, (5, 5, FZ)),
    Row("part of a worker is a worker", 3, 1, (2, 2, U)),
    Row("exactly full", 4, 2, (2, 2, S)),
    Row("one too many", 5, 2, (3, 3, U)),
    Row("one too few", 2, 2, (1, 1, D)),
    Row("target of one", 7, 2, (7, 7, U), policy={"target": 1}),
    Row("great target", 499, 1, (1, 1, S), policy={"target": 500}),
    Row("great target, one over", 501, 1, (2, 2, U), policy={"target": 500}),
    # Bounds.
    Row("never above the maximum", 1_000, 3, (20, 20, U)),
    Row("a million links", 1_000_000, 20, (20, 20, S)),
    Row("minimum without demand", 0, 2, (2, 2, S), policy={"minimum": 2}),
    Row("minimum is restored", 0, 1, (3, 3, U), policy={"minimum": 3}),
    Row("minimum from zero", 0, 0, (2, 2, FZ), policy={"minimum": 2}),
    Row("minimum beats slow steps", 0, 0, (9, 9, FZ), policy={"minimum": 9, **FOUR}),
    Row("maximum was lowered", 100, 20, (5, 5, D), policy={"maximum": 5}),
    Row("maximum was lowered, all busy", 100, 8, (5, 8, D), policy={"maximum": 5}, busy=8),
    Row("fixed size", 100, 4, (4, 4, S), policy={"minimum": 4, "maximum": 4}),
    Row("fixed size, idle", 0, 4, (4, 4, S), policy={"minimum": 4, "maximum": 4}),
    # Activation and cooldown.
    Row("activation not reached", 3, 0, (0, 0, S), policy={"activation": 3}),
    Row("activation passed", 4, 0, (2, 2, FZ), policy={"activation": 3}),
    Row("below activation, long since", 2, 1, (0, 0, TZ), policy={"activation": 3}),
    Row("below activation, minimum", 2, 1, (1, 1, S), policy={"activation": 3, "minimum": 1}),
    Row("last worker waits for the cooldown", 0, 1, (1, 1, S), idle_for=59.0),
    Row("cooldown is over", 0, 1, (0, 0, TZ), idle_for=60.0),
    Row("cooldown does not keep five", 0, 5, (1, 1, D), idle_for=10.0),
    Row("no cooldown", 0, 1, (0, 0, TZ), policy={"cooldown": 0.0}, idle_for=0.0),
    Row("cooldown wakes nobody", 0, 0, (0, 0, S), idle_for=1.0),
    Row("activation of zero", 1, 0, (1, 1, FZ), policy={"activation": 0}),
    # Busy ones stay.
    Row("all busy, nothing waits", 4, 4, (2, 4, D), busy=4),
    Row("one slot each, all busy", 4, 4, (4, 4, S), policy={"target": 1}, busy=4),
    Row("two of five busy", 2, 5, (1, 2, D), busy=2),
    Row("busy and demand unseen", 0, 3, (0, 3, TZ), busy=3),
    Row("one busy, cooled down", 0, 1, (0, 1, TZ), busy=1),
    Row("more busy than asked for adds none", 2, 2, (1, 2, D), busy=5),
    # Those that drain.
    Row("draining ones take no work", 6, 3, (3, 3, U), draining=2, busy=1),
    Row("demand is back: as many as before", 6, 4, (3, 3, U), draining=2),
    Row("one drains, one is enough", 2, 2, (1, 1, S), draining=1),
    Row("one drains and runs still", 2, 2, (1, 2, S), draining=1, busy=2),
    Row("all drain, new message", 1, 2, (1, 1, FZ), draining=2),
    Row("more drain than there are", 0, 1, (0, 0, S), draining=3),
    # A reading that failed.
    Row("blind at zero", None, 0, (0, 0, "blind")),
    Row("blind with workers", None, 5, (5, 5, "blind")),
    Row("blind above the maximum", None, 30, (30, 30, "blind")),
    Row("blind below the minimum", None, 0, (0, 0, "blind"), policy={"minimum": 3}),
    Row("blind while two drain", None, 5, (3, 5, "blind"), draining=2),
    Row("blind beats paused", None, 5, (5, 5, "blind"), paused=1),
    # What people say.
    Row("paused at zero", 50, 0, (0, 0, "paused"), paused=0),
    Row("paused up", 0, 1, (7, 7, "paused"), paused=7),
    Row("paused above the maximum", 0, 1, (25, 25, "paused"), paused=25),
    Row("paused down, two busy", 50, 5, (0, 2, "paused"), paused=0, busy=2),
    Row("held with demand", 50, 1, (1, 1, "held"), held=True),
    Row("held without", 0, 9, (9, 9, "held"), held=True),
    Row("held while one drains", 0, 9, (8, 9, "held"), held=True, draining=1),
    Row("paused beats held", 0, 9, (2, 2, "paused"), held=True, paused=2),
    # Windows.
    Row(
        "down waits for its window",
        0,
        5,
        (4, 4, D),
        policy={"down": Behavior(window=300.0)},
        recommended=((400, 9), (200, 4), (100, 2)),
    ),
    Row(
        "down's window is over",
        2,
        5,
        (1, 1, D),
        policy={"down": Behavior(window=300.0)},
        recommended=((400, 9), (301, 8)),
    ),
    Row(
        "a window never lifts",
        2,
        3,
        (3, 3, S),
        policy={"down": Behavior(window=300.0)},
        recommended=((10, 9),),
    ),
    Row(
        "up waits for its window",
        40,
        2,
        (3, 3, U),
        policy={"up": Behavior(window=60.0)},
        recommended=((30, 3), (10, 9)),
    ),
    Row(
        "up's window does not delay the first",
        40,
        0,
        (1, 1, FZ),
        policy={"up": Behavior(window=60.0)},
        recommended=((30, 0),),
    ),
    Row(
        "up's window does not shrink",
        40,
        5,
        (5, 5, S),
        policy={"up": Behavior(window=60.0)},
        recommended=((30, 2),),
    ),
    # Steps.
    Row("four at once", 40, 2, (6, 6, U), policy=FOUR),
    Row("four in fifteen seconds", 40, 6, (6, 6, S), policy=FOUR, moves=((10, 4),)),
    Row("two of four are left", 40, 4, (6, 6, U), policy=FOUR, moves=((10, 2),)),
    Row("the period is over", 40, 6, (10, 10, U), policy=FOUR, moves=((15, 4),)),
    Row("downs give room again", 40, 4, (10, 10, U), policy=FOUR, moves=((5, -2),)),
    Row("a tenth is one at least", 40, 1, (2, 2, U), policy={"up": steps((PERCENT, 10, 15.0))}),
    Row("doubling", 40, 3, (6, 6, U), policy={"up": steps((PERCENT, 100, 15.0))}),
    Row("percent of nothing", 40, 0, (1, 1, FZ), policy={"up": steps((PERCENT, 100, 15.0))}),
    Row(
        "the wider of two",
        40,
        2,
        (6, 6, U),
        policy={"up": steps((PERCENT, 100, 15.0), (PODS, 4, 15.0))},
    ),
    Row(
        "the narrower of two",
        40,
        2,
        (4, 4, U),
        policy={"up": steps((PERCENT, 100, 15.0), (PODS, 4, 15.0), select=Select.MIN)},
    ),
    Row("half goes", 0, 8, (4, 4, D), policy=HALF),
    Row("half went a moment ago", 0, 4, (4, 4, S), policy=HALF, moves=((30, -4),)),
    Row("half of three", 0, 3, (1, 1, D), policy=HALF),
    Row("one a minute", 0, 3, (2, 2, D), policy={"down": steps((PODS, 1, 60.0))}),
    Row(
        "the narrower way down",
        0,
        10,
        (9, 9, D),
        policy={"down": steps((PODS, 1, 60.0), (PERCENT, 50, 60.0), select=Select.MIN)},
    ),
    Row("cooldown jumps over no step", 0, 9, (8, 8, D), policy={"down": steps((PODS, 1, 60.0))}),
    Row("never down", 0, 9, (9, 9, S), policy={"down": NEVER}),
    Row("never up", 40, 2, (2, 2, S), policy={"up": NEVER}),
    # Nobody looked.
    Row("back after a gap", 0, 9, (9, 9, S), seen_ago=61.0, policy={"down": Behavior(300.0)}),
    Row("a gap keeps the last one", 0, 1, (1, 1, S), seen_ago=61.0),
    Row("a gap delays no growth", 40, 1, (20, 20, U), seen_ago=61.0),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_one_look(row: Row) -> None:
    state = State(
        at=NOW - row.seen_ago,
        active_at=NOW - row.idle_for,
        recommended=tuple((NOW - ago, workers) for ago, workers in row.recommended),
        moves=tuple((NOW - ago, difference) for ago, difference in row.moves),
    )
    observed = Observation(
        demand=row.demand,
        replicas=row.replicas,
        draining=row.draining,
        busy=row.busy,
        paused=row.paused,
        held=row.held,
    )
    decision, _ = decide(observed, state, policy(**row.policy), NOW)
    assert (decision.open, decision.replicas, decision.reason) == row.expected


def test_the_table_is_long_enough() -> None:
    assert len(ROWS) >= 60
    assert {row.expected[2] for row in ROWS} == set(Reason)


def play(
    rules: Policy, demands: list[int | None], *, replicas: int = 0, every: float = 1.0
) -> list[Decision]:
    """A pool that gets what is decided at once."""
    state = begin(Observation(demand=None, replicas=replicas), NOW)
    made = []
    for turn, demand in enumerate(demands):
        decision, state = decide(
            Observation(demand=demand, replicas=replicas), state, rules, NOW + every * turn
        )
        replicas = decision.replicas
        made.append(decision)
    return made


def test_a_start_shrinks_nothing() -> None:
    rules = policy(down=Behavior(window=300.0), cooldown=300.0)
    made = play(rules, [0] * 600, replicas=6)
    assert [d.open for d in made[:300]] == [6] * 300
    assert made[-1].open == 0


def test_an_outage_of_readings_shrinks_nothing_after_it_either() -> None:
    rules = policy(down=Behavior(window=100.0), cooldown=100.0)
    made = play(rules, [8] * 10 + [None] * 500 + [0] * 300)
    assert {d.open for d in made[10:510]} == {4}
    assert {d.open for d in made[510:600]} == {4}
    assert made[-1].open == 0


def test_reaches_zero_and_comes_back() -> None:
    made = play(policy(cooldown=30.0), [4] * 5 + [0] * 60 + [1] * 3)
    assert [d.open for d in made[4:35]] == [2] + [1] * 29 + [0]
    assert made[64].open == 0
    assert made[65] == Decision(1, 1, Reason.FROM_ZERO)


def test_memory_is_bounded() -> None:
    rules = policy(down=Behavior(window=300.0))
    state = begin(Observation(demand=0, replicas=3), NOW)
    for turn in range(1_000):
        observed = Observation(demand=turn % 7, replicas=3)
        _, state = decide(observed, state, rules, NOW + turn)
    assert len(state.recommended) <= 302
    for turn in range(1_000, 2_000):
        _, state = decide(Observation(demand=4, replicas=2), state, rules, NOW + turn)
    assert len(state.recommended) <= 3
    assert len(state.moves) <= 1


@pytest.mark.parametrize(
    "fields",
    [
        {"minimum": 3, "maximum": 2},
        {"minimum": -1},
        {"maximum": 0},
        {"target": 0},
        {"activation": -1},
        {"cooldown": -1.0},
    ],
)
def test_rules_that_contradict_each_other(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        policy(**fields)


behaviors = st.builds(
    Behavior,
    window=st.sampled_from([0.0, 5.0, 30.0]),
    steps=st.lists(
        st.builds(
            Step,
            kind=st.sampled_from(StepKind),
            value=st.integers(1, 100),
            period=st.sampled_from([1.0, 5.0, 15.0]),
        ),
        max_size=2,
    ).map(tuple),
    select=st.sampled_from([Select.MAX, Select.MIN]),
)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    minimum = draw(st.integers(0, 4))
    return Policy(
        minimum=minimum,
        maximum=draw(st.integers(max(1, minimum), 30)),
        target=draw(st.integers(1, 8)),
        activation=draw(st.integers(0, 3)),
        cooldown=draw(st.sampled_from([0.0, 10.0, 40.0])),
        up=draw(behaviors),
        down=draw(behaviors),
    )


@given(
    rules=policies(),
    looks=st.lists(
        st.tuples(st.none() | st.integers(0, 200), st.floats(0, 1), st.floats(0, 1), st.booleans()),
        max_size=60,
    ),
    replicas=st.integers(0, 30),
)
@settings(max_examples=150, deadline=None)
def test_never_below_busy_never_above_the_maximum_never_blind(
    rules: Policy, looks: list[tuple[int | None, float, float, bool]], replicas: int
) -> None:
    state = begin(Observation(demand=None, replicas=replicas), NOW)
    for turn, (demand, drains, works, obeyed) in enumerate(looks):
        observed = Observation(
            demand=demand,
            replicas=replicas,
            draining=int(drains * replicas),
            busy=int(works * replicas),
        )
        decision, state = decide(observed, state, rules, NOW + turn)
        assert decision.replicas >= observed.busy
        assert decision.open <= max(rules.maximum, observed.open if demand is None else 0)
        if demand is None:
            assert decision == Decision(observed.open, observed.replicas, Reason.BLIND)
        else:
            assert decision.replicas <= max(rules.maximum, observed.busy)
            assert decision.open >= rules.minimum
        if obeyed:
            replicas = decision.replicas


@given(rules=policies(), demand=st.integers(0, 200), replicas=st.integers(0, 30))
@settings(max_examples=80, deadline=None)
def test_a_steady_load_ends_in_a_steady_pool(rules: Policy, demand: int, replicas: int) -> None:
    made = play(rules, [demand] * 650, replicas=replicas)
    opens = [d.open for d in made]
    ups = sum(b > a for a, b in zip([replicas, *opens], opens, strict=False))
    downs = sum(b < a for a, b in zip([replicas, *opens], opens, strict=False))
    # One direction only, and the end is what the load needs.
    assert not (ups and downs)
    needed = -(-demand // rules.target) if demand > rules.activation else 0
    assert opens[-1] == min(max(needed, rules.minimum), rules.maximum)


@given(rules=policies(), demand=st.integers(4, 200))
@settings(max_examples=40, deadline=None)
def test_any_pool_without_a_minimum_comes_to_zero_and_back(rules: Policy, demand: int) -> None:
    made = play(rules, [demand] * 50 + [0] * 650 + [demand])
    assert made[0].open >= 1
    assert made[699].open == rules.minimum
    assert made[700].open >= 1
