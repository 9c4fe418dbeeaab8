"""The download stage: bytes into storage, what was fetched before not fetched again.

`worker` holds its handler, `meter` adds up the tracks' progress, `partial` keeps what another
machine needs in order to go on.
"""
