"""What keeps the promises: outbox relay, reconciler, parents, sweepers.

Any number of schedulers may run: each step is either conditional in the database or harmless twice.
"""
