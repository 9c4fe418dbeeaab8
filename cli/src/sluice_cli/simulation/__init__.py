"""Pools on paper: arrivals and service times in, replicas, waits and pod-hours out.

`model` is the pool, second by second; `strategies` are ways to size it, of which ours calls the
very `decide` that the autoscaler calls; `scenarios` are what happens to it; `report` compares.
"""
