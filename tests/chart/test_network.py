"""Who reaches whom by the NetworkPolicies: those of a pod add up, and one is enough."""

from __future__ import annotations

import ipaddress

import pytest

from tests.chart.objects import of_kind, pods
from tests.chart.render import render

KUBE_SYSTEM = {"kubernetes.io/metadata.name": "kube-system"}
#: Where pods of a cluster look names up, as a network plug-in sees it: other pods, by namespace, or
#: an address; and the port.
DNS = {
    "kubeadm": ({"namespace": KUBE_SYSTEM}, 53),
    "nodelocal, its own address": ("169.254.20.10", 53),
    "nodelocal, the address of the Service": ("10.96.0.10", 53),
    "cloud dns of gke": ("169.254.169.254", 53),
    "gke, services at public addresses": ("34.118.224.10", 53),
    "eks of ipv6": ("fd12:3456::a", 53),
    "openshift": ({"namespace": {"kubernetes.io/metadata.name": "openshift-dns"}}, 5353),
}


def matches(selector, labels):
    for rule in selector.get("matchExpressions", ()):
        assert rule["operator"] in {"In", "Exists"}
        value = labels.get(rule["key"])
        if value is None or (rule["operator"] == "In" and value not in rule["values"]):
            return False
    return selector.get("matchLabels", {}).items() <= labels.items()


def is_peer(peer, other):
    """Whether a rule means the other end: a pod of ours (labels), an address, a namespace."""
    if "ipBlock" in peer:
        if not isinstance(other, str):
            return False
        address = ipaddress.ip_address(other)
        blocks = [peer["ipBlock"]["cidr"], *peer["ipBlock"].get("except", ())]
        inside = [address in ipaddress.ip_network(block) for block in blocks]
        return inside[0] and not any(inside[1:])
    if isinstance(other, str):
        return False
    if "namespaceSelector" in peer:
        return matches(peer["namespaceSelector"], other.get("namespace", {}))
    return "namespace" not in other and matches(peer["podSelector"], other)


class Net:
    def __init__(self, objects):
        self.policies = [p["spec"] for p in of_kind(objects, "NetworkPolicy").values()]
        self.labels = {name: t["metadata"]["labels"] for name, t in pods(objects)}

    def _one_way(self, direction, name, other, port, protocol="TCP"):
        labels = self.labels[name]
        own = [
            p
            for p in self.policies
            if direction in p["policyTypes"] and matches(p["podSelector"], labels)
        ]
        assert own, f"nothing closes {name}"
        key = "to" if direction == "Egress" else "from"
        for policy in own:
            for rule in policy.get(direction.lower(), ()):
                # A rule whose list of ports is there and empty is one for all ports.
                given = rule.get("ports") or ()
                ports = [p["port"] for p in given if p["protocol"] == protocol]
                peers = rule.get(key)
                if (not given or port in ports) and (
                    peers is None or any(is_peer(peer, other) for peer in peers)
                ):
                    return True
        return False

    def reaches(self, source, target, port):
        """Whether a pod of ours reaches another one of ours, or an address."""
        if target in self.labels:
            return self._one_way("Egress", source, self.labels[target], port) and (
                self._one_way("Ingress", target, self.labels[source], port)
            )
        return self._one_way("Egress", source, target, port)

    def asks(self, source, server, port):
        """Whether a pod of ours may look names up there, by either protocol."""
        return all(self._one_way("Egress", source, server, port, p) for p in ("UDP", "TCP"))

    def accepts(self, target, stranger, port):
        return self._one_way("Ingress", target, stranger, port)


WORKERS = ("sluice-parser", "sluice-downloader", "sluice-transcoder")
OURS = ("sluice-api", "sluice-scheduler", "sluice-autoscaler", *WORKERS)
INSIDE = ("10.0.0.1", "172.16.5.5", "192.168.1.1", "169.254.169.254", "100.64.0.1", "127.0.0.1",
          "168.63.129.16", "fd00::1", "fe80::1", "::1", "2002:a00:1::1",
          "64:ff9b::a00:1")  # fmt: skip
OUTSIDE = ("93.184.215.14", "2606:4700::1111")


@pytest.fixture(scope="module")
def trial():
    return Net(render("minimal"))


@pytest.mark.parametrize("name", ["sluice-parser", "sluice-downloader", "sluice-scheduler"])
def test_links_and_callbacks_lead_to_the_internet_and_nowhere_near(trial, name):
    assert all(trial.reaches(name, address, 443) for address in OUTSIDE)
    assert all(trial.reaches(name, address, 8443) for address in OUTSIDE)
    assert not any(trial.reaches(name, address, 443) for address in INSIDE)


def test_no_range_holds_private_addresses_of_version_6(trial):
    """Of a range with exceptions kube-router (k3s) lets fd00::/8 through, whatever is excepted."""
    blocks = [
        ipaddress.ip_network(peer["ipBlock"]["cidr"])
        for policy in trial.policies
        for rule in policy.get("egress", ())
        for peer in rule.get("to", ())
        if "ipBlock" in peer
    ]
    six = [block for block in blocks if block.version == 6]
    assert six
    assert not any(block.overlaps(ipaddress.ip_network("fc00::/7")) for block in six)


def test_who_needs_no_internet_has_none(trial):
    for name in (
        "sluice-transcoder",
        "sluice-api",
        "sluice-postgresql",
        "sluice-redis",
        "sluice-s3",
    ):
        assert not any(trial.reaches(name, address, 443) for address in (*OUTSIDE, *INSIDE)), name


