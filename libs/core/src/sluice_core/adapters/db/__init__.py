"""The database: the truth about every job. SQL stands behind a few named functions.

`engine` opens it, `schema` names its tables, `rows` turns rows into values. Of a job's life, `jobs`
holds how it comes in and is looked up, `moves` what people do to it, `claims` how a run wins it,
`runs` what that run may write, `liveness` what follows when its worker is gone, `collections` its
children, and `ordering` what each of these asks of the outbox. The other modules are named after
their table or their question.

Times are Unix seconds (UTC) as doubles. Statements take a connection, so that the caller decides
what belongs in one transaction.
"""
