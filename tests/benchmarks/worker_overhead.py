"""What a worker adds to each job beyond the start of its process: noop jobs one after another through one worker,
against the same commands started by hand, in the same run.

    python tests/benchmarks/worker_overhead.py --json
    python tests/benchmarks/worker_overhead.py --url postgresql://postgres@127.0.0.1:5432/bench --json
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BLOCKS = 4
"""Jobs and bare processes take turns in so many blocks, so that what else the machine does falls on both."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--url", help="a database that may be filled; default: a SQLite file of its own")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"MMRL_HOME": f"{folder}/home", "PYTHONPYCACHEPREFIX": f"{folder}/pyc"}
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        if options.url:
            os.environ["MMRL_DATABASE_URL"] = options.url
        report = measure(options.jobs, Path(folder))
    if options.json:
        print(json.dumps(report))
        return
    print(
        f"{report['jobs']} jobs on {report['engine']}: {report['overhead_ms']:.1f} ms each beyond their process "
        f"({report['worker_cpu_ms']:.1f} ms of processor time); a bare process takes {report['process_ms']:.0f} ms"
    )


def measure(num_jobs: int, folder: Path) -> dict:
    from mmrl.config import NoopConfig, dump_yaml
    from mmrl.jobs.database import Database

    config = NoopConfig(name="probe")
    (folder / "probe.yaml").write_text(dump_yaml(config))
    bare(folder, 2, first=0)
    jobs_s, bare_s, worker_cpu_s = 0.0, 0.0, 0.0
    per_block = num_jobs // BLOCKS
    with Database.open() as database:
        for block in range(BLOCKS):
            bare_s += bare(folder, per_block, first=1000 * (block + 1))
            seconds, cpu_s = through_worker(database, config, per_block)
            jobs_s += seconds
            worker_cpu_s += cpu_s
        engine = database.dialect
    done = per_block * BLOCKS
    return {
        "jobs": done,
        "engine": engine,
        "overhead_ms": 1000 * (jobs_s - bare_s) / done,
        "job_ms": 1000 * jobs_s / done,
        "process_ms": 1000 * bare_s / done,
        "worker_cpu_ms": 1000 * worker_cpu_s / done,
    }


def bare(folder: Path, number: int, *, first: int) -> float:
    """Seconds for so many trainers, one after another, with their output in files."""
    started = time.perf_counter()
    for index in range(first, first + number):
        command = [
            sys.executable,
            "-m",
            "mmrl",
            "train",
            str(folder / "probe.yaml"),
            "--run-dir",
            f"{folder}/bare/{index}",
        ]
        with (folder / "out").open("ab") as out:
            subprocess.run(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def through_worker(database, config, number: int) -> tuple[float, float]:
    """Seconds from the first claim to the last end of so many jobs, and processor seconds of the worker itself."""
    from mmrl.jobs.from_config import job_of
    from mmrl.jobs.jobs import Jobs
    from mmrl.jobs.worker.options import WorkerOptions
    from mmrl.jobs.worker.worker import Worker

    jobs = Jobs(database)
    ids = [jobs.submit(job_of(config)).id for _ in range(number)]
    before = resource.getrusage(resource.RUSAGE_SELF)
    Worker(database, WorkerOptions(cpus=1, until_idle=True)).run()
    after = resource.getrusage(resource.RUSAGE_SELF)
    done = [jobs.get(job_id) for job_id in ids]
    assert {job.state.value for job in done} == {"succeeded"}, {job.state.value: job.error_message for job in done}
    first, last = min(job.started_at for job in done), max(job.finished_at for job in done)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (last - first).total_seconds(), cpu_s


if __name__ == "__main__":
    main()
