"""The autoscaler: what waits and runs, turned into replicas on Kubernetes.

`config` says which pools there are, `reading` what they have to do, `sluice_core.domain.scaling`
decides, `pool` carries out: growing at once, shrinking by `marks` on workers that then take nothing
new. `kube` is the only module that knows the Kubernetes client; `leader` sees to it that one
autoscaler acts at a time.
"""
