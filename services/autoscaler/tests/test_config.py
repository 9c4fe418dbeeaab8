from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sluice_autoscaler.config import read_pools
from sluice_core.domain.errors import ConfigError
from sluice_core.domain.scaling import Behavior, Policy, Select, Step, StepKind
from sluice_core.domain.scaling.policy import DOWN, UP


def written(folder: Path, pools: Any) -> Path:
    file = folder / "pools.json"
    file.write_text(pools if isinstance(pools, str) else json.dumps(pools))
    return file


def test_the_least_that_can_be_said(tmp_path: Path) -> None:
    (pool,) = read_pools(
        written(tmp_path, {"d": {"deployment": "x-d", "stage": "download", "concurrency": 4}})
    ).values()
    assert pool.autoscaling.enabled
    assert pool.policy == Policy(minimum=0, maximum=10, target=4, up=UP, down=DOWN)
    assert pool.queues == tuple(
        f"download.{lane}" for lane in ("critical", "high", "default", "low", "bulk")
    )


def test_everything_said(tmp_path: Path) -> None:
    said = {
        "deployment": "x",
        "stage": "parse",
        "lanes": ["bulk", "high"],
        "autoscaling": {
            "enabled": False,
            "minReplicas": 1,
            "maxReplicas": 3,
            "targetPerReplica": 500,
            "activation": 2,
            "cooldownSeconds": 30,
            "scaleUp": {"policies": []},
            "scaleDown": {
                "stabilizationWindowSeconds": 60,
                "selectPolicy": "Min",
                "policies": [{"type": "Pods", "value": 1, "periodSeconds": 30}],
            },
        },
    }
    pool = read_pools(written(tmp_path, {"slow-links": said}))["slow-links"]
    assert not pool.autoscaling.enabled
    assert pool.queues == ("parse.high", "parse.bulk")
    assert pool.policy == Policy(
        minimum=1,
        maximum=3,
        target=500,
        activation=2,
        cooldown=30.0,
        up=Behavior(window=0.0),
        down=Behavior(60.0, (Step(StepKind.PODS, 1, 30.0),), Select.MIN),
    )


GOOD = {"deployment": "x", "stage": "download"}


@pytest.mark.parametrize(
    ("pools", "words"),
    [
        ("{", "no JSON"),
        ({}, "there is none"),
        ([], "dictionary"),
        ({"d": {"stage": "download"}}, "d.deployment"),
        ({"d": GOOD | {"stage": "settle"}}, "stage must be one of parse, download, transcode"),
        ({"d": GOOD | {"lanes": ["fast"]}}, "d.lanes.0"),
        ({"d": GOOD | {"replicas": 3}}, "d.replicas"),
        ({"d": GOOD | {"autoscaling": {"maxReplica": 3}}}, "d.autoscaling.maxReplica"),
        ({"d": GOOD | {"autoscaling": {"minReplicas": 5, "maxReplicas": 3}}}, "minReplicas must"),
        (
            {"d": GOOD | {"autoscaling": {"scaleUp": {"policies": [{"type": "Pods"}]}}}},
            "d.autoscaling.scaleUp.policies.0.value",
        ),
        ({"Not_A_Name": GOOD}, "Not_A_Name"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, pools: Any, words: str) -> None:
    with pytest.raises(ConfigError, match="are wrong: ") as caught:
        read_pools(written(tmp_path, pools))
    assert words in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="SLUICE_AUTOSCALER_POOLS is not set"):
        read_pools(None)
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        read_pools(tmp_path / "none.json")
