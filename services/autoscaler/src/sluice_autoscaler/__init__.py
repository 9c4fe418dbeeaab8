"""The autoscaler: what waits and runs, turned into replicas on Kubernetes."""
