"""The job database and those who use it: what is queued, who runs it, what became of it.

states      the states of a job and the ways between them, as data
database    SQLite or PostgreSQL behind one `Database`; schema: its versions; tables: what is in it
jobs        `Jobs`: what commands, console and pipelines call
leases      `Leases`: what workers call; every write is guarded by job, worker, epoch and state
users       `Users`: people, their roles and API tokens; roles: who may do what
catalogue   `Catalogue`: the data sets that the registry holds, as rows
"""
