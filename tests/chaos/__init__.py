"""Chaos: the whole system under faults for minutes, then everything is counted.

`python -m tests.chaos --database sqlite --seed 1 --jobs 200 --minutes 6`, or `make chaos`.

- `links`: what is asked of the sample site, and what each link deserves
- `clients`: submit, repeat, cancel, retry, delete, all along
- `pod`: a second transcoder, which helps with encodes
- `faults`: what is broken, one every few seconds, from a seeded list
- `stores`, `storages`: the database, Redis and storage of the run, to break and to read
- `strays`: processes that outlived their runs
- `verdict`: what must be true in the end
"""
