"""Marks of any number of answers in the place of preferences between two, and marks that are not yet set."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_RANKS = {"a": [1, 2], "b": [2, 1], "tie": [1, 1], "both_bad": [1, 1]}


def upgrade() -> None:
    marks = op.create_table(
        "marks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("item", sa.Text(), nullable=False),
        sa.Column("prompt_id", sa.Text(), nullable=False),
        sa.Column("answers", sa.JSON(), nullable=False),
        sa.Column("shown", sa.JSON(), nullable=False),
        sa.Column("ranks", sa.JSON(), nullable=False),
        sa.Column("all_bad", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_marks_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_marks")),
        sa.UniqueConstraint("user_id", "item", name=op.f("uq_marks_user_id_item")),
    )
    with op.batch_alter_table("marks", schema=None) as batch_op:
        batch_op.create_index("ix_marks_source", ["source", "id"], unique=False)
    op.create_table(
        "mark_drafts",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("item", sa.Text(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_mark_drafts_user_id")),
        sa.PrimaryKeyConstraint("user_id", "item", name=op.f("pk_mark_drafts")),
    )
    connection = op.get_bind()
    earlier = connection.execute(sa.text("SELECT * FROM preferences ORDER BY id")).mappings().all()
    rows = {(row["user_id"], row["item"]): row for row in map(_mark, earlier)}
    if rows:
        op.bulk_insert(marks, list(rows.values()))
    op.drop_table("preferences")


def _mark(row: Any) -> dict[str, Any]:
    """A preference between two as a mark; of two of one person for one pair the later one counts."""
    samples = [_value(row["a_sample"]), _value(row["b_sample"])]
    answers = [{"source": each["evaluation"], "sample_idx": int(each["sample_idx"])} for each in samples]
    ranks = _RANKS[row["choice"]]
    left = 0 if row["left_is"] == "a" else 1
    order = sorted((0, 1), key=lambda place: (answers[place]["source"], answers[place]["sample_idx"]))
    answers = [answers[place] for place in order]
    text = json.dumps([row["prompt_id"], answers], ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return {
        "id": row["id"],
        "source": row["panel_id"],
        "item": hashlib.sha256(text.encode()).hexdigest(),
        "prompt_id": row["prompt_id"],
        "answers": answers,
        "shown": [order.index(left), order.index(1 - left)],
        "ranks": [ranks[place] for place in order],
        "all_bad": row["choice"] == "both_bad",
        "reason": row["reason"],
        "tags": [],
        "seconds": row["seconds"],
        "user_id": row["user_id"],
        "created_at": row["created_at"],
    }


def _value(value: Any) -> Any:
    """JSON as the engine gives it: SQLite as text."""
    return json.loads(value) if isinstance(value, str) else value
