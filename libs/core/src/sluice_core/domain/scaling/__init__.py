"""How many workers a pool should have: policies and decisions, without clocks or clusters.

The autoscaler applies what is decided here; the simulator tries it out.
"""

from sluice_core.domain.scaling.decide import (
    Decision,
    Observation,
    Reason,
    State,
    begin,
    decide,
)
from sluice_core.domain.scaling.policy import Behavior, Policy, Select, Step, StepKind

__all__ = [
    "Behavior",
    "Decision",
    "Observation",
    "Policy",
    "Reason",
    "Select",
    "State",
    "Step",
    "StepKind",
    "begin",
    "decide",
]
