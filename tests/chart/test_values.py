"""Wrong values are refused, with the key named."""

from __future__ import annotations

import pytest

from tests.chart.render import Refused, render

WRONG = [
    ({"api": {"replica": 2}}, "replica"),
    ({"api": {"replicas": "two"}}, "replicas"),
    ({"worker": {}}, "worker"),
    ({"workers": {"parser": {"stage": "parsing"}}}, "stage"),
    ({"workers": {"mine": {"concurrency": 2}}}, "stage"),
    ({"workers": {"api": {"stage": "parse"}}}, "api"),
    ({"workers": {"mine": {"stage": "parse", "lanes": ["urgent"]}}}, "lanes"),
    ({"workers": {"mine": {"stage": "parse", "autoscaling": {"maxReplica": 2}}}}, "maxReplica"),
    ({"workerDefaults": {"drainGraceSeconds": -1}}, "drainGraceSeconds"),
    ({"autoscaler": {"mode": "hpa"}}, "mode"),
    ({"settings": {"RETENTION": 1}}, "RETENTION"),
    ({"settings": {"DRAIN_GRACE": 1}}, "DRAIN_GRACE"),
    ({"database": {"url": "mysql://db"}}, "url"),
    ({"redis": {"url": "db:6379"}}, "url"),
    ({"storage": {"url": "file:///data"}}, "url"),
    ({"image": {"repository": ""}}, "repository"),
    ({"egress": {"proxy": "proxy:3128"}}, "proxy"),
    ({"networkPolicy": {"apiFrom": [{"namespace": "x"}]}}, "namespace"),
    # A rule without ports is one for all ports.
    ({"networkPolicy": {"stores": {"ports": []}}}, "stores"),
    ({"networkPolicy": {"apiServer": {"ports": []}}}, "apiServer"),
    ({"networkPolicy": {"dns": {"ports": []}}}, "dns"),
    ({"api": {"resources": {"limits": {"memory": "1 GB"}}}}, "memory"),
    ({"podMonitor": {"interval": "often"}}, "interval"),
]


@pytest.mark.parametrize(("values", "key"), WRONG, ids=[key for _, key in WRONG])
def test_the_schema_names_the_key(values, key):
    with pytest.raises(Refused) as refused:
        render("minimal", **values)
    assert "schema" in str(refused.value)
    assert key in str(refused.value)


OFF = {"devDependencies": {"enabled": False}}
TOGETHER = [
    (OFF, "database.url"),
    ({**OFF, "database": {"url": "postgresql://db/x"}}, "redis.url"),
    (
        {**OFF, "database": {"url": "postgresql://db/x"}, "redis": {"url": "redis://r"}},
        "storage.url",
    ),
    ({"database": {"url": "postgresql://db/x", "existingSecret": "s"}}, "not both"),
    ({"redis": {"url": "redis://r", "existingSecret": "s"}}, "not both"),
    ({"redis": {"passwordSecret": "s"}}, "redis.url"),
    ({"storage": {"existingSecret": "s"}}, "storage.url"),
    ({"workers": {"parser": {"autoscaling": {"minReplicas": 5}}}}, "workers.parser"),
    ({"workers": {"downloader": {"autoscaling": {"maxReplicas": 50}}}}, "maxConnections"),
    ({"api": {"autoscaling": {"enabled": True, "maxReplicas": 50}}}, "maxConnections"),
    ({"api": {"autoscaling": {"enabled": True, "minReplicas": 6}}}, "api.autoscaling"),
    (
        {"workers": {"downloader": {"resources": {"limits": {"ephemeral-storage": "20Gi"}}}}},
        "workers.downloader.resources.limits.ephemeral-storage",
    ),
    ({"workers": {"parser": {"enabled": False}}}, "No pool of workers takes the lane critical"),
    ({"workers": {"parser": {"lanes": ["high"]}}}, "the lane critical of the stage parse"),
    ({"workers": {"more": {"stage": "parse", "lanes": ["low"]}}}, "both take the lane low"),
]


@pytest.mark.parametrize(("values", "words"), TOGETHER, ids=[words for _, words in TOGETHER])
def test_values_that_do_not_fit_together(values, words):
    with pytest.raises(Refused, match=words):
        render("minimal", **values)


def test_a_pool_of_ones_own_beside_ours():
    mine = {"stage": "download", "lanes": ["bulk"], "autoscaling": {"maxReplicas": 1}}
    rest = {"lanes": ["critical", "high", "default", "low"], "autoscaling": {"maxReplicas": 4}}
    objects = render("minimal", workers={"bulk": mine, "downloader": rest})
    names = {o["metadata"]["name"] for o in objects if o["kind"] == "Deployment"}
    assert {"sluice-bulk", "sluice-downloader"} <= names


def test_a_pool_can_take_anothers_place():
    objects = render(
        "minimal",
        workers={
            "mine": {"stage": "parse", "autoscaling": {"enabled": False}},
            "parser": {"enabled": False},
        },
    )
    names = {o["metadata"]["name"] for o in objects if o["kind"] == "Deployment"}
    assert "sluice-mine" in names
    assert "sluice-parser" not in names
