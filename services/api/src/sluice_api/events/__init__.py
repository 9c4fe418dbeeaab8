"""Server-sent events: one hub per process compares Redis and database, many clients listen.

`hub` finds out what is new: `feed` reads Redis, `comparison` the database, `memory` knows what was
told. `audience` finds who wants a message (`messages`). A `client` collects in its `buffer` what
it was not sent yet, and sends it over its `line` when the `dispatcher` says that it is its turn.
`stream` is the body of the answer: `start`, what the client missed; then the connection is handed
over. `allowed` knows when a key was closed.
"""
