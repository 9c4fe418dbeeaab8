"""The database: the truth about every job. SQL stands behind a few named functions.

`engine` opens it, `schema` names its tables, `jobs`, `runs`, `outbox`, `artifacts` and `access`
hold the statements. Times are Unix seconds (UTC) as doubles. Statements take a connection, so
that the caller decides what belongs in one transaction.
"""
