"""`mmrl worker`: take jobs from the queue and run them; let a worker finish; list those that there are."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from mmrl.cli.job import complete_job
from mmrl.cli.output import JsonOption, note, print_json, print_table

app = typer.Typer(no_args_is_help=True, help="Run jobs of the queue on this machine.")


def _complete_worker(incomplete: str) -> list[tuple[str, str]]:
    """Ids of living workers for the shell; nothing where there is no database."""
    from mmrl.jobs.database import Database
    from mmrl.jobs.pools import Fleet

    try:
        with Database.open() as database:
            found = Fleet(database).workers()
    except Exception:
        return []
    return [(one.id, f"{one.host}, pool {one.pool}") for one in found if one.id.startswith(incomplete)]


PoolOption = Annotated[str, typer.Option("--pool", metavar="POOL", help="The pool whose jobs it takes.")]


@app.command()
def start(
    pool: PoolOption = "default",
    cpus: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1_000_000,
            metavar="N",
            show_default=False,
            help="CPU slots; by default the cores of this machine.",
        ),
    ] = None,
    gpus: Annotated[
        str, typer.Option(metavar="all|none|LIST", help="GPUs that it may give to jobs: indices or UUIDs, by commas.")
    ] = "all",
    job: Annotated[
        str | None,
        typer.Option(
            "--job",
            metavar="JOB",
            show_default=False,
            help="Take this job alone, then end.",
            autocompletion=complete_job,
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End after one job.")] = False,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when nothing is left to take.")] = False,
    drain: Annotated[
        Literal["wait", "handover", "leave"],
        typer.Option(
            help="On SIGTERM: wait for the runs; hand them over, each with a checkpoint; or leave them running for the "
            "next worker of this machine."
        ),
    ] = "wait",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of /metrics and /healthz; 0 is a free one.")] = 0,
    bind: Annotated[str, typer.Option(metavar="HOST", help="Address that they listen at.")] = "127.0.0.1",
    ray_address: Annotated[
        str | None,
        typer.Option(metavar="URL", show_default=False, help="A Ray cluster's dashboard, for jobs that run on Ray."),
    ] = None,
    working_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", show_default=False, help="Folder of your own code, sent to the Ray cluster."),
    ] = None,
) -> None:
    """Run jobs of a pool until told to stop.

    SIGTERM or Ctrl-C: nothing more is claimed, see --drain. A second one hands over what runs; a third one leaves it
    running. Runs outlive their worker: the next one on this machine goes on with them.
    """
    from mmrl.jobs.database import Database
    from mmrl.jobs.jobs import Jobs
    from mmrl.jobs.worker.gpus import chosen_gpus, make_probe
    from mmrl.jobs.worker.options import WorkerOptions, default_cpus
    from mmrl.jobs.worker.worker import Worker

    if ray_address is not None:
        from mmrl.jobs.worker.ray_launcher import check_cluster

        check_cluster(ray_address, say=note)
    probe = make_probe()
    with Database.open() as database:
        wanted = Jobs(database).get(job) if job is not None else None
        options = WorkerOptions(
            pool=pool if wanted is None else wanted.pool,
            cpus=cpus or max(default_cpus(), wanted.cpus if wanted is not None else 1),
            gpus=chosen_gpus(gpus, probe),
            job_id=None if wanted is None else wanted.id,
            until_idle=until_idle,
            once=once,
            drain=drain,
            port=port,
            bind=bind,
            ray_address=ray_address,
            working_dir=working_dir,
        )
        Worker(database, options, say=note, probe=probe).run()


@app.command()
def drain(
    worker: Annotated[
        str | None,
        typer.Argument(
            metavar="[WORKER]",
            show_default=False,
            help="Its id; without one all of this host.",
            autocompletion=_complete_worker,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Let workers finish, or hand over, what they have and take nothing more. They learn it at their next beat."""
    from mmrl.cli.acting import actor_of
    from mmrl.jobs.database import Database
    from mmrl.jobs.operating import drain as drain_worker
    from mmrl.jobs.pools import Fleet
    from mmrl.jobs.worker.processes import host_name

    with Database.open() as database:
        fleet, actor = Fleet(database), actor_of(database)
        chosen = _chosen(fleet.workers(), worker, host_name())
        for one in chosen:
            drain_worker(fleet, actor, one.id)
    if json:
        print_json([one.id for one in chosen])
    else:
        for one in chosen:
            print(one.id)


@app.command("list")
def list_workers(
    every: Annotated[bool, typer.Option("--all", help="Those that are gone too.")] = False, json: JsonOption = False
) -> None:
    """List the workers with their pools and what they hold."""
    from mmrl.jobs.database import Database
    from mmrl.jobs.pools import Fleet

    with Database.open() as database:
        workers = Fleet(database).workers(include_dead=every)
    if json:
        print_json([_plain(one) for one in workers])
        return
    if not workers:
        note("no worker is alive; `mmrl worker start` starts one" + ("" if every else ", --all lists those of before"))
        return
    rows = [
        (one.id, one.pool, one.state if one.is_alive else "dead", one.host, one.cpus, len(one.gpus), len(one.job_ids))
        for one in workers
    ]
    print_table(rows, ["id", "pool", "state", "host", "cpus", "gpus", "jobs"])


def _chosen(workers: list[Any], wanted: str | None, host: str) -> list[Any]:
    """Raises NotFoundError where no living worker is meant, or several are."""
    from mmrl.errors import NotFoundError

    if wanted is None:
        found = [one for one in workers if one.host == host]
        if not found:
            raise NotFoundError(f"no worker is alive on {host}; `mmrl worker list` shows those elsewhere")
        return found
    found = [one for one in workers if one.id == wanted] or [one for one in workers if wanted in one.id]
    if len(found) != 1:
        names = ", ".join(one.id for one in found or workers) or "none"
        raise NotFoundError(f"{len(found)} living workers are {wanted!r}; there are: {names}")
    return found


def _plain(worker: Any) -> dict[str, Any]:
    times = {name: getattr(worker, name).isoformat() for name in ("registered_at", "heartbeat_at")}
    return asdict(worker) | times
