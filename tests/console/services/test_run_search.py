"""A search over all steps finds what asking each step finds, in pages of any size, from joint files and single ones."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from console.services import column_pieces, run_search
from console.services.column_pieces import pieces
from console.services.group_filter import ONLY, GroupFilter
from console.services.run_search import Place, search_run
from mmrl.data.serialise import messages_to_json
from mmrl.jobs.records import ShardRow
from mmrl.jobs.worker.compaction import compact
from mmrl.runs.decoding import read_groups
from mmrl.runs.shards import SCHEMA
from mmrl.types import Message, TextPart

STEPS = (2, 4, 6, 8, 10, 12)
TEXTS = ("plain", "PLAIN text", "Straße", "strasse", "ÉTÉ", 'a "quote" \\ back', "line\nbreak", "数字", "", None)
FILTERS = (
    GroupFilter(),
    *(
        GroupFilter(find=text)
        for text in ("plain", "STRASSE", "été", '"quote" \\', "e\nb", "数", "nowhere", "text", "role")
    ),
    *(GroupFilter(only=only) for only in ONLY),
    GroupFilter(part="total", low=0.4, high=0.6),
    GroupFilter(part="total", high=0.0),
    GroupFilter(part="a", low=1.0),
    GroupFilter(part="none of these", low=0.0),
    GroupFilter(part="a"),
    GroupFilter(find="plain", only="mixed", part="b", low=0.5),
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[int, Path]:
    folder = tmp_path_factory.mktemp("run") / "attempt-1" / "samples"
    folder.mkdir(parents=True)
    draw = random.Random(0)
    found = {}
    for step in STEPS:
        rows = [row for group in range(4) for row in _group(draw, step, group)]
        found[step] = folder / f"train-{step:06d}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), found[step], row_group_size=8)
    return found


@pytest.mark.parametrize(("most_s", "piece_bytes"), [(0.0, 10**9), (60.0, 10**9), (60.0, 1)])
def test_all_that_fit_are_found_once_the_newest_step_first(
    files: Mapping[int, Path], most_s: float, piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_pieces, "BLOCK_ROWS", 32)
    monkeypatch.setattr(column_pieces, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(run_search, "ON_A_PAGE", 5)
    joint = _joint(files)
    groups = [group for step in reversed(STEPS) for group in read_groups(files[step], with_tokens=False)]
    some = 4 if not most_s else 2 if piece_bytes == 1 else 1
    for wanted in FILTERS[::some]:
        expected = [(group.step, group.group_id) for group in groups if wanted.fits(group)]
        for shards in ([], [joint]):
            assert _all(files, shards, wanted, most_s) == expected, (wanted, shards)


def test_the_joint_file_is_read_and_what_was_looked_through_is_told(files: Mapping[int, Path]) -> None:
    joint = _joint(files)
    table = pq.read_table(joint.uri)
    place = table.schema.get_field_index("finish_reason")
    pq.write_table(table.set_column(place, "finish_reason", pa.array(["stop"] * table.num_rows)), joint.uri)
    found = search_run(files, [joint], GroupFilter(only="truncated"))
    assert {group.step for group in found.groups} <= set(STEPS[4:]), "those of the joint file are told as ended there"
    assert (found.newest, found.oldest, found.then) == (12, 2, None)
    first = search_run(files, [], GroupFilter())
    assert (first.newest, first.oldest, str(first.then)) == (12, 8, "8-3")
    texts = ("8-3", "8", "x-1", "", "9" * 5000, "8-" + "9" * 5000)
    assert [Place.of_text(text) for text in texts] == [Place(8, 3), Place(8), None, None, None, None]


def test_steps_with_gaps_between_them_make_no_larger_blocks(
    files: Mapping[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second step has samples, 16 rows each."""
    monkeypatch.setattr(column_pieces, "BLOCK_ROWS", 32)
    sizes: list[int] = []

    def counted(path: Path, steps: Sequence[int], columns: Sequence[str]) -> Iterator[pa.Table]:
        sizes.append(len(steps))
        return pieces(path, steps, columns)

    monkeypatch.setattr(run_search, "pieces", counted)
    search_run(files, [_joint(files)], GroupFilter(find="nowhere"))
    assert sizes == [1, 1, 2, 2]


