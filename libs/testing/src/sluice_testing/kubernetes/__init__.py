"""A Kubernetes of one namespace for tests: a stateful API server over HTTP, and what acts on it.

Pods are real processes. `FakeCluster` is the way in; `store` keeps objects with their versions,
`api` answers requests as an API server does, `replicaset` starts and stops pods in the order of the
real one, `faults` breaks things on purpose.
"""

from sluice_testing.kubernetes.cluster import FakeCluster, PodTemplate
from sluice_testing.kubernetes.faults import Fault, Rule

__all__ = ["FakeCluster", "Fault", "PodTemplate", "Rule"]
