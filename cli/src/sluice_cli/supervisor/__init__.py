"""Starts the parts of one machine, restarts what dies, leaves nothing behind.

A program of its own, standard library only: it stays for as long as the system runs, so it must not
carry what `sluice up` needed to get ready. Even `dataclasses` is left out: it costs a megabyte.
"""