def test_all_of_ours_reach_their_stores_and_names(trial):
    for name in OURS:
        assert trial.reaches(name, "sluice-postgresql", 5432), name
        assert trial.reaches(name, "sluice-redis", 6379), name
        assert trial.reaches(name, "sluice-s3", 8333), name
        assert trial.asks(name, {"namespace": KUBE_SYSTEM}, 53), name
    [job] = [name for name in trial.labels if "migrate" in name]
    assert trial.reaches(job, "sluice-postgresql", 5432)


@pytest.mark.parametrize("cluster", DNS)
def test_names_are_found_in_any_cluster(trial, cluster):
    """Without names nothing starts, and which of these a cluster has can't be seen from here."""
    for name in trial.labels:
        assert trial.asks(name, *DNS[cluster]), name
    # Where names are looked up nothing else is had, the credentials of the node least of all.
    for name in OURS:
        assert not trial.reaches(name, "169.254.169.254", 80), name


def test_where_names_are_looked_up_can_be_narrowed():
    net = Net(render("production"))
    for name in OURS:
        assert net.asks(name, *DNS["kubeadm"]), name
        assert not net.asks(name, *DNS["openshift"]), name
    assert not net.reaches("sluice-transcoder", "93.184.215.14", 53)


def test_a_pod_without_keys_gets_its_identity_of_the_bucket_on_eks():
    here = "169.254.170.23"
    bucket = {"url": "s3://media"}
    with_keys = Net(render("minimal", storage={**bucket, "existingSecret": "keys"}))
    net = Net(render("minimal", storage=bucket))
    for name in OURS:
        assert net.reaches(name, here, 80), name
        assert not net.reaches(name, "169.254.169.254", 80), name
        assert not with_keys.reaches(name, here, 80), name


def test_stores_let_nobody_else_in(trial):
    for store, port in (("postgresql", 5432), ("redis", 6379), ("s3", 8333)):
        assert not trial.accepts(f"sluice-{store}", {"app": "other"}, port)
        assert not trial.accepts(f"sluice-{store}", "10.0.0.9", port)


def test_the_smoke_test_has_what_it_needs(trial):
    assert trial.reaches("sluice-test", "sluice-api", 8080)
    assert trial.reaches("sluice-parser", "sluice-sample-site", 8080)
    assert trial.reaches("sluice-downloader", "sluice-sample-site", 8080)
    assert not trial.reaches("sluice-transcoder", "sluice-sample-site", 8080)


def test_workers_never_reach_the_api_or_each_other(trial):
    for name in WORKERS:
        assert not trial.reaches(name, "sluice-api", 8080)
        assert not trial.reaches(name, "sluice-scheduler", 9090)


def test_the_autoscaler_reaches_the_clusters_api(trial):
    assert trial.reaches("sluice-autoscaler", "10.96.0.1", 443)
    # Where the API server listens, after the Service's address was replaced: minikube, MicroK8s.
    assert all(trial.reaches("sluice-autoscaler", "10.0.0.2", p) for p in (6443, 8443, 16443))
    assert not trial.reaches("sluice-autoscaler", "10.0.0.2", 80)


def test_the_api_and_probes_can_be_reached(trial):
    assert trial.accepts("sluice-api", {"namespace": {"name": "any"}}, 8080)
    for name in OURS:
        assert trial.accepts(name, "10.0.0.2", 9090), name
        assert not trial.accepts(name, "10.0.0.2", 22), name


def test_production_is_narrower():
    net = Net(render("production"))
    ingress = {"namespace": {"kubernetes.io/metadata.name": "ingress-nginx"}}
    prometheus = {"namespace": {"kubernetes.io/metadata.name": "monitoring"}}
    assert net.accepts("sluice-api", ingress, 8080)
    assert not net.accepts("sluice-api", prometheus, 8080)
    assert net.reaches("sluice-test", "sluice-api", 8080)
    assert net.accepts("sluice-parser", prometheus, 9090)
    assert not net.accepts("sluice-parser", ingress, 9090)
    # What egress.allow opens for links is open to those who follow them, and to no others.
    assert net.reaches("sluice-downloader", "10.20.7.7", 81)
    assert net.reaches("sluice-parser", "10.30.1.2", 8080)
    assert not net.reaches("sluice-parser", "10.30.1.2", 8081)
    assert not net.reaches("sluice-transcoder", "10.20.7.7", 81)


def test_the_clusters_api_can_be_named():
    there = {"to": [{"ipBlock": {"cidr": "10.0.0.2/32"}}], "ports": [7443]}
    net = Net(render("minimal", networkPolicy={"apiServer": there}))
    assert net.reaches("sluice-autoscaler", "10.0.0.2", 7443)
    assert not net.reaches("sluice-autoscaler", "10.0.0.3", 7443)
    assert not net.reaches("sluice-autoscaler", "10.0.0.2", 6443)


def test_the_smoke_test_follows_the_api_to_the_bucket():
    """It answers with an address there, inside or outside, unless files go through it."""
    net = Net(render("production"))
    inside = {"namespace": {"kubernetes.io/metadata.name": "data"}}
    assert net.reaches("sluice-test", OUTSIDE[0], 443)
    assert net._one_way("Egress", "sluice-test", inside, 443)  # noqa: SLF001
    assert not Net(render("minimal")).reaches("sluice-test", OUTSIDE[0], 443)


def test_a_proxy_is_reached_by_those_who_follow_links():
    net = Net(render("minimal", egress={"proxy": "http://proxy.lan:3128"}))
    assert net.reaches("sluice-downloader", "10.1.2.3", 3128)
    assert not net.reaches("sluice-transcoder", "10.1.2.3", 3128)