def test_megabytes_of_text_are_never_held_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six steps of eight responses of a megabyte, of which the first half is the same text; a piece is of 1 MB."""
    monkeypatch.setattr(column_pieces, "PIECE_BYTES", 1_000_000)
    monkeypatch.setattr(column_pieces, "BLOCK_BYTES", 13_000_000)
    folder = tmp_path / "attempt-1" / "samples"
    folder.mkdir(parents=True)
    files = {step: folder / f"train-{step:06d}.parquet" for step in STEPS}
    for step, path in files.items():
        pq.write_table(pa.Table.from_pylist(_megabytes(step), schema=SCHEMA), path, compression="zstd")
    shard = compact(tmp_path / "attempt-1", [ShardRow("train", step, step, str(files[step]), 8, 1) for step in STEPS])
    columns = ["step", "group_id", "response", "messages", "answer"]
    assert column_pieces.steps_at_once(Path(shard.uri), STEPS, columns) == 3
    for shards in ([shard], []):
        pool = pa.proxy_memory_pool(pa.default_memory_pool())
        before = pa.default_memory_pool()
        pa.set_memory_pool(pool)
        try:
            found = search_run(files, shards, GroupFilter(find="needle 8-3"), most_s=60.0)
        finally:
            pa.set_memory_pool(before)
        assert [(group.step, group.group_id) for group in found.groups] == [(8, 1)]
        assert pool.max_memory() < 30_000_000, "of 46 MB in all, and as much again to look through them"


def test_a_step_of_the_joint_file_that_counts_no_more_is_left_out(files: Mapping[int, Path]) -> None:
    kept = {step: path for step, path in files.items() if step != 4}
    found = search_run(kept, [_joint(files)], GroupFilter(), after=Place(6, 2))
    assert [(group.step, group.group_id) for group in found.groups][:3] == [(6, 3), (2, 0), (2, 1)]


def _megabytes(step: int) -> list[dict[str, Any]]:
    draw = random.Random(step)
    same = "the same " * 110_000
    rows = [row for group in range(2) for row in _group(draw, step, group)]
    for place, row in enumerate(rows):
        row["response"] = (
            same if step < 8 else f"{step} {place} " * 200_000 + f"needle {step}-{place % 4}" * (place > 3)
        )
    return rows


def _all(
    files: Mapping[int, Path], shards: list[ShardRow], wanted: GroupFilter, most_s: float
) -> list[tuple[int, int]]:
    found, after = [], None
    for _ in range(1000):
        page = search_run(files, shards, wanted, after=after, most_s=most_s)
        found += [(group.step, group.group_id) for group in page.groups]
        if page.then is None:
            return found
        after = page.then
    raise AssertionError("the search does not end")


def _joint(files: Mapping[int, Path]) -> ShardRow:
    """Of the first four steps."""
    shards = [ShardRow("train", step, step, str(files[step]), 16, 1) for step in STEPS[:4]]
    return compact(files[STEPS[0]].parent.parent, shards)


def _group(draw: random.Random, step: int, group: int) -> list[dict[str, Any]]:
    prompt = draw.choice(TEXTS)
    messages = [Message("user", (TextPart("Which?"),)), Message("user", (TextPart(prompt or ""),))]
    shared = {
        "attempt": 1,
        "split": "train",
        "step": step,
        "group_id": group,
        "prompt_id": f"p{group}",
        "kept_rate": 1.0,
        "messages": None if prompt is None else json.dumps(messages_to_json(messages)),
        "answer": draw.choice(TEXTS),
    }
    is_flat = draw.random() < 0.3
    flat = draw.choice((None, 0.0, 1.0))
    return [
        shared | _response(draw, index, flat if is_flat else draw.choice((None, 0.0, 0.5, 1.0))) for index in range(4)
    ]


def _response(draw: random.Random, index: int, reward: float | None) -> dict[str, Any]:
    parts = [{"name": name, "value": draw.choice((None, 0.0, 1.0)), "weight": 1.0, "ms": 0.0} for name in "ab"]
    return {
        "policy_version": 0,
        "sample_idx": index,
        "seed": 0,
        "reward_total": reward,
        "reward_parts": parts[: draw.choice((1, 2, 2))],
        "length": 3,
        "finish_reason": draw.choice(("stop", "stop", "stop", "length")),
        "turns": 1,
        "response": draw.choice(TEXTS),
    }
