"""How much of a second a worker needs to index one second of a busy run: 1,000 metrics and 2,000 samples.

A run directory with so many seconds of that is written first; then it is indexed as a worker does it while a run grows.

    python tests/benchmarks/indexer.py --json
    python tests/benchmarks/indexer.py --url postgresql://postgres@127.0.0.1:5432/bench --json
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

METRICS_PER_S = 1000
SAMPLES_PER_S = 2000
KEYS = 40
GROUP = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=20, help="seconds of a run")
    parser.add_argument("--shard-rows", type=int, default=200, help="samples of a step")
    parser.add_argument("--url", help="a database that may be filled; default: a SQLite file of its own")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MMRL_HOME"] = f"{folder}/home"
        if options.url:
            os.environ["MMRL_DATABASE_URL"] = options.url
        report = measure(options.seconds, options.shard_rows, Path(folder))
    if options.json:
        print(json.dumps(report))
        return
    print(
        f"{report['engine']}: a second of the run takes {report['load']:.3f} s ({report['cpu_load']:.3f} of a core); "
        f"{report['metrics_per_s']:,.0f} metrics and {report['samples_per_s']:,.0f} samples a second"
    )


def measure(seconds: int, shard_rows: int, folder: Path) -> dict:
    from mmrl.config import NoopConfig
    from mmrl.jobs.database import Database
    from mmrl.jobs.from_config import job_of
    from mmrl.jobs.jobs import Jobs
    from mmrl.jobs.leases import Leases
    from mmrl.jobs.records import WorkerInfo
    from mmrl.jobs.worker.indexer import Indexer
    from mmrl.jobs.worker.run_folder import RunFolder

    with Database.open() as database:
        jobs = Jobs(database)
        job = jobs.submit(job_of(NoopConfig(name="probe")))
        leases = Leases(database)
        leases.register(WorkerInfo("bench", "boot", 1, 1.0))
        lease = leases.claim(job.id)
        assert lease is not None
        leases.started(lease)
        run = RunFolder.of_job(replace(job, attempt=1))
        run.prepare(lease)
        writing = Writing(run, lease)
        spent, cpu = 0.0, 0.0
        indexer = Indexer(leases, run)
        for second in range(seconds):
            writing.write_second(second, shard_rows)
            started, cpu_started = time.perf_counter(), time.process_time()
            while indexer.look(lease, at_end=second == seconds - 1).is_behind:
                pass
            spent += time.perf_counter() - started
            cpu += time.process_time() - cpu_started
        shards = jobs.shards(job.id)
        assert sum(shard.num_rows for shard in shards) == seconds * SAMPLES_PER_S // shard_rows * shard_rows
        return {
            "engine": database.dialect,
            "seconds": seconds,
            "load": spent / seconds,
            "cpu_load": cpu / seconds,
            "metrics_per_s": METRICS_PER_S * seconds / spent,
            "samples_per_s": SAMPLES_PER_S * seconds / spent,
            "shards_written": writing.num_shards,
            "shards_in_index": len(shards),
        }


class Writing:
    """The trainer's part, by its own writer."""

    def __init__(self, run, lease) -> None:
        from mmrl.runs.ownership import AttemptClaim
        from mmrl.runs.writer import RunWriter

        claim = AttemptClaim(lease.attempt, lease.token)
        self.writer = RunWriter.create(run.run_dir, config_yaml="name: probe\nkind: noop\n", resume=True, claim=claim)
        self.writer.begin(0, total_steps=10_000)
        self.step = 0
        self.num_shards = 0

    def write_second(self, second: int, shard_rows: int) -> None:
        for line in range(METRICS_PER_S // KEYS):
            self.writer.metrics(second * 1000 + line, {f"group/{key}": key / 7 for key in range(KEYS)})
        for _ in range(SAMPLES_PER_S // shard_rows):
            self.step += 1
            self.num_shards += 1
            self.writer.samples(self.step, "train", groups(self.step, shard_rows), store_path=Path)


def groups(step: int, num_rows: int) -> list:
    from mmrl.types import Message, RewardPart, RewardResult, Rollout, RolloutGroup, Sample, ScoredGroup, TextPart

    found = []
    for number in range(num_rows // GROUP):
        sample = Sample(f"{step}-{number}", (Message("user", (TextPart("How many triangles are there? " * 8),)),), "7")
        rollouts = tuple(
            Rollout(sample.id, index, tuple(range(64)), (1,) * 64, (-0.5,) * 64, "stop", "a long answer " * 20, step, 0)
            for index in range(GROUP)
        )
        rewards = (RewardResult(0.5, (RewardPart("exact", 0.5, 1.0),)),) * GROUP
        found.append(ScoredGroup(RolloutGroup(sample, rollouts), rewards, (0.0,) * GROUP))
    return found


if __name__ == "__main__":
    main()
