"""Server-sent events: one hub per process compares Redis and database, many clients listen.

`messages` are what is sent, `buffer` keeps the latest per job for one client, `memory` what the hub
has told, `hub` finds out what is new, `stream` speaks to one client.
"""
