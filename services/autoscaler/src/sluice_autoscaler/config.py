"""The pools, from the JSON file that `SLUICE_AUTOSCALER_POOLS` names.

    {"downloader": {
        "deployment": "sluice-downloader",   name of the Deployment
        "stage": "download",                 parse | download | transcode
        "lanes": ["high", "default"],        left out or empty: all of them
        "concurrency": 4,                    slots of one pod, as in SLUICE_<STAGE>_CONCURRENCY
        "autoscaling": {
            "enabled": true,                 false: only deletion costs are kept true
            "minReplicas": 0,
            "maxReplicas": 10,
            "targetPerReplica": 4,           left out: `concurrency`
            "activation": 0,                 the pool leaves zero above this demand
            "cooldownSeconds": 300,          from the last demand until the last pod goes
            "scaleUp":   {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [
                {"type": "Percent", "value": 100, "periodSeconds": 15},
                {"type": "Pods", "value": 4, "periodSeconds": 15}]},
            "scaleDown": {"stabilizationWindowSeconds": 300, "selectPolicy": "Max", "policies": [
                {"type": "Percent", "value": 100, "periodSeconds": 15}]}}}}

`scaleUp` and `scaleDown` are the `behavior` of a HorizontalPodAutoscaler, with its defaults; an
empty list of policies sets no limit. The demand of a pool is that of its lanes; pools of the same
stage should not share lanes, since each would count what waits there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from sluice_core.domain.errors import ConfigError
from sluice_core.domain.lanes import LANES, STAGES, Actor, Lane, queue_name
from sluice_core.domain.scaling import Behavior, Policy, Select, Step, StepKind
from sluice_core.domain.scaling.policy import DOWN, UP

#: Longest time that Kubernetes lets a window or a period be, seconds.
_LONGEST_WINDOW = 3600
_LONGEST_PERIOD = 1800

_PoolName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=True
    )


class StepConfig(_Model):
    """At most `value` pods or percent within `period_seconds`."""

    type: StepKind
    value: int = Field(ge=1)
    period_seconds: int = Field(ge=1, le=_LONGEST_PERIOD)


class BehaviorConfig(_Model):
    """How fast a pool moves in one direction; what is left out is as Kubernetes has it."""

    stabilization_window_seconds: int | None = Field(default=None, ge=0, le=_LONGEST_WINDOW)
    select_policy: Select = Select.MAX
    policies: tuple[StepConfig, ...] | None = None

    def over(self, usual: Behavior) -> Behavior:
        """What this says, and the rest as usual."""
        window, steps = usual.window, usual.steps
        if self.stabilization_window_seconds is not None:
            window = float(self.stabilization_window_seconds)
        if self.policies is not None:
            steps = tuple(Step(s.type, s.value, float(s.period_seconds)) for s in self.policies)
        return Behavior(window=window, steps=steps, select=self.select_policy)


class AutoscalingConfig(_Model):
    """The rules of one pool."""

    enabled: bool = True
    min_replicas: int = Field(default=0, ge=0)
    max_replicas: int = Field(default=10, ge=1)
    target_per_replica: int | None = Field(default=None, ge=1)
    activation: int = Field(default=0, ge=0)
    cooldown_seconds: float = Field(default=300.0, ge=0)
    scale_up: BehaviorConfig = BehaviorConfig()
    scale_down: BehaviorConfig = BehaviorConfig()


class PoolConfig(_Model):
    """One pool of workers."""

    deployment: str = Field(min_length=1, max_length=253)
    stage: Actor
    lanes: tuple[Lane, ...] = ()
    concurrency: int = Field(default=1, ge=1)
    autoscaling: AutoscalingConfig = AutoscalingConfig()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.stage not in STAGES:
            raise ValueError(f"stage must be one of {', '.join(STAGES)}")
        _ = self.policy
        return self

    @property
    def queues(self) -> tuple[str, ...]:
        """Whose demand is this pool's."""
        return tuple(queue_name(self.stage, lane) for lane in LANES if lane in self._lanes)

    @property
    def _lanes(self) -> frozenset[Lane]:
        return frozenset(self.lanes or LANES)

    @property
    def policy(self) -> Policy:
        """Its rules.

        Raises:
            ValueError: they contradict each other.

        """
        rules = self.autoscaling
        return Policy(
            minimum=rules.min_replicas,
            maximum=rules.max_replicas,
            target=rules.target_per_replica or self.concurrency,
            activation=rules.activation,
            cooldown=rules.cooldown_seconds,
            up=rules.scale_up.over(UP),
            down=rules.scale_down.over(DOWN),
        )


_POOLS = TypeAdapter(dict[_PoolName, PoolConfig])


def read_pools(path: Path | None) -> dict[str, PoolConfig]:
    """Pools by name.

    Raises:
        ConfigError: one sentence on what is wrong with the file.

    """
    if path is None:
        raise ConfigError("SLUICE_AUTOSCALER_POOLS is not set: it names the file of the pools.")
    try:
        pools = _POOLS.validate_python(json.loads(path.read_text("utf-8")))
    except OSError as exc:
        raise ConfigError(f"The pools in {path} can't be read: {exc.strerror}.") from exc
    except ValueError as exc:
        raise ConfigError(f"The pools in {path} are wrong: {_sentence(exc)}.") from exc
    if not pools:
        raise ConfigError(f"The pools in {path} are wrong: there is none.")
    return pools


def _sentence(exc: ValueError) -> str:
    if not isinstance(exc, ValidationError):
        return f"no JSON ({exc})"
    first = exc.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}"
