"""The catalogue (data sets, reward functions, preferences, drafts), and tags and a note on jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "datasets",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("n_rows", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("is_current", sa.Boolean(), nullable=False),
        sa.Column("validation_state", sa.Text(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.Column("owner_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint("validation_state IN ('valid', 'missing')", name=op.f("ck_datasets_validation_state")),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name=op.f("fk_datasets_owner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
        sa.UniqueConstraint("name", "version", name=op.f("uq_datasets_name_version")),
    )
    op.create_table(
        "drafts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("owner_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name=op.f("fk_drafts_owner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_drafts")),
    )
    with op.batch_alter_table("drafts", schema=None) as batch_op:
        batch_op.create_index("ix_drafts_owner", ["owner_id", "kind"], unique=False)

    op.create_table(
        "preferences",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("panel_id", sa.Text(), nullable=False),
        sa.Column("prompt_id", sa.Text(), nullable=False),
        sa.Column("a_sample", sa.JSON(), nullable=False),
        sa.Column("b_sample", sa.JSON(), nullable=False),
        sa.Column("left_is", sa.Text(), nullable=False),
        sa.Column("choice", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint("choice IN ('a', 'b', 'tie', 'both_bad')", name=op.f("ck_preferences_choice")),
        sa.CheckConstraint("left_is IN ('a', 'b')", name=op.f("ck_preferences_left_is")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_preferences_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_preferences")),
    )
    with op.batch_alter_table("preferences", schema=None) as batch_op:
        batch_op.create_index("ix_preferences_panel", ["panel_id", "prompt_id"], unique=False)

    op.create_table(
        "reward_fns",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("entrypoint", sa.Text(), nullable=False),
        sa.Column("source_sha256", sa.Text(), nullable=False),
        sa.Column("params_schema", sa.JSON(), nullable=False),
        sa.Column("owner_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name=op.f("fk_reward_fns_owner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reward_fns")),
        sa.UniqueConstraint("name", "version", name=op.f("uq_reward_fns_name_version")),
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("tags", sa.JSON(), server_default="[]", nullable=False))
        batch_op.add_column(sa.Column("note", sa.Text(), nullable=True))
