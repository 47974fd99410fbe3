"""Alembic's entry: runs the versions on the connection, and in the transaction, that `mmrl.jobs.schema` gives it."""

from __future__ import annotations

from alembic import context

from mmrl.jobs import tables_catalogue
from mmrl.jobs.tables import metadata

assert tables_catalogue.datasets.metadata is metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
