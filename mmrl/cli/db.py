"""`mmrl db`: the schema of the job database."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from mmrl.cli.output import JsonOption, print_json

if TYPE_CHECKING:
    from mmrl.jobs.schema import SchemaStatus

app = typer.Typer(no_args_is_help=True, help="Bring the job database to this version of mmrl.")


@app.command()
def upgrade(json: JsonOption = False) -> None:
    """Bring the schema to the one that this mmrl needs.

    It is done whole or not at all, by one process at a time. Workers may go on meanwhile; start them anew afterwards,
    so that they run the new version too.
    """
    from mmrl.jobs.database import Database
    from mmrl.jobs.schema import schema_status, upgrade_schema

    with Database.open(check=False) as database:
        before, after = upgrade_schema(database)
        status = schema_status(database)
    if json:
        print_json({"url": status.url, "before": before, "after": after})
    elif before == after:
        print(f"{status.url} has version {after} already")
    else:
        print(f"{status.url}: {before or 'empty'} -> {after}")


@app.command()
def status(json: JsonOption = False) -> None:
    """Tell which schema version the database has. Exit code 1 if this mmrl needs another."""
    from mmrl.jobs.database import Database
    from mmrl.jobs.schema import schema_status

    with Database.open(check=False) as database:
        found = schema_status(database)
    if json:
        print_json(asdict(found))
    else:
        print(status_line(found))
    if found.state not in ("current", "empty"):
        raise typer.Exit(1)


def status_line(status: SchemaStatus) -> str:
    """One line that says what to do."""
    words = {
        "current": "up to date",
        "empty": "empty; the first command that needs it sets it up",
        "older": f"older than {status.head}; run `mmrl db upgrade`",
        "newer": f"newer than {status.head}, which this mmrl knows; install a newer mmrl",
        "foreign": "not mmrl's; name an empty database in MMRL_DATABASE_URL",
    }
    return f"{status.url}: version {status.current or 'none'}, {words[status.state]}"
