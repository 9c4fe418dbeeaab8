"""States, errors, plans and decisions as plain values and pure functions.

Only the standard library may be imported here; time, randomness and ids come in as arguments.
"""
