"""Server-sent events: one hub per process compares Redis and database, many clients listen.

`hub` finds out what is new: `feed` reads Redis, `comparison` the database, `memory` knows what was
told. `audience` finds who wants a message (`messages`), a `subscription` collects it in a `buffer`.
`stream` speaks to one client: `start` is what it is sent first, `departure` notices when it leaves,
`allowed` when its key was closed.
"""
