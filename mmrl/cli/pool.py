"""`mmrl pool`: the pools that jobs wait in, and how many of them run at once."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mmrl.cli.output import JsonOption, note, print_json, print_table

if TYPE_CHECKING:
    from mmrl.jobs.records import Pool

app = typer.Typer(no_args_is_help=True, help="List pools and limit how many jobs run at once in one.")


@app.command("list")
def list_pools(json: JsonOption = False) -> None:
    """List pools with their limits, what their workers have and what waits."""
    from mmrl.jobs.database import Database
    from mmrl.jobs.pools import Fleet

    with Database.open() as database:
        pools = Fleet(database).pools()
    if json:
        print_json(pools)
    elif not pools:
        note("no pools yet; a worker or a job that names one makes it")
    else:
        _print(pools)


@app.command("set")
def set_pool(
    pool: Annotated[str, typer.Argument(metavar="POOL", show_default=False, help="Its name; made if there is none.")],
    capacity: Annotated[
        str, typer.Option(metavar="N|none", show_default=False, help="Most jobs at once; none: what its workers hold.")
    ],
    json: JsonOption = False,
) -> None:
    """Limit how many jobs of a pool run at once. What runs goes on; 0 starts nothing more. For admins."""
    from mmrl.cli.acting import actor_of
    from mmrl.jobs.database import Database
    from mmrl.jobs.operating import set_capacity
    from mmrl.jobs.pools import Fleet

    limit = _limit(capacity)
    with Database.open() as database:
        fleet = Fleet(database)
        set_capacity(fleet, actor_of(database), pool, limit)
        changed = next(one for one in fleet.pools() if one.name == pool)
    if json:
        print_json(asdict(changed))
    else:
        _print([changed])


def _limit(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdecimal() or int(text) >= 2**31:
        raise typer.BadParameter(f"got {text!r}; give a whole number from 0, or none", param_hint="--capacity")
    return int(text)


def _print(pools: list[Pool]) -> None:
    rows = [
        (
            one.name,
            "none" if one.capacity is None else one.capacity,
            one.num_held,
            one.num_queued,
            one.num_workers,
            f"{one.free_cpus}/{one.cpus}",
            f"{one.free_gpus}/{one.gpus}",
        )
        for one in pools
    ]
    print_table(rows, ["pool", "capacity", "running", "waiting", "workers", "free cpus", "free gpus"])
