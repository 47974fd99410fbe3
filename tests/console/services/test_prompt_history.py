"""One prompt across the steps of a run: the same from joint files as from single shards, in the order of numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from homes import Home

from console.services.group_filter import GroupFilter
from console.services.prompt_history import HistoryPoint
from console.services.responses import Responses
from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.records import ShardRow
from mmrl.jobs.worker.compaction import compact


def test_joint_files_give_what_the_shards_gave(fresh_home: Callable[[str], Home]) -> None:
    home = fresh_home("small")
    with Database.open() as database:
        job = Jobs(database).get(home.jobs["running"])
    folder = Path(job.run_dir) / "attempt-1"
    shards = [
        ShardRow("train", step, step, str(folder / f"samples/train-{step:06d}.parquet"), 8, 1)
        for step in range(10, 61, 10)
    ]
    single = Responses(job)
    prompt = single.groups("train", 60, GroupFilter()).groups[1].prompt_id
    expected = single.history("train", prompt)
    assert [point.step for point in expected] == [10, 20, 30, 40, 50, 60]
    assert expected[0] == HistoryPoint(10, 1, (1.2, 0.2, 0.2, 0.2), 3.0, 0)
    assert (expected[0].mean, expected[-1].mean) == (0.45, 0.7)
    joint = compact(folder, shards[:5])
    assert Responses(job, [joint]).history("train", prompt) == expected
    _double_rewards(Path(joint.uri))
    changed = Responses(job, [joint, *shards]).history("train", prompt)
    assert [point.mean for point in changed] == [0.9, 0.9, 0.9, 1.4, 1.4, 0.7], "the joint file was read"
    assert Responses(job, [joint]).history("train", "nobody's") == []


def _double_rewards(path: Path) -> None:
    table = pq.read_table(path)
    place = table.schema.get_field_index("reward_total")
    doubled = pa.array([2 * value for value in table["reward_total"].to_pylist()], pa.float64())
    pq.write_table(table.set_column(place, "reward_total", doubled), path)
