"""`mmrl pipeline`: steps that wait for each other, from a warm start to an exported model, as jobs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmrl.cli.output import JsonOption, note, print_json, print_table
from mmrl.errors import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from mmrl.jobs.jobs import Jobs
    from mmrl.jobs.pipelines import PipelineJobs
    from mmrl.jobs.records import Job

app = typer.Typer(no_args_is_help=True, help="Run steps that take each other's results.")

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A YAML file with `name` and `steps`.")]
FreshOption = Annotated[
    bool, typer.Option("--fresh", help="Begin anew: steps that succeeded before with the same config are run again.")
]

_HEADLINES = ("accuracy", "eval/accuracy", "eval/exact", "eval/reward", "reward/mean", "mark/num_pairs", "sft/loss")


@app.command()
def run(
    file: FileArgument,
    submit: Annotated[bool, typer.Option("--submit", help="Leave the jobs to the workers of --pool.")] = False,
    pool: Annotated[
        str | None, typer.Option(metavar="POOL", show_default=False, help="With --submit: whose workers take them.")
    ] = None,
    fresh: FreshOption = False,
    json: JsonOption = False,
) -> None:
    """Run the steps of a pipeline as jobs, each after those that it takes from.

    Without --submit this command works on them itself, and ends with each step's state and metrics. Started again it
    goes on: steps that succeeded stay, one that failed is resumed. Ctrl-C ends what runs with a checkpoint.
    """
    from mmrl.cli.job import open_jobs
    from mmrl.config.pipeline import load_pipeline
    from mmrl.jobs.pipelines import start_pipeline

    if pool is not None and not submit:
        raise typer.BadParameter(
            "goes with --submit; without it this command takes the jobs itself", param_hint="--pool"
        )
    pipeline = load_pipeline(file)
    salt = f"/{time.time_ns():x}" if fresh else ""
    is_interrupted = False
    with open_jobs() as jobs:
        chosen = pool or ("default" if submit else f"pipeline-{pipeline.config.name}")
        steps = start_pipeline(jobs, pipeline, pool=chosen, salt=salt)
        if not submit:
            is_interrupted = _work(jobs, steps, chosen)
        rows = [_row(step, job, with_metrics=not submit) for step, job in steps.current.items()]
    _tell(pipeline.config.name, rows, json=json)
    if not submit:
        from mmrl.cli.job_follow import exit_code_of

        raise typer.Exit(EXIT_INTERRUPTED if is_interrupted else exit_code_of(list(steps.current.values())))


def _work(jobs: Jobs, steps: PipelineJobs, pool: str) -> bool:
    """Works on the steps until all have ended. Returns whether Ctrl-C ended it."""
    from mmrl.cli.run import sigterm_interrupts
    from mmrl.jobs.foreground import foreground_worker

    follower = _StepFollower(jobs)
    requests: list[str] = []
    with sigterm_interrupts(), foreground_worker(jobs.database, pool=pool, say=lambda _: None) as worker:
        while True:
            try:
                steps.refresh(jobs)
                follower.look(steps)
                if steps.is_over or not worker.is_alive():
                    return "ctrl-c" in requests
                time.sleep(min(0.5, jobs.database.settings.poll_s))
            except KeyboardInterrupt as request:
                note("interrupted: what runs writes a checkpoint and ends; a second time ends it at once")
                for job in steps.current.values():
                    if not job.is_terminal:
                        jobs.kill(job.id) if requests else jobs.cancel(job.id)
                requests.append("sigterm" if request.args else "ctrl-c")


class _StepFollower:
    """Tells on stderr which step stands how, and what each writes, `[step] ` before it."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._followers: dict[str, Any] = {}
        self._live: set[str] = set()
        self._seen: dict[str, str] = {}

    def look(self, steps: PipelineJobs) -> None:
        from mmrl.cli.job_follow import Follower

        for step, job in steps.current.items():
            if not job.is_terminal:
                self._live.add(job.id)
            if job.attempt > 0 and job.id in self._live:
                follower = self._followers.get(job.id)
                if follower is None:
                    out: Any = _Prefixed(step)
                    follower = Follower(self._jobs, job.id, out=out, poll_s=0.0, tell=self._tell_fetch(step))
                    self._followers[job.id] = follower
                follower.run(until=lambda: True)
            if self._seen.get(step) != job.state:
                self._seen[step] = str(job.state)
                why = f": {job.error_message}" if job.error_message else ""
                note(f"[{step}] {job.state} ({job.short_id}){why}")

    def _tell_fetch(self, step: str) -> Callable[[Job], None]:
        def tell(job: Job) -> None:
            if job.state == "starting":
                note(f"[{step}] {self._jobs.why_pending(job).message}")

        return tell


class _Prefixed:
    """A stream whose lines begin with the step that they are of."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._rest = ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        sys.stderr.write("".join(f"[{self._step}] {line}\n" for line in lines))
        return len(text)

    def flush(self) -> None:
        sys.stderr.flush()


def _row(step: str, job: Job, *, with_metrics: bool) -> dict[str, Any]:
    from mmrl.runs.layout import is_run
    from mmrl.runs.mirror import local_folder
    from mmrl.trainer.ending import last_values

    folder = local_folder(job.run_dir)
    metrics = last_values(folder) if with_metrics and is_run(folder) else {}
    return {
        "name": step,
        "kind": job.kind,
        "job": job.id,
        "state": str(job.state),
        "step": job.step,
        "run_dir": job.run_dir,
        "error": job.error_message,
        "metrics": metrics,
    }


def _tell(name: str, rows: list[dict[str, Any]], *, json: bool) -> None:
    if json:
        print_json({"pipeline": name, "steps": rows})
        return
    shown = [
        (row["name"], row["kind"], row["state"], row["step"], _headline(row["metrics"]), row["run_dir"]) for row in rows
    ]
    print_table(shown, ["step", "kind", "state", "at", "result", "run dir"])


def _headline(metrics: dict[str, float]) -> str | None:
    """The figure that says most about a step."""
    name = next((name for name in _HEADLINES if name in metrics), None)
    return None if name is None else f"{name} {metrics[name]:.3g}"
