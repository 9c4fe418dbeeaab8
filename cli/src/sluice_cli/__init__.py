"""The `sluice` command: everything on one machine, and a client of any installation.

`commands` read options and print, `client` talks HTTP, `local` prepares this machine's own system,
`supervisor` runs it, and `doctor` examines one.
"""
