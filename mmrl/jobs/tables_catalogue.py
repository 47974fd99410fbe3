"""The tables of the catalogue: data sets, reward functions, people's marks, unfinished forms."""

from __future__ import annotations

import sqlalchemy as sa

from mmrl.jobs.tables import is_in, metadata

datasets = sa.Table(
    "datasets",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("uri", sa.Text, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False),
    sa.Column("format", sa.Text, nullable=False),
    sa.Column("n_rows", sa.Integer, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("is_current", sa.Boolean, nullable=False),
    sa.Column("validation_state", sa.Text, nullable=False),
    sa.Column("report", sa.JSON, nullable=False),
    sa.Column("owner_id", sa.Text, sa.ForeignKey("users.id")),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.UniqueConstraint("name", "version"),
    sa.CheckConstraint(is_in("validation_state", ["valid", "missing"]), name="validation_state"),
)

reward_fns = sa.Table(
    "reward_fns",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("entrypoint", sa.Text, nullable=False),
    sa.Column("source_sha256", sa.Text, nullable=False),
    sa.Column("params_schema", sa.JSON, nullable=False),
    sa.Column("owner_id", sa.Text, sa.ForeignKey("users.id")),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.UniqueConstraint("name", "version"),
)

marks = sa.Table(
    "marks",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("item", sa.Text, nullable=False),
    sa.Column("prompt_id", sa.Text, nullable=False),
    sa.Column("answers", sa.JSON, nullable=False),
    sa.Column("shown", sa.JSON, nullable=False),
    sa.Column("ranks", sa.JSON, nullable=False),
    sa.Column("all_bad", sa.Boolean, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("tags", sa.JSON, nullable=False),
    sa.Column("seconds", sa.Double),
    sa.Column("user_id", sa.Text, sa.ForeignKey("users.id"), nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.UniqueConstraint("user_id", "item"),
    sa.Index("ix_marks_source", "source", "id"),
)

mark_drafts = sa.Table(
    "mark_drafts",
    metadata,
    sa.Column("user_id", sa.Text, sa.ForeignKey("users.id"), primary_key=True),
    sa.Column("item", sa.Text, primary_key=True),
    sa.Column("payload", sa.JSON, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
)

drafts = sa.Table(
    "drafts",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("owner_id", sa.Text, sa.ForeignKey("users.id"), nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("payload", sa.JSON, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Index("ix_drafts_owner", "owner_id", "kind"),
)
